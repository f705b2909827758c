package awssqstest_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// behaviour is a case whose result is a text. It runs against the fake in a bubble and against ElasticMQ. Timeouts that
// must not pass too early are 10 s, because a busy machine may pause for seconds.
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
			name:       "a received message is invisible, then comes again",
			attributes: map[string]string{"VisibilityTimeout": "10"},
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
			name: "the same content arrives once", fifo: true,
			attributes: map[string]string{"ContentBasedDeduplication": "true"},
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
				return w.send("\x01", "", "") + " " + w.send("\ufffe", "", "") + " " + w.send("", "", "") + " " +
					w.batch("a", "\x00", "c") + w.receive(1)
			},
			want:      "InvalidMessageContents InvalidMessageContents MissingParameter 1 of 3[a 1,c 1]",
			elasticmq: "InvalidAttributeValue InvalidAttributeValue InvalidAttributeValue 1 of 3[a 1,c 1]",
			why:       "AWS documents InvalidMessageContents",
		},
		{
			name: "ten entries are the most, each with an id of its own",
			run: func(w *world) string {
				return w.batch(strings.Split("abcdefghijk", "")...) + " " + w.batch() + " " +
					w.sendEntries(entry("1", "a"), entry("1", "b")) + " " + w.sendEntries(entry("#", "a"))
			},
			want:      "TooManyEntriesInBatchRequest EmptyBatchRequest BatchEntryIdsNotDistinct InvalidBatchEntryId",
			elasticmq: "TooManyEntriesInBatchRequest ok BatchEntryIdsNotDistinct ok",
			why:       "AWS documents these errors",
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
			want:      "InvalidParameterValue InvalidParameterValue InvalidParameterValue InvalidParameterValue",
			elasticmq: "InvalidAttributeValue ok ok InvalidAttributeValue",
			why:       "AWS documents which names are legal",
		},
		{
			name: "attributes come back as they were, when asked for",
			run: func(w *world) string {
				e := entry("1", "a")
				e.MessageAttributes["text"], e.MessageAttributes["bytes"] = text(" t\n"),
					types.MessageAttributeValue{DataType: ptr("Binary"), BinaryValue: []byte{0, 255}}
				w.sendEntries(e)
				m := w.one()
				return fmt.Sprintf("%q %v", *m.MessageAttributes["text"].StringValue,
					m.MessageAttributes["bytes"].BinaryValue) + w.change(m.ReceiptHandle, 0) + w.bare()
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
			want: "trueNonExistentQueue", elasticmq: "trueQueueDoesNotExist",
			why: "the SDK reads the older protocol's code, which AWS sends beside the newer one",
		},
		{
			name: "more receives than maxReceiveCount end in the dead-letter queue",
			run: func(w *world) string {
				dead, name := *w.url, fmt.Sprintf("txonce-redrive-%x", rand.Uint64())
				arn, err := w.GetQueueAttributes(w.t.Context(),
					&sqs.GetQueueAttributesInput{
						QueueUrl:       &dead,
						AttributeNames: []types.QueueAttributeName{"QueueArn"},
					})
				if err != nil {
					w.t.Fatal(err)
				}
				made, err := w.CreateQueue(w.t.Context(), &sqs.CreateQueueInput{QueueName: &name, Attributes: map[string]string{
					"RedrivePolicy": fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":"2"}`,
						arn.Attributes["QueueArn"]),
				}})
				if err != nil {
					w.t.Fatal(err)
				}
				defer w.DeleteQueue(context.WithoutCancel(w.t.Context()),
					&sqs.DeleteQueueInput{QueueUrl: made.QueueUrl})
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

func ptr[T any](v T) *T { return &v }

func text(v string) types.MessageAttributeValue {
	return types.MessageAttributeValue{DataType: ptr("String"), StringValue: &v}
}

func entry(id, body string) types.SendMessageBatchRequestEntry {
	return types.SendMessageBatchRequestEntry{
		Id: &id, MessageBody: &body,
		MessageAttributes: map[string]types.MessageAttributeValue{},
	}
}
