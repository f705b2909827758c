package pgxstore_test

import (
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/outbox"
)

// A stream that breaks at the same place again and again is there most of the time, and brings nothing: a Lease says so, again
// and again, rather than that nothing is due.
func TestOutboxWALStreamBreaksAtTheSamePlace(t *testing.T) {
	servers(t, func(t *testing.T, server func(testing.TB) string) {
		w := newWALTest(t, server, pgxstore.OutboxConfig{})
		s := w.hold(w.open(time.Hour))
		w.db.exec(t, `SELECT pg_logical_emit_message(true, 'txonce:' || $1, '\x09'::bytea)`, w.slot())
		w.mustEnqueue("a-1")
		for range 3 {
			// On a busy machine it takes a while to break again, or fails otherwise meanwhile.
			w.until("a Lease that says it cannot be read", func() bool {
				got, err := s.Lease(t.Context(), outbox.Want{Limit: 1})
				if len(got) > 0 || err != nil && !w.store.Retryable(err) {
					t.Fatalf("Lease = %v, %v; want that it cannot be read", idsOf(got), err)
				}
				return err != nil && strings.Contains(err.Error(), "a newer program has emitted it")
			})
		}
	})
}
