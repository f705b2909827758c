package consumer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/observe"
)

func TestEffectsOfAMessageHappenOnce(t *testing.T) {
	store, traced := consumertest.NewStore(), &events{}
	c := newConsumer(t, config{Store: store, Trace: traced.trace()})
	for range 3 {
		process(t, c, msg("1", "a"))
	}
	wantCount(t, store.Database(), "1", 1)
	if diff := cmp.Diff([]string{"claimed 1", "processed 1", "duplicate 1", "duplicate 1"}, traced.take()); diff != "" {
		t.Error(diff)
	}
}

// A failed attempt leaves nothing behind, and the next one has a transaction of its own.
func TestAttempts(t *testing.T) {
	errHandler := errors.New("handler")
	for _, tc := range []struct {
		name     string
		fail     func(tx tx) error // in all attempts but the last
		attempts int               // until it succeeds
		waits    time.Duration     // in all, at least
		parked   observe.Cause
	}{
		{"first", nil, 1, 0, ""},
		{"error", func(tx) error { return errHandler }, 3, 3 * time.Second, ""},
		{"error for ever", func(tx) error { return errHandler }, 4, 3 * time.Second, observe.CauseExhausted},
		{
			"permanent", func(tx) error { return fmt.Errorf("x: %w", consumer.Permanent(errHandler)) }, 2, 0,
			observe.CausePermanent,
		},
		{
			"retry after", func(tx) error { return fmt.Errorf("x: %w", consumer.RetryAfter(errHandler, time.Hour)) }, 3,
			2 * time.Hour, "",
		},
		{
			"retry after for ever", func(tx) error { return consumer.RetryAfter(errHandler, time.Hour) }, 4, 2 * time.Hour,
			observe.CauseExhausted,
		},
		{"permanent before retry after", func(tx) error { return consumer.Permanent(consumer.RetryAfter(errHandler, time.Hour)) }, 2, 0, observe.CausePermanent},
		{"panic", func(tx) error { panic("boom") }, 3, 3 * time.Second, ""},
		{"panic for ever", func(tx) error { panic(errHandler) }, 4, 3 * time.Second, observe.CausePanic},
		{"swallowed error", func(tx tx) error { _ = tx.Add(""); return nil }, 3, 3 * time.Second, ""},
		{
			"swallowed error for ever", func(tx tx) error { _ = tx.Add(""); return nil }, 4, 3 * time.Second,
			observe.CauseExhausted,
		},
		{
			"own commit", func(tx tx) error { _ = tx.Commit(context.Background()); return nil }, 2, 0,
			observe.CausePermanent,
		},
		{
			"own rollback and an error", func(tx tx) error { return errors.Join(tx.Rollback(), errHandler) }, 2, 0,
			observe.CausePermanent,
		},
		{"database's fault", func(tx tx) error { return fmt.Errorf("x: %w", tx.Fail(errFault)) }, 10, 0, ""},
		{
			"database's fault, called permanent", func(tx tx) error { return consumer.Permanent(tx.Fail(errFault)) },
			10, 0, "",
		},
		{"database's fault, in a panic", func(tx tx) error { panic(tx.Fail(errFault)) }, 10, 0, ""},
		{
			"uncounted by its own word", func(tx) error { return &consumer.RetryError{Err: errHandler, Held: true} },
			10, 0, "",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &faulty{Store: consumertest.NewStore()}
				runs := 0
				c := newConsumer(t, config{
					Store: store, MaxAttempts: 3, Backoff: func(n int) time.Duration { return time.Duration(n) * time.Second },
					Handle: func(ctx context.Context, tx tx, m *consumer.Message) error {
						runs++
						if err := tx.Add("1"); err != nil {
							return err
						}
						if runs < tc.attempts {
							return tc.fail(tx)
						}
						return nil
					},
				})
				start := time.Now()
				process(t, c, msg("1", "a"))
				if waited := time.Since(start); waited < tc.waits || tc.waits > 0 && waited > tc.waits+time.Minute {
					t.Errorf("waited %v, want %v", waited, tc.waits)
				}
				effects, found := 1, letters(t, c)
				if tc.parked != "" {
					effects = 0
				}
				wantCount(t, store.Database(), "1", effects)
				if len(found) != 1-effects {
					t.Fatalf("%d letters: %v", len(found), found)
				}
				wantRuns := tc.attempts
				if tc.parked != "" {
					wantRuns--
					if l := found[0]; l.Cause != tc.parked || l.Message.Attempt != wantRuns || l.Error == "" {
						t.Errorf("letter: cause %q, attempt %d, error %q", l.Cause, l.Message.Attempt, l.Error)
					}
				}
				if runs != wantRuns {
					t.Errorf("%d runs, want %d", runs, wantRuns)
				}
				if n := store.Database().Open(); n != 0 {
					t.Errorf("%d transactions left open", n)
				}
			})
		})
	}
}

