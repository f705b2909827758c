package awssqstest_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"

	"github.com/txonce/txonce/adapters/awssqs"
	"github.com/txonce/txonce/adapters/awssqs/awssqstest"
	"github.com/txonce/txonce/internal/test/brokers/testsqs"
)

// client has the methods that the behaviours use. *sqs.Client and *awssqstest.Server implement it.
type client interface {
	awssqs.API
	CreateQueue(context.Context, *sqs.CreateQueueInput, ...func(*sqs.Options)) (*sqs.CreateQueueOutput, error)
	DeleteQueue(context.Context, *sqs.DeleteQueueInput, ...func(*sqs.Options)) (*sqs.DeleteQueueOutput, error)
}

// world is a server with one queue.
type world struct {
	client
	t    *testing.T
	url  *string
	fifo bool
}

// TestConformance compares the fake with a real server.
func TestConformance(t *testing.T) {
	t.Run("fake", func(t *testing.T) {
		for _, b := range behaviours() {
			t.Run(b.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { b.check(t, awssqstest.NewServer(awssqstest.Config{}), b.want) })
			})
		}
	})
	if testing.Short() {
		return
	}
	t.Run("elasticmq", func(t *testing.T) {
		api := testsqs.Server(t)
		var running sync.WaitGroup
		defer running.Wait()
		for _, b := range behaviours() {
			running.Go(func() { // instead of t.Parallel, which -parallel limits; these cases mostly wait
				t.Run(b.name, func(t *testing.T) {
					want := b.want
					if b.elasticmq != "" {
						want = b.elasticmq
						t.Logf("the fake is otherwise: %s", b.why)
					}
					b.check(t, api, want)
				})
			})
		}
	})
}

func (b behaviour) check(t *testing.T, api client, want string) {
	name, attributes := fmt.Sprintf("txonce-conf-%016x", rand.Uint64()), maps.Clone(b.attributes)
	if b.fifo {
		name += ".fifo"
		if attributes == nil {
			attributes = map[string]string{}
		}
		attributes["FifoQueue"] = "true"
	}
	made, err := api.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: &name, Attributes: attributes})
	if err != nil {
		t.Fatal(err)
	}
	defer api.DeleteQueue(context.WithoutCancel(t.Context()), &sqs.DeleteQueueInput{QueueUrl: made.QueueUrl})
	if got := b.run(&world{client: api, t: t, url: made.QueueUrl, fifo: b.fifo}); got != want {
		t.Errorf("it does %s, want %s", got, want)
	}
}

// code returns "ok" or the code of an error, without the prefix of the older protocol.
func code(err error) string {
	var api smithy.APIError
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &api):
		return strings.TrimPrefix(strings.TrimPrefix(api.ErrorCode(), "AWS.SimpleQueueService."), "com.amazonaws.sqs#")
	}
	return err.Error()
}

func (w *world) send(body, group, dedup string) string {
	e := entry("1", body)
	if group != "" {
		e.MessageGroupId = &group
	}
	if dedup != "" {
		e.MessageDeduplicationId = &dedup
	}
	return w.sendEntries(e)
}

func (w *world) sendEntries(entries ...types.SendMessageBatchRequestEntry) string {
	out, err := w.SendMessageBatch(w.t.Context(), &sqs.SendMessageBatchInput{QueueUrl: w.url, Entries: entries})
	switch {
	case err != nil:
		return code(err)
	case len(out.Failed) == 1 && len(entries) == 1:
		return *out.Failed[0].Code
	case len(out.Failed) > 0:
		return fmt.Sprintf("%d of %d", len(out.Failed), len(entries))
	}
	return "ok"
}

func (w *world) batch(bodies ...string) string {
	entries := []types.SendMessageBatchRequestEntry{}
	for i, body := range bodies {
		entries = append(entries, entry(fmt.Sprint(i), body))
	}
	return w.sendEntries(entries...)
}

func (w *world) take(most, seconds int32) []types.Message {
	out, err := w.ReceiveMessage(w.t.Context(), &sqs.ReceiveMessageInput{
		QueueUrl: w.url, MaxNumberOfMessages: most, WaitTimeSeconds: seconds, MessageAttributeNames: []string{"All"},
		MessageSystemAttributeNames: []types.MessageSystemAttributeName{"All"},
	})
	if err != nil {
		w.t.Error(err)
		return nil
	}
	return out.Messages
}

// receive returns the bodies and receive counts of messages that arrive within this many seconds.
func (w *world) receive(seconds int32) string {
	var told []string
	for _, m := range w.take(10, seconds) {
		told = append(told, *m.Body+" "+m.Attributes["ApproximateReceiveCount"])
	}
	if !w.fifo {
		slices.Sort(told)
	}
	return "[" + strings.Join(told, ",") + "]"
}

func (w *world) one() types.Message {
	all := w.take(1, 20) // ElasticMQ moves dead messages with a delay
	if len(all) == 0 {
		w.t.Fatal("there is no message")
	}
	return all[0]
}

func (w *world) handle() *string { return w.one().ReceiptHandle }

// bare returns how many attributes a message has if none were requested.
func (w *world) bare() string {
	out, err := w.ReceiveMessage(w.t.Context(), &sqs.ReceiveMessageInput{QueueUrl: w.url, WaitTimeSeconds: 20})
	if err != nil || len(out.Messages) != 1 {
		w.t.Fatal(err, "no message")
	}
	return fmt.Sprint(len(out.Messages[0].Attributes), len(out.Messages[0].MessageAttributes))
}

func (w *world) remove(handle *string) string {
	out, err := w.DeleteMessageBatch(w.t.Context(), &sqs.DeleteMessageBatchInput{
		QueueUrl: w.url, Entries: []types.DeleteMessageBatchRequestEntry{{Id: ptr("1"), ReceiptHandle: handle}},
	})
	if err != nil {
		return code(err)
	}
	if len(out.Failed) > 0 {
		return "refused"
	}
	return "ok"
}

func (w *world) change(handle *string, seconds int32) string {
	out, err := w.ChangeMessageVisibilityBatch(w.t.Context(), &sqs.ChangeMessageVisibilityBatchInput{
		QueueUrl: w.url, Entries: []types.ChangeMessageVisibilityBatchRequestEntry{{Id: ptr("1"), ReceiptHandle: handle, VisibilityTimeout: seconds}},
	})
	if err != nil {
		return code(err)
	}
	if len(out.Failed) > 0 {
		return "refused"
	}
	return "ok"
}

// count returns how many messages are visible and in flight.
func (w *world) count() string {
	out, err := w.GetQueueAttributes(w.t.Context(),
		&sqs.GetQueueAttributesInput{QueueUrl: w.url, AttributeNames: []types.QueueAttributeName{"All"}})
	if err != nil {
		w.t.Fatal(err)
	}
	return out.Attributes["ApproximateNumberOfMessages"] + "+" + out.Attributes["ApproximateNumberOfMessagesNotVisible"]
}
