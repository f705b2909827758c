package awssqs_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/txonce/txonce/adapters/awssqs"
	"github.com/txonce/txonce/adapters/awssqs/awssqstest"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/driver"
)

var errNotYet = errors.New("not yet")

func TestALongHandlerKeepsItsMessageAndThoseThatWait(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newStall(t, awssqstest.Config{}, false, map[string]string{"VisibilityTimeout": "8"})
		s.send("", "a", "b", "c")
		s.start(awssqs.SubscriberConfig{Concurrency: 1}, func(context.Context, *consumer.Message) error {
			elapse(time.Minute)
			return nil
		})
		elapse(4 * time.Minute)
		s.stopped()
		s.left(0)
		for _, body := range []string{"a", "b", "c"} {
			if n := s.times(body); n != 1 {
				t.Errorf("%s was handled %d times", body, n)
			}
		}
		if n := s.log.Count("level=WARN"); n != 0 {
			t.Errorf("%d warnings", n)
		}
	})
}

func TestSignsOfLifeComeInTime(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const visibility = 8 * time.Second
		var mu sync.Mutex
		var last, most time.Duration
		began := time.Now()
		s := newStall(t, awssqstest.Config{Fault: func(c awssqstest.Call) (f awssqstest.Fault) {
			if c.Operation == "ChangeMessageVisibilityBatch" {
				mu.Lock()
				defer mu.Unlock()
				most, last = max(most, time.Since(began)-last), time.Since(began)
			}
			return f
		}}, false, nil)
		s.send("", "a")
		s.start(awssqs.SubscriberConfig{VisibilityTimeout: visibility}, func(context.Context, *consumer.Message) error {
			elapse(time.Minute)
			return nil
		})
		elapse(59 * time.Second)
		mu.Lock()
		if last < 50*time.Second || most > visibility/2 {
			t.Errorf("the last sign of life was after %v, and %v passed between two; want no more than %v", last, most,
				visibility/2)
		}
		mu.Unlock()
		s.stopped()
	})
}

func TestALostMessageIsCancelledAndNotSettled(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer func(ctx context.Context) error
	}{
		{"the handler gives up", func(ctx context.Context) error { return &consumer.RetryError{Err: ctx.Err(), Held: true} }},
		{"the handler has committed", func(context.Context) error { return nil }},
		{"the handler fails", func(context.Context) error { return errNotYet }},
	} {
		for _, fifo := range []bool{false, true} {
			t.Run(c.name, func(t *testing.T) {
				inBubble(t, func(t *testing.T) {
					var lost, givenBack atomic.Int64
					s := newStall(t, awssqstest.Config{Fault: func(c awssqstest.Call) (f awssqstest.Fault) {
						if in, ok := c.Input.(*sqs.ChangeMessageVisibilityBatchInput); ok &&
							in.Entries[0].VisibilityTimeout == 0 {
							givenBack.Add(1) // SQS may take an old receipt handle, and end the hold of the other
						}
						return f
					}}, fifo, map[string]string{"VisibilityTimeout": "8"})
					running, cancelled := make(chan string, 1), make(chan error, 1)
					s.send("g", "a")
					// 1: it does not receive what it loses
					s.start(awssqs.SubscriberConfig{MaxUnfinished: 1, Trace: &driver.SourceTrace{Lost: func(context.Context, driver.SourceEvent) { lost.Add(1) }}},
						func(ctx context.Context, msg *consumer.Message) error {
							running <- receiptOf(msg)
							<-ctx.Done()
							cancelled <- context.Cause(ctx)
							return c.answer(ctx)
						})
					s.steal(<-running)
					other := s.takeOver()
					if err := <-cancelled; err == nil {
						t.Error("the handler was not cancelled")
					}
					elapse(time.Second)
					if deletes := s.Calls("DeleteMessageBatch"); deletes != 0 || givenBack.Load() != 0 ||
						lost.Load() != 1 {
						t.Errorf("%d deletions and %d returns by who has lost the message; %d told that it is lost",
							deletes, givenBack.Load(), lost.Load())
					}
					if at := s.Stored(s.name)[0].VisibleAt; time.Until(at) < 9*time.Minute {
						t.Errorf("the other's hold of 10 minutes ends in %v", time.Until(at))
					}
					if err := s.stop(); err != nil {
						t.Errorf("Run = %v", err)
					}
					if _, err := s.DeleteMessage(t.Context(),
						&sqs.DeleteMessageInput{QueueUrl: &s.url, ReceiptHandle: other.ReceiptHandle}); err != nil {
						t.Error(err)
					}
					s.left(0)
				})
			})
		}
	}
}

