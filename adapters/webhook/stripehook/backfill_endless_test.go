package stripehook_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// TestListWithoutEnd: a list that repeats its pages for ever must end with an error, as that of Apple's history does.
func TestListWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		at := time.Now().Add(-time.Hour).Truncate(time.Second)
		one, two := event(1, 0), event(2, 0)
		one.Created, two.Created = at.UTC(), at.UTC()
		requests := 0
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		w.stripe.before = func(int) {
			if requests++; requests > 20_000 {
				cancel()
			}
		}
		page := func(rw http.ResponseWriter, r *http.Request) {
			e := one
			if r.URL.Query().Get("starting_after") == one.ID {
				e = two
			}
			rw.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(rw, `{"object": "list", "url": "/v1/events", "has_more": true, "data": [%s]}`, form(e))
		}
		faults := make([]http.HandlerFunc, 20_010)
		for i := range faults {
			faults[i] = page
		}
		w.stripe.fail(faults...)
		err := w.backfill(t).Once(ctx)
		t.Logf("%d requests: %v", requests, err)
		if requests > 20_000 {
			t.Errorf("a list of two events was asked for %d times", requests)
		}
	})
}
