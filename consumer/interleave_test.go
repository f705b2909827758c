package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/observe"
)

// interleaving is a Store that is a driver.Interleaver. It runs the handlers one after the other.
type interleaving struct {
	*faulty
	sizes []int               // handlers in each call of Interleave
	keys  []string            // of the latest call
	fail  func() (int, error) // fails after the handlers
	order []int               // the order of the handlers; nil: that of the messages
}

func newInterleaving() *interleaving {
	return &interleaving{faulty: &faulty{Store: consumertest.NewStore()}}
}

func (f *interleaving) Interleave(ctx context.Context, tx tx, keys []string,
	handlers []func(context.Context, tx) error,
) (int, error) {
	f.sizes, f.keys = append(f.sizes, len(handlers)), keys
	for i := range handlers {
		if f.order != nil {
			i = f.order[i]
		}
		returned := false
		err := func() error {
			defer func() { returned = true }()
			return handlers[i](ctx, tx)
		}()
		if err != nil || !returned {
			return i, err
		}
	}
	if f.fail != nil {
		return f.fail()
	}
	return -1, nil
}

func (f *interleaving) took() (sizes []int) {
	sizes, f.sizes = f.sizes, nil
	return sizes
}

func numbered(prefix string, n int) (msgs []*consumer.Message) {
	for i := range n {
		msgs = append(msgs, msg(fmt.Sprint(prefix, i), "x"))
	}
	return msgs
}

func TestInterleaveIsRefusedWhereItHasNoEffect(t *testing.T) {
	batch := func(context.Context, tx, []*consumer.Message) error { return nil }
	for name, tc := range map[string]struct {
		cfg  config
		want string
	}{
		"a store that cannot": {config{Store: consumertest.NewStore(), Handle: effect}, "Config.Interleave is set"},
		"with a batch handler": {
			config{Store: newInterleaving(), HandleBatch: batch},
			"Config.Interleave needs Config.Handle",
		},
	} {
		tc.cfg.Name, tc.cfg.Key, tc.cfg.Interleave = "billing", consumer.MessageID, true
		if _, err := consumer.New(tc.cfg); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestInterleaveTakesTheNewMessagesOfABatch(t *testing.T) {
	store := newInterleaving()
	c := newConsumer(t, config{Store: store, Interleave: true})
	process(t, c, msg("0", "x"))
	batch := append(numbered("", 3), msg("1", "x"), msg("other", "x"))
	batch[2].OrderingKey, batch[4].OrderingKey = "k", "k"
	if errs := c.ProcessBatch(t.Context(), batch); !slices.Equal(errs, make([]error, 5)) {
		t.Error(errs)
	}
	if got := store.took(); !slices.Equal(got, []int{3}) || !slices.Equal(store.keys, []string{"", "k", "k"}) {
		t.Errorf("interleaved %v with keys %q, want the three new messages", got, store.keys)
	}
	plain := newInterleaving()
	if errs := newConsumer(t, config{Store: plain}).ProcessBatch(t.Context(), numbered("", 3)); errs[0] != nil ||
		plain.sizes != nil {
		t.Errorf("interleaved %v without Interleave: %v", plain.sizes, errs)
	}
}

// What fails interleaved is decided without that: it counts against no message.
func TestInterleaveThatFailsCountsAgainstNobody(t *testing.T) {
	for name, fail := range map[string]func() (int, error){
		"a named handler":   func() (int, error) { return 1, errors.New("no") },
		"no handler":        func() (int, error) { return -1, errors.New("no") },
		"a permanent error": func() (int, error) { return 1, consumer.Permanent(errors.New("no")) },
		"a panic":           func() (int, error) { panic("no") },
		"the database":      func() (int, error) { return -1, errFault },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				// the failed transaction takes no time, so nothing else stops the handlers from being interleaved
				store := newInterleaving()
				store.fail = fail
				c := newConsumer(t, config{Store: store, Interleave: true, MaxAttempts: 1})
				if errs := c.ProcessBatch(t.Context(), numbered("", 8)); !slices.Equal(errs, make([]error, 8)) {
					t.Error(errs)
				}
				for _, m := range numbered("", 8) {
					wantCount(t, store.Database(), m.ID, 1)
				}
				if got := store.took(); !slices.Equal(got, []int{8}) {
					t.Errorf("interleaved %v, want no more after the failure", got)
				}
				if got := letters(t, c); len(got) > 0 {
					t.Errorf("parked: %v", got)
				}
			})
		})
	}
}