func TestPanicsAreReportedWithTheirStack(t *testing.T) {
	cause := errors.New("boom")
	store := struct{ dedup.Store[tx] }{consumertest.NewStore()} // no parking lot: the error comes back
	c := newConsumer(t, config{Store: store, MaxAttempts: 1, Handle: func(context.Context, tx, *consumer.Message) error { panic(cause) }})
	err := c.Process(t.Context(), msg("1", "a"))
	var p *consumer.PanicError
	if !errors.As(err, &p) || !errors.Is(err, cause) || !strings.Contains(string(p.Stack), "process_test.go") {
		t.Errorf("err = %v, want a *PanicError with its stack", err)
	}
}

// The answer to COMMIT is lost. A new claim shows whether it was committed.
func TestCommitOfUnknownOutcome(t *testing.T) {
	for _, tc := range []struct {
		name  string
		store faulty
		runs  int
	}{
		{"it happened", faulty{after: times(1, errFault)}, 1},
		{"it did not", faulty{rolls: times(1, errFault)}, 2},
		{"unknown many times", faulty{rolls: times(5, errFault), after: times(1, errFault)}, 6},
	} {
		t.Run(tc.name, func(t *testing.T) {
			store, runs := tc.store, 0
			store.Store = consumertest.NewStore()
			c := newConsumer(t, config{Store: &store, Backoff: noBackoff, Handle: func(ctx context.Context, tx tx, m *consumer.Message) error {
				runs++
				return tx.Add(m.ID)
			}})
			process(t, c, msg("1", "a"))
			wantCount(t, store.Database(), "1", 1)
			if runs != tc.runs {
				t.Errorf("%d runs, want %d", runs, tc.runs)
			}
		})
	}
}

// A message's last attempt is committed, but COMMIT returns an error that is the message's fault. Parking notices the
// commit.
func TestParkingSettlesAnUnknownCommit(t *testing.T) {
	store := &faulty{Store: consumertest.NewStore(), after: times(1, errors.New("deferred constraint, or so it seems"))}
	c := newConsumer(t, config{Store: store, MaxAttempts: 1})
	process(t, c, msg("1", "a"))
	wantCount(t, store.Database(), "1", 1)
	if found := letters(t, c); len(found) != 0 {
		t.Errorf("parked although its effect is committed: %v", found)
	}
}

func TestATwinInAnotherProcessIsDeferredWithoutBlame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := consumertest.NewStore().Database()
		one, two, traced := consumertest.NewStoreOn(db), consumertest.NewStoreOn(db), &events{}
		holds := newConsumer(t, config{Store: one, Handle: func(ctx context.Context, tx tx, m *consumer.Message) error {
			<-time.After(30 * time.Second) // far longer than MaxAttempts of bounded waits
			return tx.Add(m.ID)
		}})
		waits := newConsumer(t, config{Store: two, Trace: traced.trace()})
		go process(t, holds, msg("1", "a"))
		synctest.Wait()
		wantRetry(t, waits.ProcessBatch(t.Context(), []*consumer.Message{msg("1", "a")})[0], true)
		process(t, waits, msg("1", "a"))
		wantCount(t, db, "1", 1)
		if n := traced.count("held(in_flight)"); n < 4 {
			t.Errorf("%d times in flight, want many", n)
		}
		if n := traced.count("parked") + traced.count("claimed"); n != 0 {
			t.Errorf("the twin was run or parked: %v", traced.take())
		}
	})
}

