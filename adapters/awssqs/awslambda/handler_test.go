package awslambda_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/txonce/txonce/adapters/awssqs"
	"github.com/txonce/txonce/adapters/awssqs/awslambda"
	"github.com/txonce/txonce/adapters/awssqs/awssqstest"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/dedup/deduptest"
)

func TestLogsWhereAProcessorPanics(t *testing.T) {
	var log bytes.Buffer
	panics := processor(func(context.Context, *consumer.Message) error { panic("a nil pointer or so") })
	for _, p := range []consumer.Processor{panics, batches{panics}} {
		answer, err := invoke(t.Context(), t, awslambda.Config{Processor: p, Logger: slog.New(slog.NewTextHandler(&log, nil))}, eventOf(record("a", "x", "orders", "", "")))
		if err != nil || answer != failures("a") {
			t.Errorf("answer %s, %v; want a to stay in the queue", answer, err)
		}
	}
	if strings.Count(log.String(), "a nil pointer or so") != 2 || strings.Count(log.String(), "handler_test.go") < 2 {
		t.Errorf("log %s; want the panic and its stack, twice", log.String())
	}
}

func TestNamesWhatFailed(t *testing.T) {
	retry := &consumer.RetryError{Err: errors.New("later")}
	for _, tt := range []struct {
		name, event, want string
		verdicts          map[string]error
		handled           []string
	}{
		{
			name:  "all is done",
			event: eventOf(record("1", "a", "orders", "", ""), record("2", "b", "orders", "", "")),
			want:  failures(), handled: []string{"a", "b"},
		},
		{
			name: "one of a standard queue",
			event: eventOf(record("1", "a", "orders", "", ""), record("2", "b", "orders", "", ""),
				record("3", "c", "orders", "", "")),
			verdicts: map[string]error{"b": retry}, want: failures("2"), handled: []string{"a", "b", "c"},
		},
		{
			name:     "one that the Processor rejects stays too",
			event:    eventOf(record("1", "a", "orders", "", ""), record("2", "b", "orders", "", "")),
			verdicts: map[string]error{"a": errors.New("given up")}, want: failures("1"), handled: []string{"a", "b"},
		},
		{
			name: "a group of a fifo queue stops",
			event: eventOf(record("1", "a1", "orders.fifo", "a", ""), record("2", "b1", "orders.fifo", "b", ""),
				record("3", "a2", "orders.fifo", "a", ""), record("4", "b2", "orders.fifo", "b", ""),
				record("5", "a3", "orders.fifo", "a", "")),
			verdicts: map[string]error{"a1": retry}, want: failures("1", "3", "5"), handled: []string{"a1", "b1", "b2"},
		},
		{
			name:     "a tenant of a standard queue does not",
			event:    eventOf(record("1", "a1", "orders", "a", ""), record("2", "a2", "orders", "a", "")),
			verdicts: map[string]error{"a1": retry}, want: failures("1"), handled: []string{"a1", "a2"},
		},
		{
			name: "a record that cannot be read",
			event: eventOf(record("1", "a", "orders", "", ""),
				record("2", "b", "orders", "", `"x":{"dataType":"Binary","binaryValue":"no base64!"}`),
				record("3", "c", "orders", "", "")),
			want: failures("2"), handled: []string{"a", "c"},
		},
		{
			name: "on a fifo queue nothing passes what cannot be read",
			event: eventOf(record("1", "a1", "orders.fifo", "a", ""),
				record("2", "b1", "orders.fifo", "b", `"x":7`), record("3", "b2", "orders.fifo", "b", "")),
			want: failures("2", "3"), handled: []string{"a1"},
		},
		{
			name:  "a record of another type",
			event: eventOf(`{"messageId":"1","body":7,"eventSource":"aws:sqs"}`, record("2", "b", "orders", "", "")),
			want:  failures("1"), handled: []string{"b"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var handled []string
			p := processor(func(_ context.Context, m *consumer.Message) error {
				handled = append(handled, string(m.Payload))
				return tt.verdicts[string(m.Payload)]
			})
			got, err := invoke(t.Context(), t, awslambda.Config{Processor: p}, tt.event)
			if err != nil || got != tt.want {
				t.Errorf("answer %s, %v; want %s", got, err, tt.want)
			}
			if !slices.Equal(handled, tt.handled) {
				t.Errorf("handled %v, want %v", handled, tt.handled)
			}
		})
	}
}

