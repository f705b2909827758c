package awssqs

import (
	"context"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/txonce/txonce/outbox"
)

const fifoSuffix = ".fifo"

var queueName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,80}(\.fifo)?$`)

func isQueueName(s string) bool { return len(s) <= 80 && queueName.MatchString(s) }

// wantQueue ends the error about a string that names no queue.
const wantQueue = "want the URL of a queue, or its name: at most 80 of a-z A-Z 0-9 - _, with .fifo at the end for a FIFO queue"

// isURL reports whether a topic is a URL of a queue, and not its name.
func isURL(topic string) bool {
	return strings.HasPrefix(topic, "https://") || strings.HasPrefix(topic, "http://")
}

// url returns the URL of a topic's queue. It remembers the URL until SQS says that there is no queue.
func (p *Publisher) url(ctx context.Context, topic string) (string, error) {
	if isURL(topic) {
		if u, err := url.Parse(topic); err != nil || u.Host == "" || strings.Trim(u.Path, "/") == "" {
			return "", outbox.Permanent(fmt.Errorf("awssqs: topic %q: %s", topic, wantQueue))
		}
		return topic, nil
	}
	if !isQueueName(topic) {
		return "", outbox.Permanent(fmt.Errorf("awssqs: topic %q: %s", topic, wantQueue))
	}
	p.mu.Lock()
	known := p.urls[topic]
	p.mu.Unlock()
	if known != "" {
		return known, nil
	}
	if ctx.Err() != nil {
		return "", unsent(ctx, topic)
	}
	out, err := p.client.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: &topic})
	if err != nil {
		return "", lookupFailed(ctx, topic, err)
	}
	if out.QueueUrl == nil || *out.QueueUrl == "" {
		return "", fmt.Errorf("awssqs: queue %s: GetQueueUrl has answered without a URL", topic)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.urls[topic] = *out.QueueUrl
	return *out.QueueUrl, nil
}

// forget makes url look up topic's queue again, because there is no queue at this URL any more.
func (p *Publisher) forget(topic, url string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.urls[topic] == url {
		delete(p.urls, topic)
	}
}
