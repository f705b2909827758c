package stripehook_test

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // registers "pgx", which testdb takes

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/stripehook"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/test/testdb"
)

// On a real database and real connections: some events come by webhook only, some by the backfill only, and most by
// both, in either order. The process is stopped and started in between.
func TestPostgres(t *testing.T) {
	pool, err := pgxpool.New(t.Context(), testdb.Schema(t, testdb.Postgres(t)))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if err := pgxstore.Migrate(t.Context(), pool, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(), `CREATE TABLE charges (event_id text)`); err != nil {
		t.Fatal(err)
	}
	stripe := &fakeStripe{}
	server := httptest.NewServer(stripe)
	defer server.Close()
	client, err := stripehook.NewClient(stripehook.ClientConfig{
		APIKey: liveKey, Mode: stripehook.Live,
		BaseURL: server.URL,
	})
	if err != nil {
		t.Fatal(err)
	}

	verifier := newVerifier(t, stripehook.Config{})

	// start is a new process. In it, the handler of the event called crash cancels the pass.
	start := func(crash string, cancel func()) (*consumer.Consumer[pgx.Tx], *stripehook.Backfill[pgx.Tx]) {
		t.Helper()
		store, err := pgxstore.New(pgxstore.Config{Pool: pool})
		if err != nil {
			t.Fatal(err)
		}
		billing, err := consumer.New(consumer.Config[pgx.Tx]{
			Name: "billing", Store: store, Key: consumer.MessageID, Window: window,
			Logger: slog.New(slog.DiscardHandler),
			Handle: func(ctx context.Context, tx pgx.Tx, msg *consumer.Message) error {
				if msg.ID == crash {
					cancel()
				}
				_, err := tx.Exec(ctx, `INSERT INTO charges VALUES ($1)`, msg.ID)
				return err
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		checkpoint, err := webhook.NewCheckpoint(store, "stripe", window)
		if err != nil {
			t.Fatal(err)
		}
		backfill, err := stripehook.NewBackfill(stripehook.BackfillConfig[pgx.Tx]{
			Client: client, Verifier: verifier, Processor: billing, Checkpoint: checkpoint,
			Since: time.Now().Add(-20 * 24 * time.Hour), MaxPages: 1,
		})
		if err != nil {
			t.Fatal(err)
		}
		return billing, backfill
	}
	receive := func(billing *consumer.Consumer[pgx.Tx], e stripehook.Event) {
		t.Helper()
		body := e.Body(nil)
		d := delivery(body, stripehook.Sign(body, time.Now(), liveSecret))
		d.Time = time.Now()
		msg := accepted(t, verifier, d).Message
		if err := billing.ProcessBatch(t.Context(), []*consumer.Message{&msg})[0]; err != nil {
			t.Fatal(err)
		}
	}

	const n = 350
	all := events(n, time.Minute)
	stripe.add(all[:n-1]...) // the last one is not in the list yet
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	billing, backfill := start(all[200].ID, cancel)
	for i := 0; i < n; i += 3 {
		receive(billing, all[i])
	}
	receive(billing, all[n-1])
	if err := backfill.Once(ctx); err == nil {
		t.Fatal("the first process did not stop in the middle")
	}

	billing, backfill = start("", nil)
	for range 2 {
		if err := backfill.Once(t.Context()); err != nil {
			t.Fatal(err)
		}
		stripe.add(all[n-1])
	}
	for i := range all {
		if i%2 == 0 {
			receive(billing, all[i])
		}
	}
	var rows, distinct int
	if err := pool.QueryRow(t.Context(), `SELECT count(*), count(DISTINCT event_id) FROM charges`).Scan(&rows,
		&distinct); err != nil {
		t.Fatal(err)
	}
	store, err := pgxstore.New(pgxstore.Config{Pool: pool})
	if err != nil {
		t.Fatal(err)
	}
	parked, err := store.DeadLetters(t.Context(), consumer.DeadLetterFilter{})
	if err != nil {
		t.Fatal(err)
	}
	if rows != n || distinct != n || len(parked) != 0 {
		t.Errorf("%d charges of %d events, %d dead letters; want %d of %d, none", rows, distinct, len(parked), n, n)
	}
}
