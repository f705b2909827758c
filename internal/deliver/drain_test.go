package deliver_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/deliver"
)

func TestDrainFinishesWhatIsInWorkAndGivesBackTheRest(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, benchConfig{
			Config: deliver.Config{Concurrency: 2}, grace: time.Minute,
			process: func(ctx context.Context, _ *consumer.Message) error { <-time.After(time.Second); return ctx.Err() },
		})
		b.Add(delivery("a1", "a"), delivery("a2", "a"), delivery("b1", ""), delivery("c1", ""))
		synctest.Wait()
		b.drain()
		b.wants(map[string]error{"a1": nil, "b1": nil, "a2": deliver.ErrStopped, "c1": deliver.ErrStopped})
		if b.sequel[0] != "c1" || b.sequel[3] == "a1" {
			t.Errorf("settled in the order %v: c1 could go at once, a2 only behind a1", b.sequel)
		}
	})
}

func TestGraceEndsWithACancelledHandler(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, benchConfig{
			grace: 3 * time.Second,
			process: func(ctx context.Context, msg *consumer.Message) error {
				<-ctx.Done()
				return ctx.Err() // no RetryError: the answer of a Processor that knows nothing of them
			},
		})
		b.Add(delivery("a1", "a"), delivery("a2", "a"))
		synctest.Wait()
		began := time.Now()
		b.drain()
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("cancelled after %v", took)
		}
		b.wants(map[string]error{"a1": context.Canceled, "a2": context.Canceled})
	})
}

func TestAHandlerThatGoesOnIsAbandoned(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, benchConfig{
			Config: deliver.Config{Concurrency: 2}, grace: time.Second, exit: 2 * time.Second,
			process: func(context.Context, *consumer.Message) error { <-time.After(time.Hour); return nil },
		})
		b.Add(delivery("a1", "a"), delivery("a2", "a"), delivery("b1", ""))
		synctest.Wait()
		began := time.Now()
		if err := b.Drain(); !errors.Is(err, deliver.ErrAbandoned) {
			t.Errorf("Drain = %v", err)
		}
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("Drain took %v", took)
		}
		want := map[string]error{"a1": deliver.ErrAbandoned, "a2": deliver.ErrStopped, "b1": deliver.ErrAbandoned}
		b.wants(want)
		<-time.After(2 * time.Hour)
		b.wants(want) // its late answer counts for nothing
	})
}

func TestLoseCancelsTheHandler(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer func(ctx context.Context) error
	}{
		{"the handler is cancelled", context.Cause},
		{"the handler commits all the same", func(context.Context) error { return nil }},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				first := true
				b := newBench(t, benchConfig{
					Config: deliver.Config{MaxBatch: 2}, grace: time.Second,
					process: func(ctx context.Context, msg *consumer.Message) error {
						if msg.ID == "a1" {
							<-ctx.Done()
							if err := c.answer(ctx); err != nil {
								return uncountedError(err)
							}
						} else if msg.ID == "b1" && first {
							first = false
							if ctx.Err() != nil {
								return uncountedError(ctx.Err())
							}
						}
						return nil
					},
				})
				a1, a2 := delivery("a1", "a"), delivery("a2", "a")
				b.Add(a1, delivery("b1", ""), a2)
				synctest.Wait()
				b.Lose(a1)
				b.Lose(a1)
				synctest.Wait()
				b.wants(map[string]error{"a1": deliver.ErrLost, "b1": nil, "a2": deliver.ErrLost})
				b.Lose(a1) // settled: nothing happens
				b.drain()
			})
		})
	}
}

func uncountedError(err error) error { return &consumer.RetryError{Err: err, Held: true} }

func TestLoseOfWhatWaits(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, benchConfig{
			process: func(context.Context, *consumer.Message) error { <-time.After(time.Second); return nil },
		})
		a2 := delivery("a2", "a")
		b.Add(delivery("a1", "a"), a2, delivery("a3", "a"), delivery("b1", "b"))
		synctest.Wait()
		b.Lose(a2)
		<-time.After(time.Minute)
		b.drain()
		b.wants(map[string]error{"a1": nil, "a2": deliver.ErrLost, "a3": deliver.ErrLost, "b1": nil})
		b.began("a1", "b1")
	})
}

// A queue that was lost with its connection is delivered again on the next connection, while a handler of the lost one
// still runs.
func TestLoseHoldsBackNothingThatComesLater(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, benchConfig{
			process: func(_ context.Context, msg *consumer.Message) error {
				if msg.ID == "a1" {
					<-time.After(time.Second)
					return later(0)
				}
				return nil
			},
		})
		a1, a2 := delivery("a1", "a"), delivery("a2", "a")
		b.Add(a1, a2)
		synctest.Wait()
		b.Lose(a1)
		b.Lose(a2)
		b.Add(delivery("a1 again", "a"), delivery("a2 again", "a"))
		<-time.After(time.Minute)
		b.wants(map[string]error{"a1": deliver.ErrLost, "a2": deliver.ErrLost, "a1 again": nil, "a2 again": nil})
		b.drain()
		b.began("a1", "a1 again", "a2 again")
	})
}

func TestLoseOfWhatIsKept(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, benchConfig{
			Config: deliver.Config{MaxBatch: 2, Keep: func(*deliver.Delivery, *consumer.RetryError) bool { return true }},
			process: func(_ context.Context, msg *consumer.Message) error {
				return later(time.Second)
			},
		})
		a1 := delivery("a1", "a")
		b.Add(a1, delivery("a2", "a"))
		synctest.Wait()
		b.Lose(a1)
		<-time.After(time.Minute)
		b.wants(map[string]error{"a1": deliver.ErrLost, "a2": deliver.ErrLost})
		b.drain()
		b.began("a1", "a2")
	})
}