func TestAHoldThatSQSCannotBeToldOfIsLost(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newStall(t, awssqstest.Config{}, false, map[string]string{"VisibilityTimeout": "8"})
		s.send("", "a")
		cancelled := make(chan time.Duration, 10)
		s.start(awssqs.SubscriberConfig{}, func(ctx context.Context, _ *consumer.Message) error {
			if s.times("a") > 1 {
				return nil
			}
			began := time.Now()
			<-ctx.Done()
			cancelled <- time.Since(began)
			return &consumer.RetryError{Err: ctx.Err(), Held: true}
		})
		elapse(time.Second)
		s.Down()
		if after := <-cancelled; after < 6*time.Second || after > 8*time.Second {
			t.Errorf("cancelled after %v; the hold is of 8 s", after)
		}
		elapse(30 * time.Second)
		s.Up()
		elapse(time.Minute)
		s.stopped()
		s.left(0)
		if n := s.times("a"); n != 2 {
			t.Errorf("handled %d times", n)
		}
		if begun, ended := s.log.Count("trouble with SQS"), s.log.Count("SQS answers again"); begun != 2 || ended != 1 {
			// no visibility is changed any more
			t.Errorf("the outage of two operations began %d times in the log, and that of receiving ended %d times",
				begun, ended)
		}
	})
}

func TestNoMessageIsHeldLongerThanSQSAllows(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newStall(t, awssqstest.Config{}, false, map[string]string{"VisibilityTimeout": "600"})
		s.send("", "a")
		s.start(awssqs.SubscriberConfig{}, func(ctx context.Context, _ *consumer.Message) error {
			if s.times("a") > 1 {
				return nil
			}
			began := time.Now()
			<-ctx.Done()
			if after := time.Since(began); after < 12*time.Hour-time.Minute || after > 12*time.Hour {
				t.Errorf("cancelled after %v", after)
			}
			return &consumer.RetryError{Err: ctx.Err(), Held: true}
		})
		elapse(13 * time.Hour)
		s.stopped()
		s.left(0)
		if n := s.times("a"); n != 2 {
			t.Errorf("handled %d times", n)
		}
	})
}

// TestAMessageThatAZombieHasGoesToOthers: a handler that goes on with a lost message must not keep the message from a
// process that could handle it.
func TestAMessageThatAZombieHasGoesToOthers(t *testing.T) {
	for _, fifo := range []bool{false, true} {
		inBubble(t, func(t *testing.T) {
			s := newStall(t, awssqstest.Config{}, fifo, map[string]string{"VisibilityTimeout": "8"})
			running, finish := make(chan string, 10), make(chan struct{})
			s.send("g", "a", "b")
			s.start(awssqs.SubscriberConfig{MaxBatch: 1}, func(_ context.Context, msg *consumer.Message) error {
				if string(msg.Payload) == "a" {
					running <- receiptOf(msg)
					<-finish
				}
				return nil
			})
			elapse(time.Second)
			s.steal(<-running)
			elapse(10 * time.Minute)
			if n := s.times("a"); n != 1 {
				t.Errorf("fifo %v: handled %d times while the first is being handled", fifo, n)
			}
			if m := s.Stored(s.name)[0]; m.Received > 25 {
				t.Errorf("fifo %v: received %d times in 10 minutes", fifo, m.Received)
			}
			free := false
			for range 600 { // another process asks now and then
				out, err := s.ReceiveMessage(t.Context(),
					&sqs.ReceiveMessageInput{QueueUrl: &s.url, VisibilityTimeout: 1, WaitTimeSeconds: 20})
				if err != nil {
					t.Fatal(err)
				}
				if free = len(out.Messages) > 0; free {
					break
				}
			}
			if !free {
				t.Errorf("fifo %v: nobody else ever gets the message", fifo)
			}
			close(finish)
			elapse(time.Hour)
			s.stopped()
			s.left(0)
			if n := s.times("b"); n != 1 {
				t.Errorf("fifo %v: b was handled %d times", fifo, n)
			}
		})
	}
}
