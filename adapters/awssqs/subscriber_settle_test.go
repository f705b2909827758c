package awssqs_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/awssqs"
	"github.com/txonce/txonce/adapters/awssqs/awssqstest"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/dedup/deduptest"
)

func TestDeletionsThatFailAreRepeated(t *testing.T) {
	for _, c := range []struct {
		name    string
		fault   awssqstest.EntryFault
		handled int // how often each message at the most
	}{
		{"refused for now", awssqstest.EntryFault{Code: "InternalError"}, 1},
		{"done, but reported as failed", awssqstest.EntryFault{Code: "InternalError", Done: true}, 1},
		{"the receipt handle is refused", awssqstest.EntryFault{Code: "ReceiptHandleIsInvalid", SenderFault: true}, 2},
		{"reported as done, but not", awssqstest.EntryFault{}, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				s := newStall(t, awssqstest.Config{Fault: func(call awssqstest.Call) (f awssqstest.Fault) {
					if call.Operation == "DeleteMessageBatch" && call.Nth <= 3 {
						f.Entries = map[int]awssqstest.EntryFault{0: c.fault}
					}
					return f
				}}, false, map[string]string{"VisibilityTimeout": "8"})
				for i := range 20 {
					s.send("", fmt.Sprint(i))
				}
				s.start(awssqs.SubscriberConfig{}, nil)
				elapse(time.Minute)
				s.stopped()
				s.left(0)
				for i := range 20 {
					if n := s.times(fmt.Sprint(i)); n < 1 || n > c.handled {
						t.Errorf("message %d was handled %d times", i, n)
					}
				}
			})
		})
	}
}

func TestADeletionLostAfterTheCommitMakesADuplicateThatIsDeleted(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		db := deduptest.NewDatabase()
		c, err := consumer.New(consumer.Config[*deduptest.Tx]{
			Name: "billing", Store: consumertest.NewStoreOn(db), Key: func(m *consumer.Message) (string,
				error,
			) {
				return string(m.Payload), nil
			},
			Handle: func(_ context.Context, tx *deduptest.Tx,
				m *consumer.Message,
			) error {
				return tx.Add(string(m.Payload))
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		s := newStall(t, awssqstest.Config{}, false, map[string]string{"VisibilityTimeout": "8"})
		s.SetFault(func(call awssqstest.Call) (f awssqstest.Fault) {
			if call.Operation == "DeleteMessageBatch" {
				f.Before = awssqstest.ErrConnection
			}
			return f
		})
		s.send("", "a", "b")
		s.start(awssqs.SubscriberConfig{Processor: c}, nil)
		elapse(30 * time.Second)
		if db.Count("a") != 1 {
			t.Errorf("a has %d effects", db.Count("a"))
		}
		s.left(2)
		s.SetFault(nil)
		elapse(time.Minute)
		s.stopped()
		s.left(0)
		if a, b := db.Count("a"), db.Count("b"); a != 1 || b != 1 {
			t.Errorf("a has %d effects, b has %d", a, b)
		}
	})
}

func TestRetryAfterIsKeptBySQS(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newStall(t, awssqstest.Config{}, false, nil)
		s.send("", "a", "b")
		var at []time.Time
		var attempts []int
		s.start(awssqs.SubscriberConfig{}, func(_ context.Context, msg *consumer.Message) error {
			if string(msg.Payload) == "b" {
				return nil
			}
			at, attempts = append(at, time.Now()), append(attempts, msg.Attempt)
			switch len(at) {
			case 1:
				return &consumer.RetryError{Err: errNotYet, After: 1500 * time.Millisecond}
			case 2:
				return &consumer.RetryError{Err: errNotYet, After: 3 * time.Hour, Held: true}
			case 3:
				return &consumer.RetryError{Err: errNotYet, After: 24 * time.Hour}
			}
			return nil
		})
		elapse(30 * time.Hour)
		s.stopped()
		s.left(0)
		if len(at) != 4 {
			t.Fatalf("handled %d times", len(at))
		}
		for i, want := range []time.Duration{2 * time.Second, 3 * time.Hour, 12*time.Hour - 30*time.Second} {
			if gap := at[i+1].Sub(at[i]); gap < want || gap > want+time.Second {
				t.Errorf("delivered again after %v; want %v", gap, want)
			}
		}
		if !slices.Equal(attempts, []int{1, 2, 2, 3}) {
			t.Errorf("attempts %v; the uncounted deferral must not count", attempts)
		}
		if n := s.times("b"); n != 1 {
			t.Errorf("b was handled %d times", n)
		}
	})
}

