package outboxtest

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

// orderCases are about the order within a key, and about commits that come late.
func orderCases[TTx any]() []storeCase[TTx] {
	const (
		order  = "27: order within a key is that of transactions that exclude each other"
		cursor = "23: claim by state, not by cursor"
	)
	return []storeCase[TTx]{
		{name: "the messages of a key keep their order", hazard: order, run: keyOrder[TTx]},
		{
			name: "order is that of the transactions, whoever enqueued first", hazard: order, needs: lateSequence,
			run: lateOrder[TTx],
		},
		{name: "LockOrderingKey makes transactions of one key exclude each other", hazard: order, run: serialize[TTx]},
		{
			name: "LockOrderingKey of two keys does not wait", hazard: order, needs: twoWriters,
			run: serializeOthers[TTx],
		},
		{
			name: "a late commit with a lower sequence number is not skipped", hazard: cursor, needs: twoWriters,
			run: lateCommit[TTx],
		},
		{
			name: "a transaction that stays open delays no other", hazard: cursor, needs: twoWriters,
			run: openTransaction[TTx],
		},
	}
}

// keyOrder enqueues in calls and transactions of all sizes, for several keys at once.
func keyOrder[TTx any](e *env[TTx]) {
	want := map[string][]string{}
	total := 0
	next := func(n int) (msgs []outbox.Message) {
		for range n {
			key := fmt.Sprint("key", total%3)
			m := message(fmt.Sprintf("%s-%d", key, total), key)
			want[key] = append(want[key], m.ID)
			msgs = append(msgs, m)
			total++
		}
		return msgs
	}
	for _, calls := range [][]int{{1}, {7}, {1, 1, 1}, {20, 5}, {2, 30}, {1}} {
		var batches [][]outbox.Message
		for _, n := range calls {
			batches = append(batches, next(n))
		}
		if err := e.inTx(func(tx TTx) error {
			for _, b := range batches {
				if err := e.Writer.Enqueue(e.ctx, tx, b...); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			e.Fatalf("enqueue: %v", err)
		}
	}
	e.wantOrder(e.session().drain(total), want)
}

// wantOrder compares the IDs of each key, and their numbers.
func (j judge) wantOrder(leased []driver.Leased, want map[string][]string) {
	j.Helper()
	got, last := map[string][]string{}, map[string]int64{}
	for _, l := range leased {
		got[l.OrderingKey] = append(got[l.OrderingKey], l.ID)
		if l.Seq <= last[l.OrderingKey] {
			j.Errorf("%q has Seq %d, after one of %d", l.ID, l.Seq, last[l.OrderingKey])
		}
		last[l.OrderingKey] = l.Seq
	}
	for key, list := range want {
		if !slices.Equal(got[key], list) {
			j.Errorf("key %q: leased %s, want %s", key, few(got[key]), few(list))
		}
	}
}

// lateOrder enqueues before the row lock is taken, as a handler may.
func lateOrder[TTx any](e *env[TTx]) {
	second, first := e.begin(), e.begin()
	second.enqueue(message("second", "k"))
	first.enqueue(message("first", "k"))
	first.commit()
	second.enqueue(message("third", "k"))
	second.commit()
	e.wantOrder(e.session().drain(3), map[string][]string{"k": {"first", "second", "third"}})
}

func serialize[TTx any](e *env[TTx]) {
	e.hook("LockOrderingKey", e.LockOrderingKey == nil)
	const twins = 4
	var inside, met atomic.Int32
	results := make(chan error, twins)
	for i := range twins {
		go func() {
			results <- e.inTx(func(tx TTx) error {
				if err := e.LockOrderingKey(e.ctx, tx, "k"); err != nil {
					return err
				}
				if inside.Add(1) > 1 {
					met.Add(1)
				}
				defer inside.Add(-1)
				if err := e.LockOrderingKey(e.ctx, tx, "k"); err != nil { // twice is once
					return err
				}
				for n := range 3 {
					pause(e.ctx)
					if err := e.Writer.Enqueue(e.ctx, tx, message(fmt.Sprint(i, "-", n), "k")); err != nil {
						return err
					}
				}
				return nil
			})
		}()
	}
	for range twins {
		if err := <-results; err != nil {
			e.Errorf("transaction: %v", err)
		}
	}
	if n := met.Load(); n > 0 {
		e.Errorf("%d times two transactions that called LockOrderingKey with one key were past it at once", n)
	}
	leased := e.session().drain(3 * twins)
	for i := 0; i < len(leased); i += 3 {
		for n := range 3 {
			if leased[i+n].ID != fmt.Sprint(leased[i].ID[:1], "-", n) {
				e.Fatalf("transactions that exclude each other are mixed: %v", ids(leased))
			}
		}
	}
}

func serializeOthers[TTx any](e *env[TTx]) {
	e.hook("LockOrderingKey", e.LockOrderingKey == nil)
	one, two := e.begin(), e.begin()
	one.do(func(tx TTx) error { return e.LockOrderingKey(e.ctx, tx, "one") })
	two.do(func(tx TTx) error { return e.LockOrderingKey(e.ctx, tx, "two") }) // would hang until the limit
	two.enqueue(message("2", "two"))
	two.commit()
	one.enqueue(message("1", "one"))
	one.commit()
	e.session().drain(2)
}

// lateCommit has transactions commit in the opposite order of their Enqueue, and relays everything in between.
func lateCommit[TTx any](e *env[TTx]) {
	s := e.session()
	var open []*opened[TTx]
	for i := range 4 {
		tx := e.begin()
		tx.enqueue(message(fmt.Sprint("same-", i), "k"), message(fmt.Sprint("own-", i), fmt.Sprint("k", i)),
			message(fmt.Sprint("free-", i), ""))
		open = append(open, tx)
	}
	for i := range slices.Backward(open) {
		open[i].commit()
		got := ids(s.drain(3))
		slices.Sort(got)
		if want := []string{
			fmt.Sprint("free-", i), fmt.Sprint("own-", i),
			fmt.Sprint("same-", i),
		}; !slices.Equal(got, want) {
			e.Fatalf("after a late commit %v were leased, want %v", got, want)
		}
	}
}

// openTransaction: a cursor that waits for older transactions would not move.
func openTransaction[TTx any](e *env[TTx]) {
	s := e.session()
	old := e.begin()
	old.enqueue(message("old", "k"))
	for i := range 3 {
		e.enqueue(message(fmt.Sprint("new-", i), "k"))
		s.drain(1)
	}
	old.commit()
	s.drain(1)
}
