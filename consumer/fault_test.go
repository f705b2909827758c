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
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/observe"
)

var errAmbiguous = fmt.Errorf("column does not exist: %w", errFault)

// classifying is a store with errors that either the database or the message may cause.
type classifying struct{ *faulty }

func (c classifying) Ambiguous(err error) bool { return errors.Is(err, errAmbiguous) }

func (c classifying) FaultClass(err error) driver.FaultClass {
	switch {
	case errors.Is(err, errAmbiguous):
		return driver.FaultDeployment
	case errors.Is(err, errFault):
		return driver.FaultConnection
	}
	return driver.FaultUnknown
}

func (c classifying) Result(error) observe.Result { return observe.RolledBack }

// The first two messages of a batch always meet errors of the database. The others are committed, and the two are
// parked in the end, with the cause.
func TestCulpritsDoNotStopTheirBatch(t *testing.T) {
	const n = 50
	for _, tc := range []struct {
		name  string
		err   error
		runs  int // how many times each culprit runs alone until it is parked
		batch bool
	}{
		{name: "ambiguous", err: errAmbiguous, runs: 1 + 3},
		{name: "ambiguous, HandleBatch", err: errAmbiguous, runs: 1 + 3, batch: true},
		{name: "of the database", err: errFault, runs: 20 + 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, log := classifying{&faulty{Store: consumertest.NewStore()}}, &logs{}
				bad := func(m *consumer.Message) bool { return strings.HasPrefix(m.ID, "bad") }
				cfg := config{Store: store, Logger: log.logger()}
				handle := func(_ context.Context, tx tx, m *consumer.Message) error {
					if bad(m) {
						return tx.Fail(tc.err)
					}
					return tx.Add(m.ID)
				}
				cfg.Handle = handle
				if tc.batch {
					cfg.Handle = nil
					cfg.HandleBatch = func(ctx context.Context, tx tx, msgs []*consumer.Message) error {
						for _, m := range msgs {
							if err := handle(ctx, tx, m); err != nil {
								return err
							}
						}
						return nil
					}
				}
				c := newConsumer(t, cfg)
				culprits := []*consumer.Message{msg("bad 0", "x"), msg("bad 1", "x")}
				left := culprits
				for pass := range 40 {
					batch := slices.Clone(left)
					for i := len(batch); i < n; i++ {
						batch = append(batch, msg(fmt.Sprint("good ", pass, " ", i), "x"))
					}
					for redelivery := 0; redelivery < 2 && len(batch) > 0; redelivery++ {
						// one pass may be needed to know the culprits
						errs := c.ProcessBatch(t.Context(), batch)
						var again []*consumer.Message
						left = nil
						for i, err := range errs {
							if err == nil {
								continue
							}
							if retry, _ := errors.AsType[*consumer.RetryError](err); retry != nil && !retry.Held {
								batch[i].Attempt++
							}
							if again = append(again, batch[i]); bad(batch[i]) {
								left = append(left, batch[i])
							}
						}
						if pass > 0 && len(again) != len(left) {
							t.Fatalf("pass %d: %d good messages are held up", pass, len(again)-len(left))
						}
						if batch = again; pass > 0 || len(again) == len(left) {
							break
						}
					}
					for i := len(culprits); i < n; i++ {
						wantCount(t, store.Database(), fmt.Sprint("good ", pass, " ", i), 1)
					}
					if len(left) > 0 && pass > tc.runs+1 {
						t.Fatalf("still not parked after %d passes", pass)
					}
				}
				found := letters(t, c)
				if len(found) != 2 {
					t.Fatalf("%d letters, want 2", len(found))
				}
				for _, l := range found {
					if l.Cause != observe.CauseExhausted || !strings.Contains(l.Error, tc.err.Error()) ||
						l.Message.Attempt != 3 {
						t.Errorf("letter: cause %q, error %q, attempt %d", l.Cause, l.Error, l.Message.Attempt)
					}
				}
				if n := log.lines("from now on they count as attempts"); n != 2 || log.lines(`key="bad 0"`) == 0 {
					t.Errorf("%d lines about two culprits, want one each that names it:\n%s", n, log.buf.String())
				}
			})
		})
	}
}

// While every message meets an error of the database, the consumer pauses and counts no attempts, however long that
// lasts.
func TestWhatEveryMessageMeetsIsNotCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, broken := classifying{&faulty{Store: consumertest.NewStore()}}, true
		c := newConsumer(t, config{Store: store, Handle: func(_ context.Context, tx tx, m *consumer.Message) error {
			if broken {
				return tx.Fail(errAmbiguous)
			}
			return tx.Add(m.ID)
		}})
		var batch []*consumer.Message
		for i := range 20 {
			batch = append(batch, msg(fmt.Sprint(i), "x"))
		}
		for range 100 {
			for _, err := range c.ProcessBatch(t.Context(), batch) {
				wantRetry(t, err, true)
			}
		}
		process := func() (failed int) {
			for _, err := range c.ProcessBatch(t.Context(), batch) {
				if err != nil {
					failed++
				}
			}
			return failed
		}
		if broken = false; process() != 0 || len(letters(t, c)) != 0 {
			t.Errorf("%d letters", len(letters(t, c)))
		}
		for i := range batch {
			wantCount(t, store.Database(), fmt.Sprint(i), 1)
		}
	})
}

