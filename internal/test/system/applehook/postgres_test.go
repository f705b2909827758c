package applehook_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // registers "pgx", which testdb takes

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/applehook"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/test/testdb"
)

// On PostgreSQL and over HTTP: two processes make passes while the receiver's consumer gets some of the same
// notifications.
func TestBackfillPostgres(t *testing.T) {
	dsn := testdb.Schema(t, testdb.Postgres(t))
	pool, err := pgxpool.New(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // a Backfill waits for a database without end
	defer cancel()
	tables := testdb.PostgresTables(t, `CREATE TABLE effects (notification text NOT NULL, original text NOT NULL)`)
	if _, err := pool.Exec(ctx, tables); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	server := httptest.NewServer(w.api)
	t.Cleanup(server.Close)
	var ids, payloads []string
	for i := range 90 {
		at := time.Now().Add(time.Duration(-i) * 30 * time.Minute)
		signedPayload, id := w.signed(at, "DID_RENEW")
		w.api.Missed(at, signedPayload)
		ids, payloads = append(ids, id), append(payloads, signedPayload)
	}
	logger := slog.New(slog.NewTextHandler(io.Discard, nil))
	process := func() (*consumer.Consumer[pgx.Tx], *applehook.Backfill[pgx.Tx]) {
		store, err := pgxstore.New(pgxstore.Config{Pool: pool})
		if err != nil {
			t.Fatal(err)
		}
		billing, err := consumer.New(consumer.Config[pgx.Tx]{
			Name: "billing", Store: store, Key: consumer.MessageID, Window: 200 * day, Logger: logger,
			Handle: func(ctx context.Context, tx pgx.Tx, msg *consumer.Message) error {
				n, err := applehook.Decode(msg)
				if err != nil {
					return err
				}
				_, err = tx.Exec(ctx, `INSERT INTO effects VALUES ($1, $2)`, n.UUID,
					n.Transaction.OriginalTransactionID)
				return err
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		b, err := applehook.NewBackfill(applehook.BackfillConfig[pgx.Tx]{
			Name: "billing", Verifier: w.verifier, Processor: billing, Store: store, IssuerID: "issuer", KeyID: "KEY",
			PrivateKey: w.key,
			URL:        server.URL, HTTPClient: &http.Client{}, Logger: logger, Since: time.Now().Add(-3 * day),
		})
		if err != nil {
			t.Fatal(err)
		}
		return billing, b
	}
	first, firstBackfill := process()
	_, secondBackfill := process()
	var all sync.WaitGroup
	for _, b := range []*applehook.Backfill[pgx.Tx]{firstBackfill, secondBackfill} {
		all.Go(func() {
			if _, err := b.Pass(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	all.Go(func() { // the receiver
		for _, signedPayload := range payloads[:40] {
			events, err := w.verifier.Verify(ctx, &webhook.Delivery{Body: body(t, signedPayload), Time: time.Now()})
			if err != nil {
				t.Error(err)
				return
			}
			events[0].Message.Attempt = 1
			if err := first.Process(ctx, &events[0].Message); err != nil {
				t.Error(err)
			}
		}
	})
	all.Wait()
	check := func() {
		t.Helper()
		var rows, distinct int
		if err := pool.QueryRow(ctx, `SELECT count(*), count(DISTINCT notification) FROM effects`).Scan(&rows,
			&distinct); err != nil {
			t.Fatal(err)
		}
		if rows != len(ids) || distinct != len(ids) {
			t.Errorf("%d effects of %d notifications, want %d", rows, distinct, len(ids))
		}
	}
	check()
	_, third := process() // begins at the checkpoint that another process saved
	passed, err := third.Pass(ctx)
	if err != nil || passed.New != 0 || passed.Read == 0 || passed.Read > 10 {
		t.Errorf("%+v, %v", passed, err)
	}
	check()
}