func TestUncountedDeferralsAreNoReceives(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newStall(t, awssqstest.Config{}, false, nil)
		s.send("", "a")
		s.start(awssqs.SubscriberConfig{}, func(context.Context, *consumer.Message) error {
			return &consumer.RetryError{Err: errNotYet, After: 10 * time.Second, Held: true}
		})
		elapse(time.Hour + 5*time.Second) // between two
		if got, n := s.Stored(s.name)[0].Received, s.times("a"); got != 1 || n < 300 {
			t.Errorf("received %d times, handled %d times", got, n)
		}
		s.stopped()
		if at := s.Stored(s.name)[0].VisibleAt; time.Until(at) > 0 {
			t.Errorf("what waited was not given back: visible in %v", time.Until(at))
		}
	})
}

func TestAFailureHoldsBackItsGroupOnly(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newStall(t, awssqstest.Config{}, true, nil)
		s.send("a", "a1", "a2", "a3", "a4")
		s.send("b", "b1", "b2", "b3")
		failures := 0
		s.start(awssqs.SubscriberConfig{}, func(_ context.Context, msg *consumer.Message) error {
			if string(msg.Payload) == "a2" && failures < 2 {
				failures++
				return &consumer.RetryError{Err: errNotYet, After: 5 * time.Second}
			}
			return nil
		})
		elapse(time.Second)
		if n := s.times("b3"); n != 1 {
			t.Errorf("b3 was handled %d times behind a failure of another group", n)
		}
		elapse(time.Minute)
		s.stopped()
		s.left(0)
		a := slices.DeleteFunc(s.order, func(body string) bool { return body[0] != 'a' })
		if got := strings.Join(a, " "); got != "a1 a2 a2 a2 a3 a4" {
			t.Errorf("handled in the order %s", got)
		}
	})
}

func TestAGroupKeepsItsOrderWhenADeletionFails(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newStall(t, awssqstest.Config{Fault: func(call awssqstest.Call) (f awssqstest.Fault) {
			if call.Operation == "DeleteMessageBatch" && call.Nth <= 40 {
				f.Before = awssqstest.ErrConnection
			}
			return f
		}}, true, map[string]string{"VisibilityTimeout": "4"})
		s.send("a", "a1", "a2", "a3")
		s.start(awssqs.SubscriberConfig{}, nil)
		elapse(10 * time.Minute)
		s.stopped()
		s.left(0)
		first := map[string]bool{}
		var order []string
		for _, body := range s.order {
			if !first[body] {
				first[body] = true
				order = append(order, body)
			}
		}
		if got := strings.Join(order, " "); got != "a1 a2 a3" {
			t.Errorf("first handled in the order %s", got)
		}
	})
}

func TestAThousandMessagesAreGivenBack(t *testing.T) {
	for _, fifo := range []bool{false, true} {
		t.Run(fmt.Sprint("fifo ", fifo), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				s := newStall(t, awssqstest.Config{}, fifo, nil)
				for i := range 1000 {
					s.send(fmt.Sprint("g", i%100), fmt.Sprint(i))
				}
				s.start(awssqs.SubscriberConfig{MaxUnfinished: 1000, Concurrency: 2}, func(context.Context, *consumer.Message) error {
					elapse(time.Second)
					return nil
				})
				elapse(10*time.Second + time.Millisecond)
				began := time.Now()
				s.stopped()
				if took := time.Since(began); took > 2*time.Second {
					t.Errorf("the end took %v, a handler takes 1 s", took)
				}
				left := s.Stored(s.name)
				if len(left)+len(s.handled) != 1000 {
					t.Errorf("%d were handled, %d are left", len(s.handled), len(left))
				}
				for _, m := range left {
					if s.times(m.Body) != 0 || m.VisibleAt.After(time.Now()) {
						t.Fatalf("%s was handled %d times, and is visible in %v", m.Body, s.times(m.Body),
							time.Until(m.VisibleAt))
					}
				}
				s.start(awssqs.SubscriberConfig{}, nil)
				elapse(time.Minute)
				s.stopped()
				s.left(0)
				last := map[int]int{}
				for _, body := range s.order {
					var i int
					fmt.Sscan(body, &i)
					if fifo && i < last[i%100] {
						t.Errorf("%d was handled after %d of its group", i, last[i%100])
					}
					last[i%100] = i
				}
			})
		})
	}
}
