package audit_test

import (
	"database/sql"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/ops/audit"
	"github.com/txonce/txonce/dedup"
)

// A key that two transactions have committed is found, although its effects cannot be counted.
func TestLedger(t *testing.T) {
	t.Parallel()
	eachOutbox(t, 0, func(t *testing.T, o *outgoing) {
		c, err := consumer.New(consumer.Config[*sql.Tx]{
			Name: "charging", Store: o.store, Key: consumer.MessageID, AuditEvery: 1, Logger: slog.New(slog.DiscardHandler), Handle: o.charge,
		})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		deliver := func(n int, topic string) {
			t.Helper()
			m := message(fmt.Sprintf("order-%d", n))
			m.Position = fmt.Sprintf("%s/0/%d", topic, n)
			if err := c.Process(t.Context(), m); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			for n := range 20 {
				deliver(n, "orders")
			}
		}
		cfg := audit.Config{DB: o.db, Dialect: string(o.dialect), Consumer: "charging"}
		r, err := audit.Ledger(t.Context(), cfg)
		if err != nil || r.Checked != 20 || r.Faults() != 0 || r.Whole || len(r.Notes) > 0 {
			t.Errorf("%+v, %v", r, err)
		}
		o.exec(t, `DELETE FROM processed_messages WHERE id IN ('order-3', 'order-4')`)
		deliver(3, "again")
		deliver(4, "orders")
		o.exec(t, `DELETE FROM processed_messages WHERE id = 'order-4'`)
		r, err = audit.Ledger(t.Context(), cfg)
		if err != nil || r.Checked != 20 || r.Doubled != 2 || r.Faults() != 2 || len(r.Findings) != 2 {
			t.Fatalf("%+v, %v", r, err)
		}
		named, hash := r.Findings[0], r.Findings[1]
		if named.Key.ID != "order-3" {
			named, hash = hash, named
		}
		if named.Key.ID != "order-3" || named.Count != 2 || named.Where != "again/0/3 and orders/0/3" {
			t.Errorf("%+v", named)
		}
		of := dedup.Key{Consumer: "charging", ID: "order-4"}.Hash()
		if hash.Key.ID != fmt.Sprintf("%x", of[:]) || hash.Where != "orders/0/4" {
			t.Errorf("%+v", hash)
		}
		cfg.Consumer = "billing"
		if r, err := audit.Ledger(t.Context(), cfg); err != nil || r.Checked != 0 || len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "AuditEvery is 0") {
			t.Errorf("a consumer without AuditEvery: %+v, %v", r, err)
		}
	})
}

// A row of the ledger outlives its claim, and is deleted after another window.
func TestLedgerIsSwept(t *testing.T) {
	t.Parallel()
	eachOutbox(t, 0, func(t *testing.T, o *outgoing) {
		c, err := consumer.New(consumer.Config[*sql.Tx]{
			Name: "charging", Store: o.store, Key: consumer.MessageID, AuditEvery: 1, Window: 24 * time.Hour, Logger: slog.New(slog.DiscardHandler), Handle: o.charge,
		})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for n := range 5 {
			if err := c.Process(t.Context(), message(fmt.Sprint("order-", n))); err != nil {
				t.Fatal(err)
			}
		}
		for _, want := range []string{"5 claims, 5 rows", "0 claims, 5 rows", "0 claims, 0 rows"} {
			if _, err := o.store.Purge(t.Context(), dedup.Sweep{Owner: "test", Lease: time.Minute, Limit: 3}); err != nil {
				t.Fatal(err)
			}
			if _, err := o.store.Purge(t.Context(), dedup.Sweep{Owner: "test", Lease: time.Minute, Limit: 3}); err != nil {
				t.Fatal(err)
			}
			if got := o.rows(t); got != want {
				t.Errorf("%s, want %s", got, want)
			}
			o.age(t, 25*time.Hour)
		}
	})
}

func (o *outgoing) rows(t *testing.T) string {
	t.Helper()
	var claims, rows int
	if err := o.db.QueryRowContext(t.Context(), `SELECT (SELECT count(*) FROM processed_messages), (SELECT count(*) FROM audit_ledger)`).Scan(&claims, &rows); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d claims, %d rows", claims, rows)
}

// age makes all rows older.
func (o *outgoing) age(t *testing.T, by time.Duration) {
	t.Helper()
	for _, table := range []string{"processed_messages", "audit_ledger"} {
		older := fmt.Sprint("expires_at - ", by.Microseconds())
		if o.dialect == sqlstore.Postgres {
			older = fmt.Sprintf("expires_at - interval '%d seconds'", int(by.Seconds()))
		}
		o.exec(t, `UPDATE `+table+` SET expires_at = `+older)
	}
}
