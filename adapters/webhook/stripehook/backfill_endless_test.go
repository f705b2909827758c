package stripehook_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/webhook/stripehook"
)

// TestListWithoutEnd: a list that repeats its pages for ever must end with an error, as that of Apple's history does.
func TestListWithoutEnd(t *testing.T) {
	for name, test := range map[string]struct {
		honest bool // the list has no event outside of the period that was asked for
		want   string
	}{
		"of any time":   {false, "outside of the period that was asked for"},
		"of one second": {true, "raise BackfillConfig.MaxPages"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				one, two := event(1, time.Hour), event(2, time.Hour)
				page := func(rw http.ResponseWriter, r *http.Request) {
					e, query := one, r.URL.Query()
					if query.Get("starting_after") == one.ID {
						e = two
					}
					created := e.Created.Unix()
					if test.honest && (created < bound(query, "created[gte]", 0) ||
						created >= bound(query, "created[lt]", 1<<60)) {
						fmt.Fprint(rw, `{"object": "list", "url": "/v1/events", "has_more": false, "data": []}`)
						return
					}
					fmt.Fprintf(rw, `{"object": "list", "url": "/v1/events", "has_more": true, "data": [%s]}`, form(e))
				}
				const most = 1000
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				requests := 0
				w.stripe.before = func(int) {
					if requests++; requests > most {
						cancel()
					}
					w.stripe.fail(page) // the next answer
				}
				w.stripe.fail(page)
				b := w.backfill(t, func(cfg *stripehook.BackfillConfig[tx],
					_ *stripehook.ClientConfig,
				) {
					cfg.MaxPages = 1
				})
				err := b.Once(ctx)
				if err == nil || requests > most || !strings.Contains(err.Error(), test.want) {
					t.Errorf("%d requests: %v, want an error with %q", requests, err, test.want)
				}
			})
		})
	}
}
