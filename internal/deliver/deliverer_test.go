package deliver_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/deliver"
)

func TestBatchesAreFormedOfWhatWaits(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, benchConfig{
			Config:  deliver.Config{Concurrency: 2, MaxBatch: 3},
			process: func(context.Context, *consumer.Message) error { <-time.After(time.Second); return nil },
		})
		ds := deliveries(9)
		b.Add(ds[0])
		synctest.Wait()
		if len(b.batches) != 1 {
			t.Fatalf("batches %v: a batch waited to be filled", b.batches)
		}
		b.Add(ds[1:]...)
		<-time.After(time.Minute)
		b.drain()
		for _, ids := range b.batches {
			if len(ids) > 3 {
				t.Errorf("a batch of %d, MaxBatch is 3", len(ids))
			}
		}
		if len(b.batches) != 4 || b.most != 2 {
			t.Errorf("batches %v, %d at once; want 4, 2 at once", b.batches, b.most)
		}
	})
}

func TestBatchesAreBoundedInBytes(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, benchConfig{Config: deliver.Config{MaxBatch: 10, MaxBatchBytes: 100}})
		ds := deliveries(5)
		for i, size := range []int{60, 40, 1, 500, 1} {
			ds[i].Size = size
		}
		b.Add(ds...)
		<-time.After(time.Minute)
		b.drain()
		if got := fmt.Sprint(b.batches); got != "[[0 1] [2] [3] [4]]" {
			t.Errorf("batches %s", got)
		}
	})
}

func TestSingleMessagesForAProcessor(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, benchConfig{Config: deliver.Config{MaxBatch: 10}, single: true})
		b.Add(deliveries(3)...)
		<-time.After(time.Minute)
		b.drain()
		b.wants(map[string]error{"0": nil, "1": nil, "2": nil})
	})
}

func TestWhatStandsBehindAFailureIsGivenBack(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, benchConfig{
			Config: deliver.Config{Concurrency: 4, MaxBatch: 2},
			process: func(_ context.Context, msg *consumer.Message) error {
				<-time.After(time.Second)
				if msg.ID == "a1" {
					return later(5 * time.Second)
				}
				return nil
			},
		})
		b.Add(delivery("a0", "a"), delivery("a1", "a"), delivery("a2", "a"), delivery("b0", "b"), delivery("b1", "b"),
			delivery("free", ""))
		<-time.After(1500 * time.Millisecond) // a0 is done
		b.Add(delivery("a3", "a"))
		<-time.After(time.Minute)
		b.drain()
		b.wants(map[string]error{
			"a0": nil, "a1": errLater, "a2": errLater, "a3": errLater, "b0": nil, "b1": nil,
			"free": nil,
		})
		for _, id := range []string{"a2", "a3"} {
			var retry *consumer.RetryError
			if !errors.As(b.settled[id], &retry) || !retry.Held || retry.After != 5*time.Second {
				t.Errorf("%s is settled with %#v; want an uncounted one of the same delay", id, b.settled[id])
			}
		}
		if slices.Contains(b.order, "a2") || slices.Contains(b.order, "a3") {
			t.Errorf("order %q: what stood behind a1 was begun", b.order)
		}
		a := slices.DeleteFunc(slices.Clone(b.sequel), func(id string) bool { return id[0] != 'a' })
		if !slices.IsSorted(a) {
			t.Errorf("settled in the order %q", a)
		}
	})
}

func TestWhatIsKeptIsHandledAgainInOrder(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var mu sync.Mutex
		var attempts []int
		var at []time.Duration
		began := time.Now()
		b := newBench(t, benchConfig{
			Config: deliver.Config{
				Concurrency: 2, MaxBatch: 5,
				Keep: keepAll,
			},
			process: func(_ context.Context, msg *consumer.Message) error {
				if msg.ID != "a1" {
					return nil
				}
				mu.Lock()
				defer mu.Unlock()
				attempts, at = append(attempts, msg.Attempt), append(at, time.Since(began))
				switch len(at) {
				case 1:
					return later(time.Second)
				case 2:
					return uncounted(2 * time.Second)
				}
				return nil
			},
		})
		b.Add(delivery("a1", "a"), delivery("a2", "a"), delivery("b1", "b"))
		<-time.After(500 * time.Millisecond)
		b.Add(delivery("a3", "a"), delivery("b2", "b"))
		<-time.After(time.Minute)
		b.drain()
		b.wants(map[string]error{"a1": nil, "a2": nil, "a3": nil, "b1": nil, "b2": nil})
		if got := fmt.Sprint(attempts, at); got != "[1 2 2] [0s 1s 3s]" {
			t.Errorf("attempts %s", got)
		}
		if got := fmt.Sprint(b.sequel); got != "[b1 b2 a1 a2 a3]" {
			t.Errorf("settled in the order %s", got)
		}
	})
}

func TestAgainAtOnceDoesNotSpin(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, benchConfig{
			Config:  deliver.Config{Keep: keepAll},
			process: func(context.Context, *consumer.Message) error { return uncounted(0) },
		})
		b.Add(deliveries(1)...)
		<-time.After(10 * time.Second)
		b.drain()
		b.wants(map[string]error{"0": deliver.ErrStopped})
		if n := len(b.order); n < 5 || n > 30 {
			t.Errorf("handled %d times in 10 s", n)
		}
	})
}

