package stripehook_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/webhook/stripehook"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/observe"
)

// fetchedFrom returns the earliest time that the latest requests asked for.
func (w *world) fetchedFrom() time.Time {
	from := int64(1 << 60)
	for _, r := range w.stripe.taken() {
		n, _ := strconv.ParseInt(r.URL.Query().Get("created[gte]"), 10, 64)
		from = min(from, n)
	}
	return time.Unix(from, 0)
}

func TestBackfillContinues(t *testing.T) {
	t.Run("after a crash in the middle", func(t *testing.T) {
		bubble(t, func(t *testing.T, w *world) {
			all := events(1000, time.Minute)
			w.stripe.add(all...)
			onePage := func(cfg *stripehook.BackfillConfig[tx], _ *stripehook.ClientConfig) { cfg.MaxPages = 1 }
			ctx, crash := context.WithCancel(t.Context())
			w.fail = func(msg *consumer.Message) error {
				if msg.ID == "evt_00600" {
					crash()
					return errors.New("the process is gone")
				}
				return nil
			}
			if err := w.backfill(t, onePage).Once(ctx); !errors.Is(err, context.Canceled) {
				t.Fatalf("error %v, want the context's", err)
			}
			done := w.effects()
			w.fail = nil
			w.took()
			w.stripe.taken()
			w.once(t, w.backfill(t, onePage))
			w.wantEffects(t, 1000)
			if runs := w.took(); len(runs) != 1000-done {
				t.Errorf("%d runs, want %d", len(runs), 1000-done)
			}
			if from := w.fetchedFrom(); from.Before(all[300].Created) || from.After(all[600].Created) {
				t.Errorf("the second process fetches from %v, want a time before %v, and not far before", from,
					all[600].Created)
			}
		})
	})
	t.Run("at the checkpoint, less the overlap", func(t *testing.T) {
		bubble(t, func(t *testing.T, w *world) {
			w.stripe.add(events(1000, time.Minute)...)
			w.once(t, w.backfill(t))
			w.stripe.taken()
			w.once(t, w.backfill(t))
			if from, want := w.fetchedFrom(), time.Now().Add(-time.Minute-time.Hour); !from.Equal(want) {
				t.Errorf("the second process fetches from %v, want %v", from, want)
			}
		})
	})
	t.Run("not before Since", func(t *testing.T) {
		bubble(t, func(t *testing.T, w *world) {
			w.since = time.Now().Add(-time.Minute + time.Nanosecond)
			w.stripe.add(event(1, time.Minute), event(2, 59*time.Second))
			b := w.backfill(t)
			w.once(t, b)
			w.once(t, b) // the overlap reaches further back
			w.wantEffects(t, 1)
			if runs := w.took(); len(runs) != 1 || runs[0].ID != "evt_00002" {
				t.Errorf("%d runs, want one of the event since then", len(runs))
			}
		})
	})
}

// The checkpoint never passes an event that is not handled.
func TestCheckpointWaitsForEachEvent(t *testing.T) {
	for _, tt := range []struct {
		name     string
		maxPages int
	}{{"of the only period", 10}, {"of the first of several periods", 1}} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				w.stripe.add(events(300, time.Minute)...)
				change := func(cfg *stripehook.BackfillConfig[tx], _ *stripehook.ClientConfig) {
					cfg.MaxPages, cfg.Overlap = tt.maxPages, time.Second
				}
				away := true
				w.fail = func(msg *consumer.Message) error {
					if away && msg.ID == "evt_00050" {
						return &consumer.RetryError{
							Err: errors.New("a service is away"), After: time.Second,
							Held: true,
						}
					}
					return nil
				}
				ctx, stop := context.WithTimeout(t.Context(), time.Hour)
				defer stop()
				if err := w.backfill(t, change).Once(ctx); !errors.Is(err, context.DeadlineExceeded) {
					t.Fatalf("error %v, want that of the context", err)
				}
				if n := w.effects(); n < 50 {
					t.Errorf("%d effects: an event that waits held the others back", n)
				}
				away = false
				w.once(t, w.backfill(t, change))
				w.wantEffects(t, 300)
				w.wantLetters(t)
			})
		})
	}
}

// Poison is parked by the consumer, and the checkpoint goes on.
func TestPoisonDoesNotBlock(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.stripe.add(events(300, time.Minute)...)
		w.fail = func(msg *consumer.Message) error {
			if msg.ID == "evt_00050" {
				return errors.New("poison")
			}
			return nil
		}
		b := w.backfill(t, func(cfg *stripehook.BackfillConfig[tx], _ *stripehook.ClientConfig) { cfg.MaxPages = 1 })
		w.once(t, b)
		w.wantEffects(t, 299)
		w.wantLetters(t, "evt_00050 "+string(observe.CauseExhausted))
		w.stripe.taken()
		w.once(t, b)
		if from, want := w.fetchedFrom(), time.Now().Add(-2*time.Hour); from.Before(want) {
			t.Errorf("the next pass fetches from %v: the checkpoint has not passed the parked event", from)
		}
	})
}

// Without a parking lot the consumer rejects poison. Nobody keeps it, so the checkpoint stays before it.
func TestRejectedEventsHoldTheCheckpoint(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		// a deduptest.Store does not park
		w.billing = w.consumer(t, consumer.Config[tx]{Store: w.store.Store, RejectGivenUp: true, MaxAttempts: 2})
		w.stripe.add(events(300, time.Minute)...)
		broken := true
		w.fail = func(msg *consumer.Message) error {
			if broken && msg.ID == "evt_00050" {
				return errors.New("poison")
			}
			return nil
		}
		change := func(cfg *stripehook.BackfillConfig[tx], _ *stripehook.ClientConfig) { cfg.MaxPages = 1 }
		err := w.backfill(t, change).Once(t.Context())
		if err == nil || !strings.Contains(err.Error(), "stripe/evt_00050 was given up and could not be parked") {
			t.Errorf("error %v, want one that names the event", err)
		}
		w.wantEffects(t, 299)
		broken = false
		w.once(t, w.backfill(t, change))
		w.wantEffects(t, 300)
	})
}

// Deliveries that were no attempts do not count against an event: after many of them it still has all its attempts.
func TestUncountedAttempts(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.stripe.add(event(1, time.Minute))
		calls := 0
		w.fail = func(*consumer.Message) error {
			calls++
			switch {
			case calls <= 200:
				return &consumer.RetryError{Err: errors.New("a service is away"), After: time.Second, Held: true}
			case calls == 201:
				return errors.New("a failure that counts")
			default:
				return nil
			}
		}
		w.once(t, w.backfill(t))
		w.wantEffects(t, 1)
		w.wantLetters(t)
	})
}

// A Processor that asks for repeats at once, for example because a handler returns consumer.RetryAfter(err, 0), is not
// called in a tight loop.
func TestBackfillPausesBetweenAttempts(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.stripe.add(event(1, time.Minute), event(2, time.Minute))
		began, calls := time.Now(), 0
		w.fail = func(msg *consumer.Message) error {
			if calls++; calls > 2*50 {
				return nil
			}
			return &consumer.RetryError{Err: errors.New("a service is away"), Held: true}
		}
		w.once(t, w.backfill(t))
		w.wantEffects(t, 2)
		if took := time.Since(began); took < 3*time.Minute || took > 10*time.Minute {
			t.Errorf("50 repeats took %v, want pauses of up to 10 s", took)
		}
	})
}
