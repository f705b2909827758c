package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
)

// Transactions that fail at the same time are one fault, so that a failover does not count as ten faults.
func TestFaultsSideBySideAreOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const workers = 10
		inside := make(chan struct{}, workers)
		var worst atomic.Int64
		store := &faulty{Store: consumertest.NewStore()}
		c := newConsumer(t, config{
			Store: store,
			Backoff: func(n int) time.Duration {
				worst.Store(max(worst.Load(), int64(n)))
				return time.Second
			},
			Handle: func(_ context.Context, tx tx, m *consumer.Message) error {
				if len(inside) < workers {
					inside <- struct{}{}
					<-time.After(time.Second)
					return tx.Fail(errFault)
				}
				return tx.Add(m.ID)
			},
		})
		var wg sync.WaitGroup
		for i := range workers {
			wg.Go(func() { process(t, c, msg(fmt.Sprint(i), "")) })
		}
		wg.Wait()
		if worst.Load() != 1 {
			t.Errorf("backed off as after %d faults, want 1", worst.Load())
		}
	})
}

// While the database is away, nothing is parked. One line is logged when the pause begins, and one when it ends.
func TestTheDatabaseIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, traced, log := consumertest.NewStore(), &events{}, &logs{}
		c := newConsumer(t, config{Store: store, Trace: traced.trace(), Logger: log.logger()})
		process(t, c, msg("0", ""))
		store.Database().Stop()
		const away = time.Hour
		time.AfterFunc(away, store.Database().Start)
		start, done := time.Now(), make(chan struct{})
		for i := range 8 {
			go func() {
				process(t, c, msg(fmt.Sprint(1+i%4), ""))
				done <- struct{}{}
			}()
		}
		for range 8 {
			<-done
		}
		if took := time.Since(start); took > away+10*time.Second {
			t.Errorf("went on %v after the database came back", took-away)
		}
		for i := range 5 {
			wantCount(t, store.Database(), fmt.Sprint(i), 1)
		}
		if n := len(letters(t, c)); n != 0 {
			t.Errorf("%d letters", n)
		}
		if begins, ends := log.lines("consumer paused"), log.lines("consumer goes on"); begins != 1 || ends != 1 {
			t.Errorf("%d lines when it paused, %d when it went on, want one each", begins, ends)
		}
		if n := traced.count("paused"); n != 1 || traced.count("resumed") != 1 {
			t.Errorf("%d pauses were reported", n)
		}
	})
}

func TestALoneFaultIsNoPause(t *testing.T) {
	log := &logs{}
	c := newConsumer(t, config{
		Store:  &faulty{Store: consumertest.NewStore(), before: times(1, errFault)},
		Logger: log.logger(), Backoff: noBackoff,
	})
	process(t, c, msg("1", ""))
	if n := log.lines("consumer paused") + log.lines("goes on"); n != 0 {
		t.Errorf("%d lines about a pause", n)
	}
}

// A deployment that fails for every message must not park a whole topic.
func TestParkLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, traced, log := consumertest.NewStore(), &events{}, &logs{}
		c := newConsumer(t, config{
			Store: store, Handle: poison, ParkLimit: consumer.ParkLimit{Burst: 10, PerMinute: 6},
			Trace: traced.trace(), Logger: log.logger(),
		})
		var batch []*consumer.Message
		for i := range 30 {
			batch = append(batch, msg(fmt.Sprint(i), "poison"))
		}
		errs := c.ProcessBatch(t.Context(), batch)
		for i, err := range errs {
			if i < 10 != (err == nil) {
				t.Errorf("message %d: %v", i, err)
			}
			if err != nil {
				retry := wantRetry(t, err, true)
				if !errors.Is(err, consumer.ErrParkLimit) || retry.After < 10*time.Second ||
					retry.After > 70*time.Second {
					t.Errorf("message %d: %v after %v, want ErrParkLimit after 10s to 70s", i, err, retry.After)
				}
			}
		}
		if n, told, lines := len(letters(t, c)), traced.count("paused"), log.lines("consumer paused"); n != 10 ||
			told != 1 || lines != 1 {
			t.Errorf("%d letters, told %d times, %d lines; want 10, 1, 1", n, told, lines)
		}
		start := time.Now()
		for _, m := range batch[10:] {
			process(t, c, m)
		}
		if took := time.Since(start); took < 3*time.Minute || took > 5*time.Minute {
			t.Errorf("20 more took %v, want some 200 s", took)
		}
		process(t, c, msg("good", "ok"))
		if n, lines := len(letters(t, c)), log.lines("consumer paused"); n != 30 || lines != 1 {
			t.Errorf("%d letters, %d lines; want 30 and still 1", n, lines)
		}
	})
	t.Run("unlimited", func(t *testing.T) {
		c := newConsumer(t, config{Store: consumertest.NewStore(), Handle: poison, ParkLimit: consumer.ParkLimit{Unlimited: true}})
		for i := range 200 {
			process(t, c, msg(fmt.Sprint(i), "poison"))
		}
		if found, _ := c.DeadLetters(t.Context(), consumer.DeadLetterFilter{Limit: 1000}); len(found) != 200 {
			t.Errorf("%d letters", len(found))
		}
	})
}

func TestOneLineForEachMessageGivenUpOn(t *testing.T) {
	log := &logs{}
	c := newConsumer(t, config{
		Store: consumertest.NewStore(), Backoff: noBackoff, Logger: log.logger(),
		Handle: func(context.Context, tx, *consumer.Message) error { return errors.New("transient, for ever") },
	})
	process(t, c, msg("1", "the secret payload"))
	if errors, all := log.lines("level=ERROR"), log.lines(""); errors != 1 || all != 3 {
		t.Errorf("%d lines of %d are errors, want one at start, one for the first attempt, and one error for the message:\n%s", errors, all, log.buf.String())
	}
	if log.lines("secret") != 0 {
		t.Error("a payload is in the log")
	}
}