// Each failure in a row stops the handlers from being interleaved for twice as long as the one before. A success ends
// that.
func TestInterleaveStopsForAWhileAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newInterleaving()
		c := newConsumer(t, config{Store: store, Interleave: true})
		failing := true
		store.fail = func() (int, error) {
			<-time.After(time.Second)
			if failing {
				return -1, errors.New("no")
			}
			return -1, nil
		}
		passes := 0
		interleaves := func(after time.Duration, want bool) {
			t.Helper()
			<-time.After(after)
			passes++
			if errs := c.ProcessBatch(t.Context(), numbered(fmt.Sprint(passes, " "), 4)); !slices.Equal(errs,
				make([]error, 4)) {
				t.Error(errs)
			}
			if got := store.took(); len(got) > 0 != want {
				t.Errorf("pass %d: interleaved %v", passes, got)
			}
		}
		interleaves(0, true)
		interleaves(900*time.Millisecond, false)
		interleaves(200*time.Millisecond, true)
		interleaves(1900*time.Millisecond, false)
		interleaves(200*time.Millisecond, true)
		failing = false
		interleaves(4100*time.Millisecond, true)
		interleaves(0, true)
		failing = true
		interleaves(0, true)
		interleaves(900*time.Millisecond, false)
		interleaves(200*time.Millisecond, true)
	})
}

// A message that has failed here before probably fails again, so that it must not cost the others their work.
func TestInterleaveLeavesOutMessagesThatHaveFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newInterleaving()
		c := newConsumer(t, config{Store: store, Interleave: true, MaxAttempts: 5, Backoff: noBackoff, Handle: func(_ context.Context, tx tx, m *consumer.Message) error {
			if m.ID == "1" {
				return errors.New("no")
			}
			return tx.Add(m.ID)
		}})
		again := c.ProcessBatch(t.Context(), numbered("", 4))
		wantRetry(t, again[1], false)
		<-time.After(time.Minute)
		store.took()
		c.ProcessBatch(t.Context(), append(numbered("next ", 4), msg("1", "x")))
		if got := store.took(); !slices.Equal(got, []int{4}) {
			t.Errorf("interleaved %v, want those without the message that has failed before", got)
		}
	})
}

// committing is a store whose first transaction is committed although its handler returns an error, because that
// handler has committed it.
type committing struct {
	*interleaving
	done bool
}

func (c *committing) InTx(ctx context.Context, recs []dedup.Record, fn func(tx, []dedup.Claim) error) (err error) {
	if c.done {
		return c.interleaving.InTx(ctx, recs, fn)
	}
	c.done = true
	return errors.Join(c.interleaving.InTx(ctx, recs, func(tx tx, claims []dedup.Claim) error {
		err = fn(tx, claims)
		return nil
	}), err)
}

// When a handler has committed the transaction, it does not run again. Handlers of earlier messages have returned, and
// are committed. Later ones are in doubt, also if they had returned: their outbox messages may be missing.
func TestInterleaveWhenAHandlerEndsTheTransaction(t *testing.T) {
	store := &committing{interleaving: newInterleaving()}
	store.order = []int{0, 1, 3, 2}
	runs := map[string]int{}
	c := newConsumer(t, config{Store: store, Interleave: true, Handle: func(_ context.Context, tx tx, m *consumer.Message) error {
		runs[m.ID]++
		if m.ID == "2" {
			return fmt.Errorf("%w: by the handler", dedup.ErrTxEnded)
		}
		return tx.Add(m.ID)
	}})
	if errs := c.ProcessBatch(t.Context(), numbered("", 4)); !slices.Equal(errs, make([]error, 4)) {
		t.Error(errs)
	}
	var parked []string
	for _, l := range letters(t, c) {
		if l.Cause != observe.CauseUnknown || strings.Contains(l.Error, "it has no effects") {
			t.Errorf("parked as %q: %s", l.Cause, l.Error)
		}
		parked = append(parked, l.Record.Key.ID)
	}
	slices.Sort(parked)
	if !slices.Equal(parked, []string{"2", "3"}) || runs["0"] != 1 || runs["1"] != 1 || runs["2"] != 1 ||
		runs["3"] != 1 {
		t.Errorf("parked %q after runs %v", parked, runs)
	}
	wantCount(t, store.Database(), "0", 1)
	wantCount(t, store.Database(), "1", 1)
}
