package stripehook_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/stripehook"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/observe"
)

// E20: the database is away for ten minutes. Nothing is parked and nothing lost.
func TestBackfillSurvivesADatabaseOutage(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.stripe.add(events(300, time.Minute)...)
		b := w.backfill(t, func(cfg *stripehook.BackfillConfig[tx], _ *stripehook.ClientConfig) {
			cfg.MaxPages, cfg.Interval = 1, time.Minute
		})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		var fails sync.Once
		w.fail = func(msg *consumer.Message) error {
			if msg.ID == "evt_00150" {
				fails.Do(func() {
					w.store.Database().Stop()
					time.AfterFunc(10*time.Minute, w.store.Database().Start)
				})
			}
			return nil
		}
		go func() { ended <- b.Run(ctx) }()
		<-time.After(5 * time.Minute)
		if n := w.effects(); n >= 300 {
			t.Errorf("%d effects during the outage", n)
		}
		<-time.After(25 * time.Minute)
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Run returns %v, want nil", err)
		}
		w.wantEffects(t, 300)
		w.wantLetters(t)
	})
}

func TestMalformedEventIsParked(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.stripe.add(event(1, 3*time.Minute), event(3, time.Minute))
		w.stripe.events = append(w.stripe.events, listed{event: event(2, 2*time.Minute), raw: []byte(`{"id":"evt_00002","object":"event","created":"never"}`)})
		w.once(t, w.backfill(t))
		w.wantEffects(t, 2)
		w.wantLetters(t, " "+string(observe.CauseUndecodable))
	})
}

// More of them than are kept at once, and none says when it was created.
func TestManyMalformedEventsAreParked(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		for n := range 250 {
			raw := fmt.Appendf(nil, `{"id":"evt_%05d","object":"event","created":"never"}`, n)
			w.stripe.events = append(w.stripe.events, listed{event: event(n, time.Minute), raw: raw})
		}
		w.stripe.add(event(999, time.Hour))
		b := w.backfill(t, func(cfg *stripehook.BackfillConfig[tx], _ *stripehook.ClientConfig) { cfg.MaxPages = 1 })
		w.once(t, b)
		w.wantEffects(t, 1)
		if letters, err := w.store.DeadLetters(t.Context(), consumer.DeadLetterFilter{Limit: 1000}); err != nil ||
			len(letters) != 250 {
			t.Errorf("%d dead letters, error %v; want 250", len(letters), err)
		}
	})
}

func TestBackfillQuery(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.stripe.add(event(1, 3*time.Minute), event(2, 2*time.Minute))
		voided := event(3, time.Minute)
		voided.Type = "invoice.voided"
		w.stripe.add(voided)
		w.stripe.events[1].undelivered, w.stripe.events[2].undelivered = true, true
		w.once(t, w.backfill(t, func(cfg *stripehook.BackfillConfig[tx], client *stripehook.ClientConfig) {
			cfg.UndeliveredOnly, cfg.Types = true, []string{"invoice.paid", "invoice.sent"}
			cfg.Verifier = newVerifier(t, connect)
			client.Version, client.Account = "2026-10-01.basil", "acct_1/acct_2"
		}))
		if runs := w.took(); len(runs) != 1 || runs[0].ID != "evt_00002" {
			t.Errorf("%d runs, want one of the undelivered event of a wanted type", len(runs))
		}
		r := w.stripe.taken()[0]
		if r.Header.Get("Stripe-Version") != "2026-10-01.basil" || r.Header.Get("Stripe-Context") != "acct_1/acct_2" ||
			r.Header.Get("Stripe-Account") != "" {
			t.Errorf("headers %v", r.Header)
		}
		w.once(t, w.backfill(t, func(cfg *stripehook.BackfillConfig[tx], client *stripehook.ClientConfig) {
			var err error
			if cfg.Checkpoint, err = webhook.NewCheckpoint(w.store, "another account", window); err != nil {
				t.Error(err)
			}
			cfg.Verifier, client.Account = newVerifier(t, connect), "acct_2"
		}))
		if r := w.stripe.taken()[0]; r.Header.Get("Stripe-Account") != "acct_2" ||
			r.Header.Get("Stripe-Context") != "" || r.URL.Query().Has("delivery_success") {
			t.Errorf("%v, headers %v", r.URL, r.Header)
		}
	})
}

