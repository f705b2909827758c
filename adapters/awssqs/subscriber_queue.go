package awssqs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/driver"
)

// queue is what a Subscriber knows about its queue.
type queue struct {
	url        string
	name       string
	fifo       bool
	visibility time.Duration
}

// inspect finds the queue, and refuses it if it would lose messages.
func (s *Subscriber) inspect(ctx context.Context) (q queue, err error) {
	q.url = s.cfg.Queue
	if !isURL(q.url) {
		out, err := s.cfg.Client.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: &q.url})
		if err != nil {
			return q, explain(err, "sqs:GetQueueUrl, or set Queue to its URL,")
		}
		if out.QueueUrl == nil || *out.QueueUrl == "" {
			return q, errors.New("GetQueueUrl has answered without a URL")
		}
		q.url = *out.QueueUrl
	}
	q.name = q.url[strings.LastIndexByte(q.url, '/')+1:]
	out, err := s.cfg.Client.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{
		QueueUrl: &q.url, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll},
	})
	if err != nil {
		return q, explain(err, "sqs:GetQueueAttributes")
	}
	has := out.Attributes
	q.fifo = has[string(types.QueueAttributeNameFifoQueue)] == "true" || strings.HasSuffix(q.name, fifoSuffix)
	if q.fifo && s.cfg.OrderBy != nil {
		return q, errors.New("a FIFO queue is handled in order per message group; SubscriberConfig.OrderBy is for standard queues")
	}
	if q.visibility, err = s.visibility(has); err != nil {
		return q, err
	}
	return q, errors.Join(s.checkRedrive(has), s.checkRetention(has))
}

// visibility is the visibility timeout of received messages.
func (s *Subscriber) visibility(has map[string]string) (time.Duration, error) {
	if s.cfg.VisibilityTimeout > 0 {
		return s.cfg.VisibilityTimeout, nil
	}
	v, known, err := seconds(has, types.QueueAttributeNameVisibilityTimeout)
	switch {
	case err != nil:
		return 0, err
	case !known:
		return 0, errors.New("its visibility timeout is unknown; set SubscriberConfig.VisibilityTimeout")
	case v < time.Second:
		return 0, errors.New("its visibility timeout is 0, so each message would be delivered again while it is being handled; " +
			"set SubscriberConfig.VisibilityTimeout, or the queue's")
	}
	return v, nil
}

// checkRedrive refuses a queue that moves messages away before the Processor has handled them or given up on them.
func (s *Subscriber) checkRedrive(has map[string]string) error {
	text := has[string(types.QueueAttributeNameRedrivePolicy)]
	if text == "" {
		return nil
	}
	var policy struct {
		MaxReceiveCount json.RawMessage `json:"maxReceiveCount"` // a number, or one in quotes
		Target          string          `json:"deadLetterTargetArn"`
	}
	if err := json.Unmarshal([]byte(text), &policy); err != nil {
		return fmt.Errorf("its redrive policy cannot be read: %w", err)
	}
	receives, err := strconv.Atoi(strings.Trim(string(policy.MaxReceiveCount), `"`))
	if err != nil {
		return fmt.Errorf("maxReceiveCount of its redrive policy cannot be read: %w", err)
	}
	attempts := s.attempts()
	if receives > attempts {
		if receives < MinReceives {
			s.log.Warn("awssqs: the queue's redrive policy may move messages away that the Processor would have handled: stops, crashes and lost answers "+
				"count as receives too; set maxReceiveCount to 10 or more", "maxReceiveCount", receives, "attempts",
				attempts, "target", policy.Target)
		}
		return nil
	}
	err = fmt.Errorf("its redrive policy moves a message to %s once it was received %d times, and the Processor tries it %d times: the message would be "+
		"gone from here before the Processor has handled it or parked it; set maxReceiveCount to %d or more, or remove the policy, since a Consumer "+
		"parks what it gives up on", policy.Target, receives, attempts, max(MinReceives, attempts+1))
	if !slices.Contains(s.cfg.AcceptedRisks, RiskRedrive) {
		return fmt.Errorf("%w, or accept awssqs.%s (AcceptedRisks)", err, RiskRedrive)
	}
	s.log.Warn("awssqs: messages may be moved away unhandled", "error", err)
	return nil
}