// An error of the function keeps every message.
func TestKeepsAllWhereItCannotNameThem(t *testing.T) {
	for name, event := range map[string]string{
		"no records":         `{}`,
		"another event":      `{"version":"2.0","rawPath":"/orders"}`,
		"another source":     `{"Records":[{"messageId":"1","eventSource":"aws:kinesis"}]}`,
		"no messageId":       eventOf(record("1", "a", "orders", "", ""), `{"body":"x","eventSource":"aws:sqs"}`),
		"a record that is 7": eventOf(record("1", "a", "orders", "", ""), `7`),
		"null":               eventOf(`null`),
	} {
		t.Run(name, func(t *testing.T) {
			p := processor(func(context.Context, *consumer.Message) error { t.Error("a message was handled"); return nil })
			if got, err := invoke(t.Context(), t, awslambda.Config{Processor: p}, event); err == nil {
				t.Errorf("answer %s and no error", got)
			}
		})
	}
}

func TestMessage(t *testing.T) {
	var got *consumer.Message
	p := batches{func(_ context.Context, m *consumer.Message) error { got = m; return nil }}
	event := eventOf(record("m-1", "aGVsbG8=", "orders.fifo", "customer-7",
		`"txonce-key":{"stringValue":"customer-7","dataType":"String","stringListValues":[],"binaryListValues":[]},`+
			`"txonce-encoding":{"stringValue":"base64","dataType":"String"},"trace":{"binaryValue":"AAEC","dataType":"Binary"},"txonce-id":{"stringValue":"o-1","dataType":"String"}`))
	if _, err := invoke(t.Context(), t, awslambda.Config{Processor: p}, event); err != nil {
		t.Fatal(err)
	}
	got.Raw = nil
	want := &consumer.Message{
		Topic: "orders.fifo", OrderingKey: "customer-7", Position: "orders.fifo/m-1", Payload: []byte("hello"),
		Headers: map[string]string{"trace": "\x00\x01\x02", "txonce-id": "o-1"}, Time: time.UnixMilli(1545082649183),
		Attempt: 1,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("message (-want +got):\n%s", diff)
	}
}

func TestDeadline(t *testing.T) {
	event := eventOf(record("1", "quick", "orders", "", ""), record("2", "slow", "orders", "", ""),
		record("3", "never", "orders", "", ""))
	for name, obedient := range map[string]bool{
		"a handler that ends with its context": true,
		"a handler that does not":              false,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				let := make(chan struct{})
				p := processor(func(ctx context.Context, m *consumer.Message) error {
					switch string(m.Payload) {
					case "slow":
						if !obedient {
							<-let
						}
						<-ctx.Done()
						return &consumer.RetryError{Err: ctx.Err(), Held: true}
					case "never":
						t.Error("a message was begun when the time was over")
					}
					return nil
				})
				began := time.Now()
				got, err := invoke(ctx, t, awslambda.Config{Processor: p, Margin: 4 * time.Second}, event)
				if err != nil || got != failures("2", "3") {
					t.Errorf("answer %s, %v; want 2 and 3", got, err)
				}
				want := 26 * time.Second
				if !obedient {
					want = 28 * time.Second
				}
				if took := time.Since(began); took != want {
					t.Errorf("it took %v of 30 s, want %v", took, want)
				}
				close(let)
			})
		})
	}
}