// A later message with a culprit's ordering key must not run before the culprit.
func TestACulpritKeepsItsOrder(t *testing.T) {
	store, fails := &faulty{Store: consumertest.NewStore()}, true
	var order []string
	c := newConsumer(t, config{Store: store, Handle: func(_ context.Context, tx tx, m *consumer.Message) error {
		if m.ID == "1" && fails {
			return tx.Fail(errFault)
		}
		order = append(order, m.ID)
		return tx.Add(m.ID)
	}})
	keyed := func(id, key string) *consumer.Message { m := msg(id, "x"); m.OrderingKey = key; return m }
	batch := []*consumer.Message{keyed("1", "k"), keyed("2", "k"), keyed("3", "other"), keyed("4", "k")}
	c.ProcessBatch(t.Context(), batch)
	fails, order = false, nil
	left := []*consumer.Message{batch[0], batch[1], batch[3], keyed("5", "other")}
	if errs := c.ProcessBatch(t.Context(), left); !slices.Equal(errs, make([]error, 4)) {
		t.Fatal(errs)
	}
	if got := fmt.Sprint(order); got != "[5 1 2 4]" {
		t.Errorf("ran in the order %s, want [5 1 2 4]", got)
	}
}

// A disagreement of clocks counts no attempts, and defers only the messages that it concerns.
func TestClocksThatDisagreeParkNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := consumertest.NewStore()
		db := store.Database()
		slow := -2 * time.Hour
		db.Now = func() time.Time { return time.Now().Add(slow) }
		c := newConsumer(t, config{Store: store})
		young := msg("young", "x")
		young.Time = time.Now()
		for i := range 100 {
			old := msg(fmt.Sprint("old ", i), "x")
			old.Time = time.Now().Add(-90 * time.Minute)
			errs := c.ProcessBatch(t.Context(), []*consumer.Message{young, old})
			if retry := wantRetry(t, errs[0], true); !errors.Is(retry, dedup.ErrClocks) || errs[1] != nil {
				t.Fatalf("%v", errs)
			}
		}
		slow = 0
		process(t, c, young)
		wantCount(t, db, "young", 1)
		if n := len(letters(t, c)); n != 0 {
			t.Errorf("%d letters", n)
		}
	})
}

// A broker's count of attempts includes crashes and stops. A message is parked only after two failures of its handler.
func TestCrashesAreNoFailures(t *testing.T) {
	for _, tc := range []struct {
		name     string
		attempt  int
		max      int
		failures int // until it is parked
	}{
		{"two deployments and one error", 3, 3, 2},
		{"many crashes", 99, 3, 2},
		{"more than crashes explain", 100, 3, 1},
		{"far above a high limit", 100, 20, 2},
		{"none but failures", 1, 3, 3},
		{"one attempt allowed", 1, 1, 1},
		{"two attempts allowed", 7, 2, 2},
	} {
		for _, batched := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/batched %v", tc.name, batched), func(t *testing.T) {
				runs := 0
				c := newConsumer(t, config{
					Store: consumertest.NewStore(), MaxAttempts: tc.max, Backoff: noBackoff,
					Handle: func(context.Context, tx,
						*consumer.Message,
					) error {
						runs++
						return errors.New("transient")
					},
				})
				m := msg("1", "x")
				m.Attempt = tc.attempt
				if batched {
					for range tc.failures {
						if len(letters(t, c)) > 0 {
							break
						}
						if err := c.ProcessBatch(t.Context(), []*consumer.Message{m})[0]; err != nil {
							wantRetry(t, err, false)
						}
						m.Attempt++
					}
				} else {
					process(t, c, m)
				}
				if found := letters(t, c); runs != tc.failures || len(found) != 1 {
					t.Errorf("%d runs and %d letters, want %d and 1", runs, len(found), tc.failures)
				}
			})
		}
	}
}

func TestUncountedRetriesAreTold(t *testing.T) {
	store := &faulty{Store: consumertest.NewStore()}
	var told []string
	fail := errors.New("transient")
	c := newConsumer(t, config{
		Store: store, Backoff: noBackoff,
		Trace: &consumer.Trace{Done: func(_ context.Context, _ *consumer.Delivery, outcomes []consumer.MessageOutcome) {
			told = append(told, string(outcomes[0].Outcome)+" "+string(outcomes[0].Cause))
		}},
		Handle: func(_ context.Context, tx tx, m *consumer.Message) error {
			err := fail
			fail = nil
			return err
		},
	})
	store.before = times(1, errFault)
	process(t, c, msg("1", "x"))
	if want := []string{"held database", "retried handler", "processed "}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}
