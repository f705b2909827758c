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
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"

	"github.com/txonce/txonce/adapters/awssqs"
	"github.com/txonce/txonce/adapters/awssqs/awssqstest"
	"github.com/txonce/txonce/internal/test/testdb"
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

// behaviour is a case whose result is a text. It runs against the fake in a bubble and against ElasticMQ. Timeouts that must not
// pass too early are 10 s, because a busy machine may pause for seconds.
type behaviour struct {
	name       string
	fifo       bool
	attributes map[string]string
	run        func(w *world) string
	want       string // the fake's result, as AWS documents it
	elasticmq  string // ElasticMQ's result, if it differs
	why        string // why the fake does not follow ElasticMQ
}

func behaviours() []behaviour {
	return []behaviour{
		{
			name: "a received message is invisible, then comes again", attributes: map[string]string{"VisibilityTimeout": "10"},
			run: func(w *world) string {
				w.send("a", "", "")
				return w.receive(0) + w.receive(0) + w.receive(20) + w.receive(20)
			},
			want: "[a 1][][a 2][a 3]",
		},
		{
			name: "a deleted message does not come again", attributes: map[string]string{"VisibilityTimeout": "1"},
			run: func(w *world) string {
				w.send("a", "", "")
				return w.remove(w.handle()) + w.receive(2)
			},
			want: "ok[]",
		},
		{
			name: "long polling ends with the first arrival",
			run: func(w *world) string {
				began, sent := time.Now(), make(chan struct{})
				go func() {
					defer close(sent)
					<-time.After(300 * time.Millisecond)
					w.send("a", "", "")
				}()
				got := w.receive(20)
				early := time.Since(began) < 20*time.Second
				<-sent
				return fmt.Sprint(got, early)
			},
			want: "[a 1]true",
		},
		{
			name: "a visibility of zero gives a message back at once",
			run: func(w *world) string {
				w.send("a", "", "")
				return w.change(w.handle(), 0) + w.receive(10)
			},
			want: "ok[a 2]",
		},
		{
			name: "a longer visibility keeps a message", attributes: map[string]string{"VisibilityTimeout": "1"},
			run: func(w *world) string {
				w.send("a", "", "")
				return w.change(w.handle(), 12) + w.receive(2) + w.receive(20)
			},
			want: "ok[][a 2]",
		},
		{
			name: "changing the visibility of a deleted message fails",
			run: func(w *world) string {
				w.send("a", "", "")
				h := w.handle()
				return w.remove(h) + w.change(h, 10)
			},
			want: "okrefused",
		},
		{
			name: "deleting twice succeeds",
			run: func(w *world) string {
				w.send("a", "", "")
				h := w.handle()
				return w.remove(h) + w.remove(h)
			},
			want: "okok", elasticmq: "okrefused",
			why: "AWS documents deletion as idempotent",
		},
		{
			name: "a handle whose message was received again deletes nothing",
			run: func(w *world) string {
				w.send("a", "", "")
				h := w.handle()
				w.change(h, 0)
				return w.receive(1) + w.remove(h) + w.count()
			},
			want: "[a 2]ok0+1", elasticmq: "[a 2]refused0+1",
			why: "AWS documents that the request succeeds, but the message is not deleted",
		},
		{
			name: "a handle that is none",
			run:  func(w *world) string { h := "nonsense"; return w.remove(&h) + w.change(&h, 5) },
			want: "refusedrefused",
		},
		{
			name: "a group stops while one of its messages is in flight", fifo: true,
			run: func(w *world) string {
				for i, body := range []string{"a1", "b1", "a2", "b2"} {
					w.send(body, body[:1], fmt.Sprint(i))
				}
				first := w.one()
				second := w.one()
				third := w.receive(0)
				return *first.Body + *second.Body + third + w.remove(first.ReceiptHandle) + w.receive(1)
			},
			want: "a1b1[]ok[a2 1]",
		},
		{
			name: "a message given back is the next of its group", fifo: true,
			run: func(w *world) string {
				w.send("a1", "a", "1")
				w.send("a2", "a", "2")
				return w.change(w.handle(), 0) + w.receive(1)
			},
			want: "ok[a1 2,a2 1]",
		},
		{
			name: "one receive takes several of a group, in order", fifo: true,
			run: func(w *world) string {
				for i := range 5 {
					w.send(fmt.Sprint("a", i), "a", fmt.Sprint(i))
				}
				return w.receive(1)
			},
			want: "[a0 1,a1 1,a2 1,a3 1,a4 1]",
		},
		{
			name: "the same deduplication id arrives once", fifo: true,
			run: func(w *world) string {
				return w.send("a", "a", "1") + w.send("b", "b", "1") + w.send("c", "c", "2") + w.receive(1)
			},
			want: "okokok[a 1,c 1]",
		},
		{
			name: "the same content arrives once", fifo: true, attributes: map[string]string{"ContentBasedDeduplication": "true"},
			run: func(w *world) string {
				return w.send("a", "a", "") + w.send("a", "b", "") + w.send("b", "a", "") + w.receive(1)
			},
			want: "okokok[a 1,b 1]",
		},
		{
			name: "a fifo queue wants a group and a deduplication id", fifo: true,
			run:  func(w *world) string { return w.send("a", "", "1") + w.send("a", "a", "") },
			want: "MissingParameterInvalidParameterValue",
		},
		{
			name: "a queue's delay", attributes: map[string]string{"DelaySeconds": "10"},
			run: func(w *world) string {
				w.send("a", "", "")
				return w.receive(0) + w.receive(20)
			},
			want: "[][a 1]",
		},
		{
			name: "illegal characters, an empty body, and one of ten entries",
			run: func(w *world) string {
				return w.send("\x01", "", "") + " " + w.send("\ufffe", "", "") + " " + w.send("", "", "") + " " + w.batch("a", "\x00", "c") + w.receive(1)
			},
			want:      "InvalidMessageContents InvalidMessageContents MissingParameter 1 of 3[a 1,c 1]",
			elasticmq: "InvalidAttributeValue InvalidAttributeValue InvalidAttributeValue 1 of 3[a 1,c 1]", why: "AWS documents InvalidMessageContents",
		},
		{
			name: "ten entries are the most, each with an id of its own",
			run: func(w *world) string {
				return w.batch(strings.Split("abcdefghijk", "")...) + " " + w.batch() + " " + w.sendEntries(entry("1", "a"), entry("1", "b")) + " " + w.sendEntries(entry("#", "a"))
			},
			want: "TooManyEntriesInBatchRequest EmptyBatchRequest BatchEntryIdsNotDistinct InvalidBatchEntryId", elasticmq: "TooManyEntriesInBatchRequest ok BatchEntryIdsNotDistinct ok",
			why: "AWS documents these errors",
		},
		{
			name: "ten attributes are the most, with legal names and values",
			run: func(w *world) string {
				eleven := entry("1", "a")
				for i := range 11 {
					eleven.MessageAttributes[fmt.Sprint("n", i)] = text("v")
				}
				var told []string
				for _, name := range []string{"AWS.x", "a b", "empty"} {
					e := entry("1", "a")
					e.MessageAttributes[name] = text(strings.TrimPrefix(name, "empty"))
					told = append(told, w.sendEntries(e))
				}
				return w.sendEntries(eleven) + " " + strings.Join(told, " ")
			},
			want: "InvalidParameterValue InvalidParameterValue InvalidParameterValue InvalidParameterValue", elasticmq: "InvalidAttributeValue ok ok InvalidAttributeValue",
			why: "AWS documents which names are legal",
		},
		{
			name: "attributes come back as they were, when asked for",
			run: func(w *world) string {
				e := entry("1", "a")
				e.MessageAttributes["text"], e.MessageAttributes["bytes"] = text(" t\n"), types.MessageAttributeValue{DataType: ptr("Binary"), BinaryValue: []byte{0, 255}}
				w.sendEntries(e)
				m := w.one()
				return fmt.Sprintf("%q %v", *m.MessageAttributes["text"].StringValue, m.MessageAttributes["bytes"].BinaryValue) + w.change(m.ReceiptHandle, 0) + w.bare()
			},
			want: `" t\n" [0 255]ok0 0`,
		},
		{
			name: "a queue that is not there",
			run: func(w *world) string {
				_, err := w.GetQueueUrl(w.t.Context(), &sqs.GetQueueUrlInput{QueueName: ptr("txonce-nowhere")})
				var none *types.QueueDoesNotExist
				there := *w.url
				w.url = ptr(there + "-gone")
				defer func() { w.url = &there }()
				return fmt.Sprint(errors.As(err, &none)) + w.send("a", "", "")
			},
			want: "trueNonExistentQueue", elasticmq: "trueQueueDoesNotExist", why: "the SDK reads the older protocol's code, which AWS sends beside the newer one",
		},
		{
			name: "more receives than maxReceiveCount end in the dead-letter queue",
			run: func(w *world) string {
				dead, name := *w.url, fmt.Sprintf("txonce-redrive-%x", rand.Uint64())
				arn, err := w.GetQueueAttributes(w.t.Context(), &sqs.GetQueueAttributesInput{QueueUrl: &dead, AttributeNames: []types.QueueAttributeName{"QueueArn"}})
				if err != nil {
					w.t.Fatal(err)
				}
				made, err := w.CreateQueue(w.t.Context(), &sqs.CreateQueueInput{QueueName: &name, Attributes: map[string]string{
					"RedrivePolicy": fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":"2"}`, arn.Attributes["QueueArn"]),
				}})
				if err != nil {
					w.t.Fatal(err)
				}
				defer w.DeleteQueue(context.WithoutCancel(w.t.Context()), &sqs.DeleteQueueInput{QueueUrl: made.QueueUrl})
				w.url = made.QueueUrl
				defer func() { w.url = &dead }()
				w.send("a", "", "")
				told := w.change(w.handle(), 0) + w.change(w.handle(), 0) + w.receive(1)
				w.url = &dead
				return told + *w.one().Body
			},
			want: "okok[]a",
		},
	}
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
		api := testdb.SQS(t)
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

func ptr[T any](v T) *T { return &v }

func text(v string) types.MessageAttributeValue {
	return types.MessageAttributeValue{DataType: ptr("String"), StringValue: &v}
}

func entry(id, body string) types.SendMessageBatchRequestEntry {
	return types.SendMessageBatchRequestEntry{Id: &id, MessageBody: &body, MessageAttributes: map[string]types.MessageAttributeValue{}}
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
	out, err := w.GetQueueAttributes(w.t.Context(), &sqs.GetQueueAttributesInput{QueueUrl: w.url, AttributeNames: []types.QueueAttributeName{"All"}})
	if err != nil {
		w.t.Fatal(err)
	}
	return out.Attributes["ApproximateNumberOfMessages"] + "+" + out.Attributes["ApproximateNumberOfMessagesNotVisible"]
}
