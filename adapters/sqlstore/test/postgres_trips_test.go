package sqlstore_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/outbox/driver"
)

// trips counts the statements that pgx sends: each is a round trip.
type trips struct {
	mu   sync.Mutex
	sent []string
}

func (r *trips) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	if words := strings.Fields(strings.ToLower(d.SQL)); !strings.Contains(d.SQL, "pg_notify") &&
		!strings.HasPrefix(words[0], "--") {
		r.sent = append(r.sent, strings.Join(words[:min(2, len(words))], " "))
	}
	return ctx
}

func (r *trips) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (r *trips) take() (sent []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	sent, r.sent = r.sent, nil
	return sent
}

// What a relay asks the database, where each statement is a round trip. It does not depend on the machine.
func TestOutboxPostgresRoundTrips(t *testing.T) {
	t.Parallel()
	d := openPostgres(t, testdb.Postgres(t))
	cfg, err := pgx.ParseConfig(d.dsn)
	if err != nil {
		t.Fatal(err)
	}
	sent := &trips{}
	cfg.Tracer = sent
	db := stdlib.OpenDB(*cfg)
	t.Cleanup(func() { _ = db.Close() })
	n := newNode(t, db, sqlstore.Config{Dialect: sqlstore.Postgres})
	s := open(t, n, time.Hour)
	renew(t, s)
	expect := func(what string, want int) {
		t.Helper()
		if got := sent.take(); len(got) != want {
			t.Errorf("%s: %d round trips, want %d: %q", what, len(got), want, got)
		}
	}
	poll := func(what string, messages int, want driver.Want) []driver.Leased {
		t.Helper()
		sent.take()
		msgs, err := s.Lease(t.Context(), want)
		if err != nil || len(msgs) != messages {
			t.Fatalf("%s: leased %d messages (%v), want %d", what, len(msgs), err, messages)
		}
		return msgs
	}
	maintain := func() {
		t.Helper()
		if err := s.Session.(driver.Maintainer).Maintain(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	maintain()
	maintain() // the first one moves the watermark
	poll("an idle poll", 0, driver.Want{Limit: 1000})
	expect("an idle poll", 4) // BEGIN, the settings, the poll, COMMIT
	enqueue(t, n, messages("a", 3, 3)...)
	notified := poll("a poll after a notification", 3, driver.Want{Limit: 1000, Notified: true})
	expect("a poll after a notification", 4)
	settle(t, s, outcomes(driver.Sent, notified...))
	expect("Settle", 5) // with a check of the shards
	enqueue(t, n, messages("b", 300, 4)...)
	many := poll("a poll of many", 300, driver.Want{Limit: 1000})
	expect("a poll of many", 5) // a second statement reads more from the shards that have more
	settle(t, s, outcomes(driver.Sent, many...))
	maintain()
	sent.take()
	maintain()
	expect("Maintain with nothing to do", 4)
	renew(t, s)
	expect("Renew", 7)
}
