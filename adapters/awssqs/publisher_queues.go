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

// isURL says whether a topic is a URL of a queue rather than its name.
func isURL(topic string) bool {
	return strings.HasPrefix(topic, "https://") || strings.HasPrefix(topic, "http://")
}

// url finds where the queue of a topic is, and remembers it for as long as the queue answers there.
func (p *Publisher) url(ctx context.Context, topic string) (string, error) {
	if isURL(topic) {
		if u, err := url.Parse(topic); err != nil || u.Host == "" || strings.Trim(u.Path, "/") == "" {
			return "", outbox.Permanent(fmt.Errorf("awssqs: topic %q is no URL of a queue: want its name, or the URL that GetQueueUrl returns", topic))
		}
		return topic, nil
	}
	if !queueName.MatchString(topic) || len(topic) > 80 {
		return "", outbox.Permanent(fmt.Errorf("awssqs: topic %q can be no queue: want at most 80 of a-z A-Z 0-9 - _, with .fifo at the end for a FIFO queue, or a URL", topic))
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

// forget has a queue looked up again that is not there any more.
func (p *Publisher) forget(topic, url string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.urls[topic] == url {
		delete(p.urls, topic)
	}
}
