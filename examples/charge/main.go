// Command charge takes orders and charges cards at a payment provider that misbehaves: it cuts connections, charges and
// then answers 500, answers late. Each order is delivered twice. Afterwards each order is charged once.
//
//	go run ./examples/charge
package main

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	_ "modernc.org/sqlite"

	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/calls/callstest"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/migrations"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout, 50); err != nil {
		log.Fatal(err)
	}
}

const schema = `
CREATE TABLE orders (id TEXT PRIMARY KEY, cents INTEGER NOT NULL);
CREATE TABLE payments (order_id TEXT NOT NULL, charge_id TEXT NOT NULL);`

func run(ctx context.Context, out io.Writer, orders int) (err error) {
	dir, err := os.MkdirTemp("", "charge")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "shop.db")+"?_pragma=journal_mode(wal)")
	if err != nil {
		return err
	}
	defer db.Close()
	if err := migrations.Apply(ctx, db, "sqlite", ""); err != nil {
		return err
	}
	if _, err := db.ExecContext(ctx, schema); err != nil {
		return err
	}
	store, err := sqlstore.New(sqlstore.Config{DB: db, Dialect: sqlstore.SQLite})
	if err != nil {
		return err
	}
	provider := &callstest.Provider{Remembers: 24 * time.Hour, Misbehave: callstest.Sometimes(3), Late: 200 * time.Millisecond}
	server := httptest.NewServer(provider)
	defer server.Close()
	s, err := newShop(store, server.URL)
	if err != nil {
		return err
	}
	if err := s.take(ctx, orders); err != nil {
		return err
	}
	if err := s.chargeAll(ctx); err != nil {
		return err
	}
	return audit(ctx, out, db, provider, orders)
}

// take handles each order twice, as a broker may deliver it.
func (s *shop) take(ctx context.Context, orders int) error {
	c, err := s.consumer()
	if err != nil {
		return err
	}
	for i := range orders {
		for range 2 {
			msg := &consumer.Message{Topic: "orders", Payload: fmt.Appendf(nil, `{"order_id": "o-%d", "cents": 1000}`, i)}
			if err := c.Process(ctx, msg); err != nil {
				return err
			}
		}
	}
	return nil
}

// chargeAll runs a relay until nothing is left to call.
func (s *shop) chargeAll(ctx context.Context) (err error) {
	r, err := s.relay()
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- r.Run(running) }()
	defer func() {
		stop()
		if stopped := <-ended; err == nil {
			err = stopped
		}
	}()
	for tick := time.NewTicker(50 * time.Millisecond); ; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-ended:
			ended <- err
			return err
		case <-tick.C:
		}
		if stats, err := s.store.Outbox().Stats(ctx); err == nil && stats.Pending == 0 {
			return nil
		}
	}
}

func audit(ctx context.Context, out io.Writer, db *sql.DB, provider *callstest.Provider, orders int) error {
	var payments, paid int
	err := db.QueryRowContext(ctx, `SELECT count(*), count(DISTINCT order_id) FROM payments`).Scan(&payments, &paid)
	if err != nil {
		return err
	}
	charged := 0
	for _, n := range provider.Charges() {
		charged += n
	}
	faults, repeats := provider.Faults()
	for fault, n := range faults {
		if fault != callstest.None {
			fmt.Fprintf(out, "the provider %s: %d times\n", fault, n)
		}
	}
	fmt.Fprintf(out, "the provider recognized %d repeats\n", repeats)
	fmt.Fprintf(out, "audit: %d orders, %d charges, %d payments of %d orders\n", orders, charged, payments, paid)
	if charged != orders || payments != orders || paid != orders {
		return fmt.Errorf("%d orders were charged %d times", orders, charged)
	}
	return nil
}