// With a Client, failed messages come back when the Processor asks for it, a group as a whole.
func TestDefersThroughTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := awssqstest.NewServer(awssqstest.Config{})
		queue := "orders.fifo"
		created, err := server.CreateQueue(t.Context(), &sqs.CreateQueueInput{
			QueueName: &queue, Attributes: map[string]string{"FifoQueue": "true", "VisibilityTimeout": "600"},
		})
		if err != nil {
			t.Fatal(err)
		}
		url := *created.QueueUrl
		for i, group := range []string{"a", "a", "b", "c"} {
			id, body := fmt.Sprint("id-", i), fmt.Sprint(group, i)
			if _, err := server.SendMessage(t.Context(),
				&sqs.SendMessageInput{
					QueueUrl: &url, MessageBody: &body, MessageGroupId: &group,
					MessageDeduplicationId: &id,
				}); err != nil {
				t.Fatal(err)
			}
		}
		verdicts := map[string]error{
			"a0": consumer.RetryAfter(errors.New("later"), 4500*time.Millisecond),
			"b2": errors.New("rejected"),
		}
		h, err := awslambda.New(awslambda.Config{
			Client: server, Logger: slog.New(slog.DiscardHandler),
			Processor: batches{func(_ context.Context, m *consumer.Message) error {
				if m.OrderingKey == "a" && verdicts["a0"] != nil {
					if string(m.Payload) == "a1" { // it has to come back with the first of its group all the same
						return consumer.RetryAfter(errors.New("much later"), 100*time.Second)
					}
					return verdicts["a0"]
				}
				return verdicts[string(m.Payload)]
			}},
		})
		if err != nil {
			t.Fatal(err)
		}
		// poll does what Lambda does: it receives, invokes, and deletes what the answer does not name.
		poll := func(want string) {
			t.Helper()
			got, err := server.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{
				QueueUrl: &url, MaxNumberOfMessages: 10, WaitTimeSeconds: 20, MessageAttributeNames: []string{"All"},
				MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll},
			})
			if err != nil {
				t.Fatal(err)
			}
			event := awslambda.Event{}
			bodies := map[string]string{}
			for _, m := range got.Messages {
				bodies[*m.MessageId] = *m.Body
				event.Records = append(event.Records, awslambda.Record{
					MessageID: *m.MessageId, ReceiptHandle: *m.ReceiptHandle, Body: *m.Body, Attributes: m.Attributes,
					EventSource: "aws:sqs", EventSourceARN: "arn:aws:sqs:test:123456789012:" + queue,
				})
			}
			response, err := h.Handle(t.Context(), event)
			if err != nil {
				t.Fatal(err)
			}
			var failed []string
			for _, f := range response.BatchItemFailures {
				failed = append(failed, bodies[f.ItemIdentifier])
			}
			if strings.Join(failed, " ") != want {
				t.Errorf("failed: %v, want %s", failed, want)
			}
			for _, m := range got.Messages {
				if slices.Contains(failed, *m.Body) {
					continue
				}
				if _, err := server.DeleteMessage(t.Context(),
					&sqs.DeleteMessageInput{QueueUrl: &url, ReceiptHandle: m.ReceiptHandle}); err != nil {
					t.Fatal(err)
				}
			}
		}
		began := time.Now()
		poll("a0 a1 b2")
		delete(verdicts, "a0")
		poll("")
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("group a came back after %v, want 5 s: 4.5 in whole seconds", took)
		}
		for _, m := range server.Stored(queue) {
			if m.Body != "b2" || m.VisibleAt.Sub(began) != 600*time.Second {
				t.Errorf("%s is in the queue, visible after %v", m.Body, m.VisibleAt.Sub(began))
			}
		}
	})
}