// attempts is how often the Processor tries a message before it gives up on it.
func (s *Subscriber) attempts() int {
	if p, says := s.cfg.Processor.(interface{ MaxAttempts() int }); says {
		return p.MaxAttempts()
	}
	return 3 // the default of consumer.Config
}

// checkRetention refuses a queue that keeps messages for longer than the Processor remembers keys.
func (s *Subscriber) checkRetention(has map[string]string) error {
	windowed, ok := s.cfg.Processor.(driver.Windowed)
	if !ok {
		return nil
	}
	window := windowed.Window()
	keeps, known, err := seconds(has, types.QueueAttributeNameMessageRetentionPeriod)
	switch {
	case err != nil:
		return err
	case !known:
		s.log.Warn("awssqs: the queue does not say how long it keeps messages; keys must be remembered longer than that", "window", window)
		return nil
	case window >= keeps:
		return nil
	}
	err = fmt.Errorf("it keeps messages for %v, the Processor remembers keys for %v; set its Window to %v", keeps,
		window, keeps)
	if !slices.Contains(s.cfg.AcceptedRisks, RiskShortWindow) {
		return fmt.Errorf("%w, or accept awssqs.%s (AcceptedRisks)", err, RiskShortWindow)
	}
	s.log.Warn("awssqs: keys may be forgotten before messages", "error", err)
	return nil
}

// seconds reads an attribute. A missing attribute is unknown, not zero.
func seconds(has map[string]string, name types.QueueAttributeName) (value time.Duration, known bool, err error) {
	text, known := has[string(name)]
	if !known {
		return 0, false, nil
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 0 {
		return 0, true, fmt.Errorf("its %s is %q, which is no number of seconds", name, text)
	}
	return time.Duration(n) * time.Second, true, nil
}

// explain adds the remedy to err. action is the permission that may be missing.
func explain(err error, action string) error {
	switch {
	case missingQueue(err):
		return fmt.Errorf("it does not exist; create it, or set the Client to its region and account: %w", err)
	case blameOf(err) == theQueue:
		return fmt.Errorf("%w; allow this client %s on it", err, action)
	}
	return err
}

// fatal reports whether err usually does not pass: the queue is missing, this client may not use it, or its credentials
// are wrong.
func fatal(err error) bool {
	switch b := blameOf(err); b {
	case theQueue:
		return !codeIs(err, "OverLimit") // too many messages in flight: that passes
	case theClient:
		return codeIs(err, "InvalidClientTokenId", "UnrecognizedClientException", "SignatureDoesNotMatch",
			"InvalidSignatureException",
			"MissingAuthenticationToken", "MissingAuthenticationTokenException", "InvalidAccessKeyId", "OptInRequired",
			"NotAuthorized", "ExpiredToken", "ExpiredTokenException")
	default:
		return false
	}
}

// codeIs reports whether SQS answered with one of these codes.
func codeIs(err error, codes ...string) bool {
	var answer smithy.APIError
	return errors.As(err, &answer) && slices.Contains(codes, plainCode(answer.ErrorCode()))
}

// CheckWindow is for programs that check a queue without receiving from it. Like a Subscriber at its start, it refuses
// a queue that keeps messages for longer than window, or that moves messages away before a consumer with default
// settings has given up on them. queue is a name or a URL. window is how long the consumer remembers keys.
func CheckWindow(ctx context.Context, client API, queue string, window time.Duration) error {
	s := &Subscriber{
		cfg: SubscriberConfig{Client: client, Queue: queue, Processor: remembers(window)},
		log: slog.New(slog.DiscardHandler),
	}
	if _, err := s.inspect(ctx); err != nil {
		return fmt.Errorf("awssqs: queue %s: %w", queue, err)
	}
	return nil
}

// remembers is a Processor that only has a window.
type remembers time.Duration

func (r remembers) Window() time.Duration { return time.Duration(r) }

func (remembers) Process(context.Context, *consumer.Message) error {
	return errors.New("awssqs: this Processor handles nothing")
}
