package pgxstore_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/outbox"
)

// What is unparked is in the tables, and what is pending of its key in the stream: a session that has read the stream knows of both, and
// leases the older one first, whichever of the two it looks at first.
func TestOutboxWALUnparkedGoesFirst(t *testing.T) {
	servers(t, func(t *testing.T, server func(testing.TB) string) {
		w := newWALTest(t, server, pgxstore.OutboxConfig{})
		s := w.hold(w.open(time.Hour))
		for round := range 6 {
			older, later := fmt.Sprintf("k-%d-older", round), fmt.Sprintf("k-%d-later", round)
			w.mustEnqueue(older)
			l := w.lease(s, 1)
			w.settleAll(s, outbox.Outcome{Leased: l[0], Verdict: outbox.Parked, KeepOrder: outbox.FollowersPass})
			w.mustEnqueue(later)
			if err := unpark(t.Context(), w.store, l[0].Seq); err != nil {
				t.Fatal(err)
			}
			unparked, err := pglogrepl.ParseLSN(w.db.strings(t, `SELECT pg_current_wal_flush_lsn()::text`)[0])
			if err != nil {
				t.Fatal(err)
			}
			w.until("the stream to bring that", func() bool { return pgxstore.WALReceived(s) >= unparked })
			var got []string
			for len(got) < 2 {
				msgs := w.lease(s, 1)
				got = append(got, idsOf(msgs)...)
				w.settle(s, outbox.Sent, msgs...)
			}
			if !slices.Equal(got, []string{older, later}) {
				t.Errorf("leased %v, want %s first", got, older)
			}
			w.hold(s)
		}
	})
}