// What must stop a pass before anything runs.
func TestBackfillRefuses(t *testing.T) {
	t.Run("events of the other mode", func(t *testing.T) {
		bubble(t, func(t *testing.T, w *world) {
			test := event(2, time.Minute)
			test.Livemode = false
			w.stripe.add(event(1, 2*time.Minute), test)
			if err := w.backfill(t).Once(t.Context()); err == nil || !strings.Contains(err.Error(),
				"evt_00002 is a test event") {
				t.Errorf("error %v", err)
			}
			w.wantEffects(t, 0)
		})
	})
	t.Run("a checkpoint of another account", func(t *testing.T) {
		bubble(t, func(t *testing.T, w *world) {
			w.stripe.add(event(1, time.Minute))
			w.once(t, w.backfill(t))
			err := w.backfill(t, func(cfg *stripehook.BackfillConfig[tx], client *stripehook.ClientConfig) {
				cfg.Verifier, client.Account = newVerifier(t, connect), "acct_2"
			}).Once(t.Context())
			if err == nil || !strings.Contains(err.Error(), `"stripe/live"`) || !strings.Contains(err.Error(),
				`"stripe/live/acct_2"`) {
				t.Errorf("error %v", err)
			}
		})
	})
	t.Run("a checkpoint of a newer version", func(t *testing.T) {
		bubble(t, func(t *testing.T, w *world) {
			checkpoint, err := webhook.NewCheckpoint(w.store, "stripe", window)
			if err != nil {
				t.Fatal(err)
			}
			for _, text := range []string{`{"version":2,"scope":"stripe/live","seen":1}`, "not JSON"} {
				if err := checkpoint.Save(t.Context(), []byte(text)); err != nil {
					t.Fatal(err)
				}
				if err := w.backfill(t).Once(t.Context()); err == nil || !strings.Contains(err.Error(),
					"was not written by this version") {
					t.Errorf("error %v", err)
				}
			}
		})
	})
	t.Run("events outside of the period", func(t *testing.T) {
		bubble(t, func(t *testing.T, w *world) {
			w.stripe.fail(func(out http.ResponseWriter, r *http.Request) {
				r.URL.RawQuery = "limit=100"
				w.stripe.list(out, r)
			})
			w.stripe.add(event(1, 31*24*time.Hour))
			if err := w.backfill(t).Once(t.Context()); err == nil || !strings.Contains(err.Error(),
				"outside of the period") {
				t.Errorf("error %v", err)
			}
			w.wantEffects(t, 0)
		})
	})
	t.Run("a consumer that cannot start", func(t *testing.T) {
		bubble(t, func(t *testing.T, w *world) {
			w.stripe.add(event(1, time.Minute))
			w.once(t, w.backfill(t))
			w.billing = w.consumer(t, consumer.Config[tx]{Store: w.store}) // a second one with the same name
			if err := w.backfill(t).Once(t.Context()); !errors.Is(err, dedup.ErrNameTaken) {
				t.Errorf("error %v, want ErrNameTaken", err)
			}
		})
	})
	t.Run("a closed consumer", func(t *testing.T) {
		bubble(t, func(t *testing.T, w *world) {
			w.stripe.add(event(1, time.Minute))
			w.billing.Close()
			if err := w.backfill(t).Once(t.Context()); !errors.Is(err, consumer.ErrClosed) {
				t.Errorf("error %v, want ErrClosed", err)
			}
		})
	})
}

// Run goes on after a pass that failed, and ends without an error.
func TestBackfillRuns(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var log strings.Builder
		b := w.backfill(t, func(cfg *stripehook.BackfillConfig[tx], _ *stripehook.ClientConfig) {
			cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
		})
		w.stripe.fail(problem(http.StatusForbidden, "invalid_request_error", ""))
		w.stripe.add(event(1, time.Minute))
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- b.Run(ctx) }()
		<-time.After(time.Minute)
		w.wantEffects(t, 0)
		<-time.After(10 * time.Minute) // the default of Interval
		w.wantEffects(t, 1)
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Run returns %v, want nil", err)
		}
		if n := strings.Count(log.String(), "\n"); n != 1 || !strings.Contains(log.String(),
			"Stripe answered 403 invalid_request_error req_1") || strings.Contains(log.String(), liveKey) {
			t.Errorf("%d lines: %s", n, &log)
		}
	})
}

// Two processes run the same backfill at the same time.
func TestTwoBackfillsHaveOneEffect(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.stripe.add(events(500, time.Minute)...)
		var all sync.WaitGroup
		for range 2 {
			process := &world{
				stripe: w.stripe, store: consumertest.NewStoreOn(w.store.Database()), since: w.since,
				ids: map[string]bool{},
			}
			process.billing = process.consumer(t, consumer.Config[tx]{Store: process.store})
			b := process.backfill(t, func(cfg *stripehook.BackfillConfig[tx],
				_ *stripehook.ClientConfig,
			) {
				cfg.MaxPages = 1
			})
			all.Go(func() {
				if err := b.Once(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		for i := range 500 {
			if id := event(i, 0).ID; w.store.Database().Count("effect of "+id) != 1 {
				t.Errorf("%s has %d effects", id, w.store.Database().Count("effect of "+id))
			}
		}
	})
}