// A frozen process keeps its claim. A process that waits for the key logs that once.
func TestAKeyInFlightForLongIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := consumertest.NewStore().Database()
		var log bytes.Buffer
		frozen := newConsumer(t, config{Store: consumertest.NewStoreOn(db), Handle: func(ctx context.Context, tx tx, m *consumer.Message) error {
			<-time.After(10 * time.Minute)
			return tx.Add(m.ID)
		}})
		waits := newConsumer(t, config{Store: consumertest.NewStoreOn(db), Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))})
		go process(t, frozen, msg("1", "a"))
		synctest.Wait()
		for i := range 30 {
			if i == 9 && log.Len() > 0 {
				t.Errorf("after 9 times: %s", &log)
			}
			wantRetry(t, waits.ProcessBatch(t.Context(), []*consumer.Message{msg("1", "a")})[0], true)
		}
		if n := strings.Count(log.String(), "is a process frozen?"); n != 1 || !strings.Contains(log.String(),
			"key=1") {
			t.Errorf("%d lines, want one that names the key: %s", n, &log)
		}
		process(t, waits, msg("1", "a"))
	})
}

// The context may end at any point: nothing is parked or lost, and the attempt does not count.
func TestAContextThatEndsCountsAgainstNobody(t *testing.T) {
	for _, when := range []string{"before", "in the handler", "at commit", "while parking", "between attempts"} {
		t.Run(when, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				store := &faulty{Store: consumertest.NewStore()}
				begun := 0
				store.before = func() error {
					if begun++; begun == 2 && when == "while parking" {
						cancel()
					}
					return nil
				}
				c := newConsumer(t, config{
					Store: store, MaxAttempts: 2, Backoff: func(int) time.Duration { return time.Hour },
					Handle: func(_ context.Context, tx tx, m *consumer.Message) error {
						switch when {
						case "in the handler":
							cancel()
							return consumer.Permanent(errors.New("what a driver makes of it"))
						case "at commit":
							cancel()
						case "while parking":
							return consumer.Permanent(errors.New("poison"))
						case "between attempts":
							time.AfterFunc(time.Minute, cancel)
							return errors.New("transient")
						}
						return tx.Add(m.ID)
					},
				})
				if when == "before" {
					cancel()
				}
				wantRetry(t, c.Process(ctx, msg("1", "a")), when != "between attempts")
				if found := letters(t, c); len(found) != 0 {
					t.Errorf("parked: %v", found)
				}
				wantCount(t, store.Database(), "1", 0)
				process(t, newConsumer(t, config{Store: consumertest.NewStoreOn(store.Database())}), msg("1", "a"))
				wantCount(t, store.Database(), "1", 1)
			})
		})
	}
}

// A handler that ends its goroutine has failed. The pass goes on, and the other messages are committed.
func TestAHandlerThatEndsItsGoroutine(t *testing.T) {
	for _, commits := range []bool{false, true} {
		store := &endable{Store: consumertest.NewStore()}
		c := newConsumer(t, config{Store: store, Backoff: noBackoff, MaxAttempts: 2, Handle: func(ctx context.Context, tx tx, m *consumer.Message) error {
			if err := tx.Add(m.ID); err != nil {
				return err
			}
			if m.ID == "1" {
				if commits {
					_ = tx.Commit(ctx)
				}
				runtime.Goexit()
			}
			return nil
		}})
		batch := []*consumer.Message{msg("0", "a"), msg("1", "b"), msg("2", "c"), msg("3", "d")}
		for range 3 {
			var again []*consumer.Message
			for i, err := range c.ProcessBatch(t.Context(), batch) {
				if err != nil {
					batch[i].Attempt++
					again = append(again, batch[i])
				}
			}
			batch = again
		}
		found := map[string]observe.Cause{}
		for _, l := range letters(t, c) {
			found[l.Record.Key.ID] = l.Cause
		}
		want := map[string]observe.Cause{"1": observe.CauseExhausted}
		if commits { // the claims of later messages were committed too
			want = map[string]observe.Cause{
				"1": observe.CauseUnknown, "2": observe.CauseUnknown,
				"3": observe.CauseUnknown,
			}
		}
		if len(batch) > 0 || !maps.Equal(found, want) {
			t.Errorf("commits %v: letters %v, want %v; %d messages are not answered", commits, found, want, len(batch))
		}
		wantCount(t, store.Database(), "0", 1)
		wantCount(t, store.Database(), "2", map[bool]int{false: 1, true: 0}[commits])
	}
}
