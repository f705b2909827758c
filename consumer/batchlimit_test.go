package consumer_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
)

// Transactions with more than three messages deadlock, which takes a second. Later passes remember that. When the cause
// is gone, batches become large again.
func TestBatchesThatDeadlockStaySmall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, passes = 50, 20
		store := &faulty{Store: consumertest.NewStore()}
		running, largest, faults, deadlocks := 0, 0, 0, true
		store.rolls = func() error {
			largest = max(largest, running)
			if deadlocks && running > 3 {
				faults++
				<-time.After(time.Second)
				return errFault
			}
			return nil
		}
		store.before = func() error { running = 0; return nil }
		c := newConsumer(t, config{Store: store, Handle: func(_ context.Context, tx tx, m *consumer.Message) error {
			running++
			return tx.Add(m.ID)
		}})
		pass := func(name string) {
			largest = 0
			var batch []*consumer.Message
			for i := range n {
				batch = append(batch, msg(fmt.Sprint(name, i), "x"))
			}
			if errs := c.ProcessBatch(t.Context(), batch); slices.ContainsFunc(errs,
				func(err error) bool { return err != nil }) {
				t.Fatalf("%s: %v", name, errs)
			}
			for _, m := range batch {
				wantCount(t, store.Database(), m.ID, 1)
			}
			<-time.After(100 * time.Millisecond)
		}
		for i := range passes {
			pass(fmt.Sprint("pass ", i, ", "))
		}
		if faults > 5 {
			t.Errorf("%d deadlocks in %d passes, want no more than the first pass needs", faults, passes)
		}
		deadlocks = false
		<-time.After(time.Minute)
		for i := range 3 { // the limit doubles
			pass(fmt.Sprint("again ", i, ", "))
		}
		if largest != n {
			t.Errorf("the largest transaction after the deadlocks had %d messages, want %d", largest, n)
		}
	})
}

// After deadlocks each message has a transaction of its own for a while, however many there are in a batch.
func TestABatchOfManyTransactions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &faulty{Store: consumertest.NewStore()}
		running := 0
		store.rolls = func() error {
			if running > 1 {
				<-time.After(time.Second)
				return errFault
			}
			return nil
		}
		store.before = func() error { running = 0; return nil }
		c := newConsumer(t, config{Store: store, Handle: func(_ context.Context, tx tx, m *consumer.Message) error {
			running++
			return tx.Add(m.ID)
		}})
		var batch []*consumer.Message
		for i := range 300 {
			batch = append(batch, msg(fmt.Sprint(i), "x"))
		}
		defer func() {
			if v := recover(); v != nil {
				t.Errorf("ProcessBatch panics: %v", v)
			}
		}()
		if errs := c.ProcessBatch(t.Context(), batch); slices.ContainsFunc(errs,
			func(err error) bool { return err != nil }) {
			t.Fatal(errs)
		}
		for _, m := range batch {
			wantCount(t, store.Database(), m.ID, 1)
		}
	})
}
