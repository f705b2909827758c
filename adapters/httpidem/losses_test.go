package httpidem_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/adapters/httpidem"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/observe"
)

// A client that has its answer does not repeat the request, so the Guard reports when the database has lost its work.
func TestLostRequestsAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var losses []observe.Loss
		a := newAPI(t, func(c *config) {
			c.Trace = &httpidem.Trace{WentBack: func(_ context.Context, l observe.Loss) { losses = append(losses, l) }}
		})
		db, h := a.store.Database(), a.create()
		n := 0
		send := func(requests int) {
			for range requests {
				n++
				if res := a.send(h, request{key: fmt.Sprint("key-", n)}); res.Code != http.StatusCreated {
					t.Fatalf("status %d", res.Code)
				}
				<-time.After(100 * time.Millisecond)
			}
		}
		send(100)
		db.Promote(db.Snapshot()) // a restart
		send(100)
		<-time.After(time.Hour)
		if len(losses) != 0 {
			t.Fatalf("a restart of the database is reported: %v", losses)
		}
		send(10)
		snapshot, from := db.Snapshot(), time.Now()
		send(3)
		db.Promote(snapshot)
		send(10)
		<-time.After(time.Minute)
		if lines := strings.Count(a.log.String(), "the database lost"); len(losses) != 1 || lines != 1 || losses[0].Messages < 3 ||
			losses[0].Messages > 4 || losses[0].From.After(from) || losses[0].Name != "api" {
			t.Errorf("reported %+v, with %d lines", losses, lines)
		}
	})
}

// What a handler that panicked has claimed is rolled back, and not lost.
func TestPanicsAreNoLosses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var losses []observe.Loss
		a := newAPI(t, func(c *config) {
			c.Trace = &httpidem.Trace{WentBack: func(_ context.Context, l observe.Loss) { losses = append(losses, l) }}
		})
		db, h := a.store.Database(), a.create()
		send := func(h http.Handler, keys string) {
			for n := range 5 {
				func() {
					defer func() { _ = recover() }()
					a.send(h, request{key: fmt.Sprint(keys, n)})
				}()
				<-time.After(100 * time.Millisecond)
			}
		}
		send(h, "before-")
		send(a.guard.Handle(func(context.Context, *deduptest.Tx, http.ResponseWriter, *http.Request) error {
			panic("a nil map")
		}), "panic-")
		db.Promote(db.Snapshot()) // a restart
		send(h, "after-")
		<-time.After(time.Hour)
		if len(losses) != 0 {
			t.Errorf("reported %+v", losses)
		}
	})
}
