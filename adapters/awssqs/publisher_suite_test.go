package awssqs_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/txonce/txonce/adapters/awssqs"
	"github.com/txonce/txonce/adapters/awssqs/awssqstest"
	"github.com/txonce/txonce/internal/test/brokers/testsqs"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/outboxtest"
)

// creator is an API that makes queues too. *sqs.Client and *awssqstest.Server are.
type creator interface {
	awssqs.API
	CreateQueue(context.Context, *sqs.CreateQueueInput, ...func(*sqs.Options)) (*sqs.CreateQueueOutput, error)
	DeleteQueue(context.Context, *sqs.DeleteQueueInput, ...func(*sqs.Options)) (*sqs.DeleteQueueOutput, error)
}

// makeQueue creates a queue with a random name, for as long as the test runs.
func makeQueue(t *testing.T, api creator, fifo bool, attributes map[string]string) (name, url string) {
	t.Helper()
	name = fmt.Sprintf("txonce-pub-%016x", rand.Uint64())
	attributes = maps.Clone(attributes)
	if fifo {
		name += ".fifo"
		if attributes == nil {
			attributes = map[string]string{}
		}
		attributes["FifoQueue"] = "true"
	}
	out, err := api.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: &name, Attributes: attributes})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := api.DeleteQueue(context.WithoutCancel(t.Context()),
			&sqs.DeleteQueueInput{QueueUrl: out.QueueUrl}); err != nil {
			t.Error(err)
		}
	})
	return name, *out.QueueUrl
}

// readQueue receives and deletes until n messages are there, and nothing more comes for a second.
func readQueue(t *testing.T, api awssqs.API, queue string, n int) (msgs []outbox.Message) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	at, err := api.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: &queue})
	if err != nil {
		t.Fatal(err)
	}
	for {
		got, err := api.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
			QueueUrl: at.QueueUrl, MaxNumberOfMessages: 10, WaitTimeSeconds: 1, MessageAttributeNames: []string{"All"},
			MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll},
		})
		if err != nil {
			t.Fatalf("read %s: %v, after %d messages of %d", queue, err, len(msgs), n)
		}
		if len(got.Messages) == 0 && (len(msgs) >= n || ctx.Err() != nil) {
			return msgs
		}
		remove := &sqs.DeleteMessageBatchInput{QueueUrl: at.QueueUrl}
		for i, m := range got.Messages {
			key, payload, headers, err := awssqs.Decode(*m.Body, m.MessageAttributes)
			if err != nil {
				t.Errorf("message %s: %v", *m.MessageId, err)
			}
			msgs = append(msgs, outbox.Message{Topic: queue, OrderingKey: key, Payload: payload, Headers: headers})
			id := fmt.Sprint(i)
			remove.Entries = append(remove.Entries,
				types.DeleteMessageBatchRequestEntry{Id: &id, ReceiptHandle: m.ReceiptHandle})
		}
		if len(remove.Entries) == 0 {
			continue
		}
		if out, err := api.DeleteMessageBatch(ctx, remove); err != nil || len(out.Failed) > 0 {
			t.Fatalf("delete from %s: %v %v", queue, err, out)
		}
	}
}

// outages lets a case take a server away.
type outages struct {
	pause func() (resume func())
	stop  func() (start func())
}

// publisherHarness is for queues of one kind on the server that connect gives each case.
func publisherHarness(fifo bool, connect func(t *testing.T) (creator, outages)) outboxtest.PublisherHarness {
	var api creator // of the case that runs
	var away outages
	read := map[string][]outbox.Message{} // what was read is deleted, and Read lists everything
	h := outboxtest.PublisherHarness{
		New: func(t *testing.T) outbox.Publisher {
			api, away = connect(t)
			p, err := awssqs.NewPublisher(awssqs.PublisherConfig{Client: api})
			if err != nil {
				t.Fatal(err)
			}
			return p
		},
		Topic: func(t *testing.T) string {
			name, _ := makeQueue(t, api, fifo, nil)
			return name
		},
		Read: func(t *testing.T, topic string, n int) []outbox.Message {
			read[topic] = append(read[topic], readQueue(t, api, topic, n-len(read[topic]))...)
			return read[topic]
		},
		Oversize: func(m outbox.Message) outbox.Message {
			m.Payload = make([]byte, 1<<20)
			return m
		},
		Unroutable: func(*testing.T) string {
			if fifo {
				return "txonce-pub-missing.fifo"
			}
			return "txonce-pub-missing"
		},
		Unsafe: []outboxtest.Unsafe{{Setting: "DisableMessageChecksumValidation", New: func(*testing.T) error {
			_, err := awssqs.NewPublisher(awssqs.PublisherConfig{Client: sqs.New(sqs.Options{DisableMessageChecksumValidation: true})})
			return err
		}}},
		Pause: func(*testing.T) func() { return away.pause() },
		Stop:  func(*testing.T) func() { return away.stop() },
	}
	if !fifo {
		h.Features.DoesNotApply = map[string]string{
			"order within a key over successive calls": "a standard queue promises no order; FIFO queues do, and pass this case",
		}
	}
	return h
}

// TestPublisher runs the suite for both kinds of queues.
func TestPublisher(t *testing.T) {
	t.Parallel() // it waits for ElasticMQ
	for kind, fifo := range map[string]bool{"standard": false, "fifo": true} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			t.Run("fake", func(t *testing.T) {
				h := publisherHarness(fifo, func(*testing.T) (creator, outages) {
					s := awssqstest.NewServer(awssqstest.Config{Shuffle: true})
					return s, outages{pause: s.Pause, stop: func() func() { s.Down(); return s.Up }}
				})
				h.Run = func(t *testing.T, c func(t *testing.T)) { synctest.Test(t, c) }
				outboxtest.TestPublisher(t, h)
			})
			if testing.Short() {
				return
			}
			t.Run("elasticmq", func(t *testing.T) {
				outboxtest.TestPublisher(t, publisherHarness(fifo, func(t *testing.T) (creator, outages) {
					client, g := through(t, testsqs.Server(t))
					return client, outages{pause: g.hush, stop: g.close}
				}))
			})
		})
	}
}
