package pgxstore_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/outbox/driver"
	"github.com/txonce/txonce/outbox/outboxtest"
	"github.com/txonce/txonce/outbox/relay"
)

// After a restore without the sequences, new rows would get numbers that are in use. A relay does not start then, and
// its error has the statement that mends it. So does Check, also for the audit.
func TestSequencesBehindTheNumbersInUse(t *testing.T) {
	servers(t, func(t *testing.T, server func(testing.TB) string) {
		d := newOutboxDB(t, server, 4)
		run := func(within time.Duration) error {
			r, err := relay.New(relay.Config{
				Queue: d.store, Publisher: new(outboxtest.FakePublisher),
				Logger: slog.New(slog.DiscardHandler),
			})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			return r.Run(ctx)
		}
		exec := func(query string) {
			t.Helper()
			if _, err := d.pool.Exec(t.Context(), query); err != nil {
				t.Fatalf("%s: %v", query, err)
			}
		}
		for _, test := range []struct{ name, insert, back, sequence string }{
			{
				"parked", `INSERT INTO outbox_parked (seq, shard, id, topic, payload, enqueued_at, attempts, error) VALUES (1000, 1, 'a', 'orders', '', now(), 1, 'no')`,
				`SELECT setval('outbox_seq', 7)`, "outbox_seq",
			},
			{
				"pending, and never called", `INSERT INTO outbox_messages (shard, seq, id, topic, payload) VALUES (63, 2000, 'b', 'orders', '')`,
				`SELECT setval('outbox_seq', 1, false)`, "outbox_seq",
			},
		} {
			exec(test.back)
			exec(test.insert)
			err := d.store.Check(t.Context())
			if !errors.Is(err, dedup.ErrSettings) || !strings.Contains(err.Error(), test.sequence) {
				t.Fatalf("%s: Check = %v", test.name, err)
			}
			if test.sequence == "outbox_seq" {
				if ran := run(20 * time.Second); !errors.Is(ran, driver.ErrSettings) || !strings.Contains(ran.Error(),
					err.Error()) {
					t.Errorf("%s: Run = %v, Check = %v", test.name, ran, err)
				}
			}
			_, mend, _ := strings.Cut(err.Error(), "start again: ")
			exec(mend)
			if err := d.store.Check(t.Context()); err != nil {
				t.Errorf("%s: Check after %s = %v", test.name, mend, err)
			}
			exec(`DELETE FROM outbox_messages`) // so that the next relay need not publish
			if err := run(200 * time.Millisecond); err != nil {
				t.Errorf("%s: Run after %s = %v", test.name, mend, err)
			}
		}
		// A sequence that gives the next free number is not behind.
		exec(`SELECT setval('outbox_seq', 1001, false)`)
		if err := d.store.Check(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
