package stripehook_test

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/webhook/stripehook"
	"github.com/txonce/txonce/consumer"
)

func TestBackfillPages(t *testing.T) {
	for _, tt := range []struct {
		name     string
		events   func() []stripehook.Event
		maxPages int
		sorted   bool // each event runs after those that were created before it
	}{
		{"none", func() []stripehook.Event { return nil }, 10, true},
		{"one page", func() []stripehook.Event { return events(100, time.Minute) }, 10, true},
		{"a page and an event", func() []stripehook.Event { return events(101, time.Minute) }, 10, true},
		{"all pages that may be kept", func() []stripehook.Event { return events(200, time.Minute) }, 2, true},
		{"one event more", func() []stripehook.Event { return events(201, time.Minute) }, 2, true},
		{"far more", func() []stripehook.Event { return events(700, time.Minute) }, 1, true},
		{"many in each second", func() []stripehook.Event { return events(700, 20*time.Millisecond) }, 1, true},
		{"too many in one second", func() []stripehook.Event { return events(450, 0) }, 2, false},
		{"a burst after a long pause", func() []stripehook.Event {
			return append([]stripehook.Event{event(900, 29*24*time.Hour)}, events(450, time.Millisecond)...)
		}, 2, true},
		{"a burst before a long pause", func() []stripehook.Event {
			var all []stripehook.Event
			for i := range 450 {
				all = append(all, event(i, 20*24*time.Hour))
			}
			return append(all, event(900, time.Second))
		}, 2, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				w.stripe.add(tt.events()...)
				n := len(tt.events())
				b := w.backfill(t, func(cfg *stripehook.BackfillConfig[tx],
					_ *stripehook.ClientConfig,
				) {
					cfg.MaxPages = tt.maxPages
				})
				w.once(t, b)
				w.wantEffects(t, n)
				runs := w.took()
				if len(runs) != n {
					t.Errorf("%d runs, want %d", len(runs), n)
				}
				if tt.sorted && !slices.IsSortedFunc(runs,
					func(a, b *consumer.Message) int { return a.Time.Compare(b.Time) }) {
					t.Error("events did not run in the order of their times")
				}
				requests := w.stripe.taken()
				if most := 25*(tt.maxPages+1) + 6*n/100; len(requests) > most {
					// 22 times half of 30 days are less than a second
					t.Errorf("%d requests, want %d at most", len(requests), most)
				}
				for _, r := range requests {
					if r.URL.Query().Get("limit") != "100" {
						t.Errorf("a request without the largest limit: %v", r.URL)
					}
				}
				w.once(t, b) // the overlap
				if runs := w.took(); len(runs) != 0 {
					t.Errorf("%d events ran again", len(runs))
				}
			})
		})
	}
}

// Stripe has events of up to several hundred kB, and a hundred of them may be more than the Client reads at once.
func TestBackfillOfLargePages(t *testing.T) {
	limits := func(w *world) (all []string) {
		for _, r := range w.stripe.taken() {
			all = append(all, r.URL.Query().Get("limit"))
		}
		return all
	}
	tooLarge := func(limit int) http.HandlerFunc { return answer(strings.Repeat(" ", limit) + `{}`) }
	t.Run("smaller pages are asked for", func(t *testing.T) {
		bubble(t, func(t *testing.T, w *world) {
			w.stripe.add(events(60, time.Minute)...)
			w.stripe.fail(tooLarge(32<<20), tooLarge(32<<20))
			w.once(t, w.backfill(t))
			w.wantEffects(t, 60)
			if got, want := limits(w), []string{"100", "50", "25", "25", "25"}; !slices.Equal(got, want) {
				t.Errorf("limits %v, want %v", got, want)
			}
		})
	})
	t.Run("a page of one event cannot be smaller", func(t *testing.T) {
		bubble(t, func(t *testing.T, w *world) {
			w.stripe.add(events(60, time.Minute)...)
			w.stripe.fail(slices.Repeat([]http.HandlerFunc{func(w http.ResponseWriter, r *http.Request) {
				if limit, err := strconv.Atoi(r.URL.Query().Get("limit")); err != nil || limit < 1 {
					t.Errorf("limit %d, %v", limit, err)
				}
				tooLarge(5000)(w, r)
			}}, 100)...)
			b := w.backfill(t)
			stripehook.LimitAnswers(b, 5000)
			err := b.Once(t.Context())
			if err == nil || !strings.HasSuffix(err.Error(), "the answer is too large: it has more than 5000 bytes") {
				t.Errorf("error %v", err)
			}
			if got, want := limits(w), []string{"100", "50", "25", "12", "6", "3", "1"}; !slices.Equal(got, want) {
				t.Errorf("limits %v, want %v", got, want)
			}
			w.wantEffects(t, 0)
		})
	})
}

// Events that are added between two pages are handled by this pass or the next, and nothing twice.
func TestBackfillWhileEventsAreAdded(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.stripe.add(events(350, time.Minute)...)
		w.stripe.before = func(n int) {
			if n <= 12 {
				w.stripe.add(event(1000+2*n, 0), event(1001+2*n, 0))
			}
		}
		b := w.backfill(t, func(cfg *stripehook.BackfillConfig[tx], _ *stripehook.ClientConfig) { cfg.MaxPages = 2 })
		w.once(t, b)
		added := min(len(w.stripe.taken()), 12)
		w.stripe.before = nil
		w.once(t, b)
		w.wantEffects(t, 350+2*added)
		if runs := w.took(); len(runs) != 350+2*added {
			t.Errorf("%d runs, want %d", len(runs), 350+2*added)
		}
	})
}

// An event becomes visible after others that were created later.
func TestBackfillOverlap(t *testing.T) {
	for _, tt := range []struct {
		name    string
		overlap time.Duration
		late    time.Duration // before the newest event
		found   bool
	}{
		{"within the default", 0, time.Hour, true},
		{"beyond the default", 0, time.Hour + time.Second, false},
		{"within a longer one", 3 * time.Hour, 3 * time.Hour, true},
		{"in the same second", time.Nanosecond, 0, true},
		{"a part of a second counts as one", time.Nanosecond, time.Second, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				w.stripe.add(event(1, time.Minute))
				b := w.backfill(t, func(cfg *stripehook.BackfillConfig[tx],
					_ *stripehook.ClientConfig,
				) {
					cfg.Overlap = tt.overlap
				})
				w.once(t, b)
				w.stripe.add(event(2, time.Minute+tt.late))
				w.once(t, b)
				w.wantEffects(t, map[bool]int{true: 2, false: 1}[tt.found])
			})
		})
	}
}