// All together: a Consumer suppresses repeats, and parks poison messages and those that cannot be decoded, and the
// answer lets the queue delete them.
func TestWithConsumer(t *testing.T) {
	store := consumertest.NewStore()
	c, err := consumer.New(consumer.Config[*deduptest.Tx]{
		Name: "billing", Store: store, Key: consumer.HeaderKey("txonce-id"), Logger: slog.New(slog.DiscardHandler),
		Handle: func(_ context.Context, tx *deduptest.Tx, m *consumer.Message) error {
			if string(m.Payload) == "poison" {
				return consumer.Permanent(errors.New("poison"))
			}
			return tx.Add(string(m.Payload))
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	id := func(id string) string { return fmt.Sprintf(`"txonce-id":{"stringValue":%q,"dataType":"String"}`, id) }
	event := eventOf(record("1", "a", "orders", "", id("a")), record("2", "poison", "orders", "", id("p")),
		record("3", "a", "orders", "", id("a")),
		record("4", "?", "orders", "", id("?")+`,"txonce-encoding":{"stringValue":"base64","dataType":"String"}`))
	for range 3 {
		if got, err := invoke(t.Context(), t, awslambda.Config{Processor: c}, event); err != nil || got != failures() {
			t.Errorf("answer %s, %v; want no failures", got, err)
		}
	}
	if n := store.Database().Count("a"); n != 1 {
		t.Errorf("%d effects, want 1", n)
	}
	letters, err := store.DeadLetters(t.Context(), consumer.DeadLetterFilter{})
	if err != nil || len(letters) != 2 {
		t.Errorf("%d dead letters, %v; want 2: the poison, and what cannot be decoded", len(letters), err)
	}
}

func TestConfigRefusals(t *testing.T) {
	short, err := consumer.New(consumer.Config[*deduptest.Tx]{
		Name: "short", Store: consumertest.NewStore(), Key: consumer.MessageID, Window: 24 * time.Hour,
		Handle: func(context.Context, *deduptest.Tx, *consumer.Message) error { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	ok := processor(func(context.Context, *consumer.Message) error { return nil })
	for want, cfg := range map[string]awslambda.Config{
		"Processor is required": {},
		"Processor forgets":     {Processor: short},
		"Client is a nil":       {Processor: ok, Client: (*sqs.Client)(nil)},
		"Margin":                {Processor: ok, Margin: -1},
		"MaxBatch":              {Processor: ok, MaxBatch: -1},
		"AcceptedRisks":         {Processor: ok, AcceptedRisks: []awssqs.Risk{"x"}},
	} {
		if _, err := awslambda.New(cfg); err == nil || !strings.Contains(err.Error(), "Config."+want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if _, err := awslambda.New(awslambda.Config{Processor: short, AcceptedRisks: []awssqs.Risk{awssqs.RiskShortWindow}}); err != nil {
		t.Error(err)
	}
}

// Whatever Lambda passes, a message whose handling was not reported as done is named, or the whole invocation fails.
func FuzzEvent(f *testing.F) {
	f.Add([]byte(eventOf(record("1", "a", "orders", "", ""), record("2", "b", "orders.fifo", "g", `"x":{"dataType":"Binary","binaryValue":"!"}`))))
	f.Add([]byte(`{"Records":[null,7,{"messageId":{}}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var event awslambda.Event
		if json.Unmarshal(raw, &event) != nil {
			return
		}
		done := map[string]bool{}
		h, err := awslambda.New(awslambda.Config{Logger: slog.New(slog.DiscardHandler), Processor: processor(func(_ context.Context, m *consumer.Message) error {
			done[m.Raw.(*awslambda.Record).MessageID] = true
			return nil
		})})
		if err != nil {
			t.Fatal(err)
		}
		response, err := h.Handle(t.Context(), event)
		if err != nil {
			return
		}
		named := map[string]bool{}
		for _, n := range response.BatchItemFailures {
			named[n.ItemIdentifier] = true
		}
		for _, r := range event.Records {
			if !done[r.MessageID] && !named[r.MessageID] {
				t.Errorf("record %q would be deleted unhandled", r.MessageID)
			}
		}
	})
}
