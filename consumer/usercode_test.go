package consumer_test

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/internal/test/nasty"
	"github.com/txonce/txonce/observe"
)

// misdeed is what a function of the user does instead of returning.
type misdeed struct {
	name string
	do   func() error
	says string // in the letter
}

func misdeeds() (all []misdeed) {
	all = []misdeed{
		{"panics", func() error { panic("a bug") }, "a bug"},
		{"panics with nil", func() error { panic(nil) }, "nil"}, // on purpose
		{"panics with a value that cannot be printed", func() error { panic(unprintable{}) }, "panic"},
		{"ends its goroutine", func() error { runtime.Goexit(); return nil }, "runtime.Goexit"},
	}
	for _, e := range nasty.Errors() {
		all = append(
			all,
			misdeed{"returns " + e.Name, func() error { return e.Err }, e.Text},
			misdeed{"panics with " + e.Name, func() error { panic(e.Err) }, e.Text},
		)
	}
	return all
}

type unprintable struct{}

func (u unprintable) String() string { panic(u) }

// brokenLog is a log handler of the user's, each of whose methods may misbehave.
type brokenLog struct{ do func() error }

func (b brokenLog) Enabled(context.Context, slog.Level) bool  { _ = b.do(); return true }
func (b brokenLog) Handle(context.Context, slog.Record) error { return b.do() }
func (b brokenLog) WithAttrs([]slog.Attr) (h slog.Handler)    { _ = b.do(); return nil }
func (b brokenLog) WithGroup(string) (h slog.Handler)         { _ = b.do(); return nil }
func observes(do func() error) func(context.Context, observe.Pause) {
	return func(context.Context, observe.Pause) { _ = do() }
}
func isBad(m *consumer.Message) bool                             { return m.ID == "bad" }
func keyed(m *consumer.Message, do func() error) (string, error) { return m.ID, when(isBad(m), do) }

func when(yes bool, do func() error) error {
	if yes {
		return do()
	}
	return nil
}

// Whatever a function of the Config does: the process goes on, the message that it was called for is parked with a text
// that says what happened, and its neighbours are committed. The message is parked in the same way after a restart.
func TestUserCodeIsContained(t *testing.T) {
	decides := map[string]func(cfg *config, do func() error){
		"Handle": func(cfg *config, do func() error) {
			cfg.Handle = func(ctx context.Context, tx tx, m *consumer.Message) error {
				if err := when(isBad(m), do); err != nil {
					return err
				}
				return effect(ctx, tx, m)
			}
		},
		"HandleBatch": func(cfg *config, do func() error) {
			cfg.HandleBatch = func(ctx context.Context, tx tx, msgs []*consumer.Message) error {
				for _, m := range msgs {
					if err := when(isBad(m), do); err != nil {
						return err
					}
					if err := effect(ctx, tx, m); err != nil {
						return err
					}
				}
				return nil
			}
		},
		"Key": func(cfg *config, do func() error) {
			cfg.Key = func(m *consumer.Message) (string, error) { return keyed(m, do) }
		},
		"Tenant": func(cfg *config, do func() error) {
			cfg.Tenant = func(m *consumer.Message) (string, error) { return "t", when(isBad(m), do) }
		},
		"Fingerprint": func(cfg *config, do func() error) {
			cfg.Fingerprint = func(m *consumer.Message) (dedup.Fingerprint, error) {
				return dedup.FingerprintOf(m.Payload), when(isBad(m), do)
			}
		},
	}
	for name, set := range decides {
		for _, bad := range misdeeds() {
			t.Run(name+"/"+bad.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					db := deduptest.NewDatabase()
					for range 2 { // the second time after a restart, delivered again
						cfg := config{Store: consumertest.NewStoreOn(db), Backoff: noBackoff}
						set(&cfg, bad.do)
						c := newConsumer(t, cfg)
						deliver(t, c, msg("good", "a"), msg("bad", "b"), msg("other", "c"))
						found := letters(t, c)
						if len(found) != 1 || !strings.Contains(found[0].Error, bad.says) {
							t.Fatalf("letters %+v, want one that says %q", found, bad.says)
						}
						c.Close()
					}
					wantCount(t, db, "good", 1)
					wantCount(t, db, "other", 1)
					wantCount(t, db, "bad", 0)
				})
			})
		}
	}
}

// Functions that only observe, and Backoff, change nothing, whatever they do.
func TestUserCodeThatObservesIsContained(t *testing.T) {
	observe := map[string]func(cfg *config, do func() error){
		"Backoff": func(cfg *config, do func() error) { cfg.Backoff = func(int) time.Duration { _ = do(); return -1 } },
		"Logger":  func(cfg *config, do func() error) { cfg.Logger = slog.New(brokenLog{do}) },
		"Trace": func(cfg *config, do func() error) {
			cfg.Trace = &consumer.Trace{
				Start:   func(context.Context, *consumer.Delivery) context.Context { _ = do(); return nil },
				Claimed: func(context.Context, *consumer.Delivery, []*consumer.Message) { _ = do() },
				Attempt: func(context.Context, *consumer.Delivery, consumer.Attempt) { _ = do() },
				Parking: func(context.Context, *consumer.Delivery) string { _ = do(); return "" },
				Done:    func(context.Context, *consumer.Delivery, []consumer.MessageOutcome) { _ = do() },
				Paused:  observes(do), Resumed: observes(do),
			}
		},
	}
	for name, set := range observe {
		for _, bad := range misdeeds() {
			t.Run(name+"/"+bad.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					faults := 0
					store := &faulty{Store: consumertest.NewStore(), before: func() error {
						if faults++; faults < 6 {
							return errFault
						}
						return nil
					}}
					cfg := config{Store: store, Handle: func(ctx context.Context, tx tx, m *consumer.Message) error {
						if isBad(m) {
							return fmt.Errorf("it fails")
						}
						return effect(ctx, tx, m)
					}}
					set(&cfg, bad.do)
					c := newConsumer(t, cfg)
					deliver(t, c, msg("good", "a"), msg("bad", "b"), msg("other", "c"))
					wantCount(t, store.Database(), "good", 1)
					wantCount(t, store.Database(), "other", 1)
					if found := letters(t, c); len(found) != 1 || found[0].Error != "it fails" {
						t.Errorf("letters %+v", found)
					}
				})
			})
		}
	}
}

// deliver delivers batch until each message is acknowledged.
func deliver(t *testing.T, c *consumer.Consumer[tx], batch ...*consumer.Message) {
	t.Helper()
	for round := 0; len(batch) > 0; round++ {
		if round == 100 {
			t.Fatalf("%d messages are not answered", len(batch))
		}
		var again []*consumer.Message
		for i, err := range c.ProcessBatch(t.Context(), batch) {
			if err == nil {
				continue
			}
			if _, ok := err.(*consumer.RetryError); !ok {
				t.Fatalf("%s: %v", batch[i].ID, err)
			}
			batch[i].Attempt++
			again = append(again, batch[i])
		}
		batch = again
		<-time.After(time.Minute)
	}
}