func TestARejectEndsIt(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, benchConfig{
			Config: deliver.Config{Keep: keepAll}, grace: time.Minute,
			process: func(_ context.Context, msg *consumer.Message) error {
				if msg.ID == "1" {
					return errReject
				}
				return nil
			},
		})
		b.Add(deliveries(3)...)
		<-b.Context().Done()
		err := b.Drain()
		if !errors.Is(err, errReject) || !contains(err, "queue/1") {
			t.Errorf("Drain = %v; want errReject and the position queue/1", err)
		}
		b.wants(map[string]error{"0": nil, "1": errReject, "2": deliver.ErrStopped})
		late := delivery("late", "")
		b.Add(late)
		b.wants(map[string]error{"0": nil, "1": errReject, "2": deliver.ErrStopped, "late": deliver.ErrStopped})
	})
}

func TestBrokenProcessorsReject(t *testing.T) {
	for _, c := range []struct {
		name string
		p    consumer.Processor
		want string
	}{
		{
			"a panic", processorFunc(func(context.Context, []*consumer.Message) []error { panic("broken") }),
			"a Consumer keeps what its handler fails on if its Store is a driver.ParkingLot: consumer: panic: broken",
		},
		{
			"too few answers", processorFunc(func(context.Context, []*consumer.Message) []error { return nil }),
			"gave 0 answers for 2 messages",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				var settled []error
				dr := deliver.New(t.Context(), deliver.Config{
					Processor: c.p, MaxBatch: 2,
					Settle: func(_ *deliver.Delivery, err error) { settled = append(settled, err) },
				})
				dr.Add(deliveries(2)...)
				synctest.Wait()
				if err := dr.Drain(0, deliver.HandlerExit); err == nil || !contains(err, c.want) {
					t.Errorf("Drain = %v; want %q", err, c.want)
				}
				if len(settled) != 2 || settled[0] == nil || settled[1] == nil {
					t.Errorf("settled with %v", settled)
				}
			})
		})
	}
}

type processorFunc func(context.Context, []*consumer.Message) []error

func (f processorFunc) Process(ctx context.Context, msg *consumer.Message) error {
	return f(ctx, []*consumer.Message{msg})[0]
}

func (f processorFunc) ProcessBatch(ctx context.Context, msgs []*consumer.Message) []error {
	return f(ctx, msgs)
}

func TestReserveKeepsToTheCapacity(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, benchConfig{
			Config:  deliver.Config{Capacity: 4},
			process: func(context.Context, *consumer.Message) error { <-time.After(time.Second); return nil },
		})
		if n := b.Reserve(10); n != 4 {
			t.Errorf("Reserve(10) = %d of an empty capacity of 4", n)
		}
		b.Add(deliveries(3)...)
		b.Release(4)
		if n := b.Reserve(10); n != 1 {
			t.Errorf("Reserve(10) = %d with 3 of 4 taken", n)
		}
		began := time.Now()
		if n := b.Reserve(10); n != 1 || time.Since(began) != time.Second {
			t.Errorf("Reserve(10) = %d after %v; want 1 after 1s, when a message is settled", n, time.Since(began))
		}
		b.Release(2)
		go func() { <-time.After(time.Second / 2); b.Fail(errReject) }()
		b.Reserve(4)
		if n := b.Reserve(1); n != 0 {
			t.Errorf("Reserve = %d after the end", n)
		}
		if err := b.Drain(); !errors.Is(err, errReject) {
			t.Errorf("Drain = %v", err)
		}
	})
}

// A batch takes no more than its share, so that no other has to wait for it.
func TestSplitEvenly(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, benchConfig{
			Config:  deliver.Config{Concurrency: 4, MaxBatch: 100, SplitEvenly: true},
			process: func(context.Context, *consumer.Message) error { <-time.After(time.Second); return nil },
		})
		b.Add(deliveries(40)...)
		synctest.Wait()
		for _, ids := range b.batches {
			if len(ids) != 10 {
				t.Errorf("a batch of %d of 40 messages, with 4 in work at a time; want 10", len(ids))
			}
		}
		if b.most != 4 {
			t.Errorf("%d batches in work; want 4", b.most)
		}
		<-time.After(time.Minute)
		b.drain()
	})
}

func TestUnsettled(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, benchConfig{
			process: func(context.Context, *consumer.Message) error { <-time.After(time.Second); return nil },
		})
		ds := deliveries(3)
		ds[1].Size = 10
		b.Add(ds...)
		began := time.Now()
		for _, want := range [][2]int{{3, 12}, {2, 11}, {1, 1}, {0, 0}} {
			n, bytes, changed := b.Unsettled()
			if n != want[0] || bytes != want[1] {
				t.Errorf("%d unsettled with %d bytes after %v; want %v", n, bytes, time.Since(began), want)
			}
			if n > 0 {
				<-changed
			}
		}
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("all are settled after %v; want 3s", took)
		}
		b.drain()
	})
}

func keepAll(*deliver.Delivery, *consumer.RetryError) bool { return true }

func contains(err error, text string) bool { return err != nil && strings.Contains(err.Error(), text) }
