package relay_test

import (
	"context"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/internal/test/nasty"
	"github.com/txonce/txonce/observe"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/outboxtest"
	"github.com/txonce/txonce/outbox/relay"
)

// Whatever error a publisher answers with: the message is parked in the end, with a text that says what is wrong,
// unless the error says that the message is not at fault; its neighbours are published, and the relay goes on, also
// after a restart.
func TestRelayContainsErrors(t *testing.T) {
	for _, bad := range nasty.Errors() {
		t.Run(bad.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory, fake := outboxtest.NewMemory(), &outboxtest.FakePublisher{}
				enqueueIDs(t, memory, "a1", "bad", "c1")
				var kept []error
				publisher := publisherFunc(func(ctx context.Context, msgs []outbox.Message) []error {
					errs := make([]error, len(msgs))
					for i, m := range msgs {
						if m.ID == "bad" {
							errs[i] = bad.Err
						} else if answers := fake.Publish(ctx, msgs[i:i+1]); answers != nil {
							errs[i] = answers[0]
						}
					}
					clear(kept) // a publisher may use its slice again
					kept = errs
					return errs
				})
				uncounted := false
				for range 2 { // the second time after a restart
					trace := settled(observe.Held, func(s relay.Settlement) {
						uncounted = true
						if !strings.Contains(s.Err.Error(), bad.Text) {
							t.Errorf("held because of %q, want %q", s.Err, bad.Text)
						}
					})
					_, stop := start(t, relay.Config{
						Queue: memory, Publisher: publisher, MaxAttempts: 3,
						Backoff: fixed(time.Second), Trace: trace,
					})
					<-time.After(time.Minute)
					stop()
				}
				got := arrived(fake)
				slices.Sort(got)
				if !slices.Equal(got, []string{"a1", "c1"}) {
					t.Errorf("published %v", got)
				}
				if found := parked(t, memory); !uncounted &&
					(len(found) != 1 || !strings.Contains(found[0], bad.Text)) {
					t.Errorf("parked %q, want one with %q", found, bad.Text)
				}
			})
		})
	}
}

type brokenLog struct{ do func() }

func (b brokenLog) Enabled(context.Context, slog.Level) bool  { b.do(); return true }
func (b brokenLog) Handle(context.Context, slog.Record) error { b.do(); return nil }
func (b brokenLog) WithAttrs([]slog.Attr) slog.Handler        { b.do(); return nil }
func (b brokenLog) WithGroup(string) slog.Handler             { b.do(); return nil }

// What only observes, and Backoff, changes nothing, whatever it does.
func TestRelayContainsWhatObserves(t *testing.T) {
	for name, set := range map[string]func(cfg *relay.Config, do func()){
		"Backoff": func(cfg *relay.Config, do func()) { cfg.Backoff = func(int) time.Duration { do(); return 0 } },
		"Logger":  func(cfg *relay.Config, do func()) { cfg.Logger = slog.New(brokenLog{do}) },
		"Trace": func(cfg *relay.Config, do func()) {
			pause := func(context.Context, observe.Pause) { do() }
			cfg.Trace = &relay.Trace{
				Start:     func(context.Context, *relay.Publishing) context.Context { do(); return nil },
				Published: func(context.Context, *relay.Publishing, []error) { do() },
				Settled:   func(context.Context, []relay.Settlement) { do() },
				Lease:     func(context.Context, relay.LeaseEvent) { do() },
				Paused:    pause, Resumed: pause,
			}
		},
	} {
		for how, do := range map[string]func(){
			"panics":             func() { panic("a bug") },
			"ends its goroutine": runtime.Goexit,
		} {
			t.Run(name+" "+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					memory, fake := outboxtest.NewMemory(), &outboxtest.FakePublisher{}
					enqueueIDs(t, memory, "a1", "bad", "c1")
					calls := 0
					cfg := relay.Config{Queue: memory, MaxAttempts: 3, Publisher: publisherFunc(func(ctx context.Context, msgs []outbox.Message) []error {
						if calls++; calls < 3 {
							return slices.Repeat([]error{&outbox.UnavailableError{Err: errRefused}}, len(msgs))
						}
						errs := make([]error, len(msgs))
						for i, m := range msgs {
							if m.ID == "bad" {
								errs[i] = errRefused
							} else if answers := fake.Publish(ctx, msgs[i:i+1]); answers != nil {
								errs[i] = answers[0]
							}
						}
						return errs
					})}
					set(&cfg, do)
					_, stop := start(t, cfg)
					<-time.After(time.Hour)
					stop()
					if found := parked(t, memory); len(arrived(fake)) != 2 || len(found) != 1 ||
						!strings.Contains(found[0], errRefused.Error()) {
						t.Errorf("published %v, parked %q", arrived(fake), found)
					}
				})
			})
		}
	}
}

type sorted struct {
	publisherFunc
	ordered func() bool
}

func (s sorted) Ordered() bool { return s.ordered() }

// A publisher that does not say whether it keeps the order is refused.
func TestNewContainsOrdered(t *testing.T) {
	for how, f := range map[string]func() bool{
		"panics":             func() bool { panic("a bug") },
		"ends its goroutine": func() bool { runtime.Goexit(); return true },
	} {
		_, err := relay.New(relay.Config{Queue: outboxtest.NewMemory(), Publisher: sorted{nil, f}})
		if err == nil || !strings.Contains(err.Error(), "Ordered") {
			t.Errorf("%s: %v", how, err)
		}
	}
}
