package main

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/migrations"
)

// An import leaves out rows that are older than the window. A message of that time is parked and not handled, also by a
// consumer that has never run before: nobody can tell whether its row was left out. Newer messages are handled.
func TestImportParksMessagesWhoseRowsItLeavesOut(t *testing.T) {
	const day = 24 * time.Hour
	for name, s := range servers() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newKills(t, s)
			if err := migrations.Apply(t.Context(), k.db, string(k.dialect), ""); err != nil {
				t.Fatal(err)
			}
			k.exec(t, `CREATE TABLE ledger (id varchar(100) NOT NULL)`,
				`CREATE TABLE old_processed (order_id varchar(100) PRIMARY KEY, processed_at bigint)`)
			now := time.Now()
			for id, age := range map[string]time.Duration{"order-1": 40 * day, "order-2": 20 * day, "order-3": day} {
				k.exec(t, fmt.Sprintf(`INSERT INTO old_processed VALUES ('%s', %d)`, id, now.Add(-age).Unix()))
			}
			keys := t.TempDir() + "/keys"
			if err := os.WriteFile(keys, []byte("order-3\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			line := func(more ...string) string {
				t.Helper()
				var out bytes.Buffer
				if err := importLine(t.Context(), &out, append([]string{
					"--consumer", "billing", "--from", "old_processed", "--key-column", "order_id", "--time-column",
					"processed_at", "--window", "360h", "--keys-file", keys, "--reason", "x", "--yes", "--dsn", k.line,
				}, more...)...); err != nil {
					t.Fatalf("%v: %s", err, out.String())
				}
				return out.String()
			}
			begin := now.Add(-15 * day).UTC().Format("2006-01-02")
			if out := line("--dry-run"); !strings.Contains(out, "left out     2 rows of before ") ||
				!strings.Contains(out, "horizon      of billing would be "+begin) {
				t.Errorf("dry run: %s", out)
			}
			if out := line(); !strings.Contains(out, "horizon      of billing is "+begin) {
				t.Error(out)
			}
			if out := line(); !strings.Contains(out, "horizon      of billing is already "+begin) {
				t.Errorf("again: %s", out)
			}
			c, err := k.consumer("billing", k.charge)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			for id, age := range map[string]time.Duration{
				"order-1": 40 * day, "order-2": 20 * day, "order-3": day, "new": time.Second, "waited": 14 * day,
			} {
				msg := delivery(id, "x")
				msg.Time = now.Add(-age)
				if err := c.Process(context.WithoutCancel(t.Context()), msg); err != nil {
					t.Fatal(err)
				}
			}
			for query, want := range map[string]string{
				`SELECT id FROM ledger ORDER BY id`:                                                  "new waited",
				`SELECT message_id FROM dead_letters WHERE cause = 'unprovable' ORDER BY message_id`: "order-1 order-2",
			} {
				if got := texts(t, k.db, query); got != want {
					t.Errorf("%s: %s, want %s", query, got, want)
				}
			}
		})
	}
}

// texts returns the rows of a query with one column.
func texts(t *testing.T, db *sql.DB, query string) string {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var all []string
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			t.Fatal(err)
		}
		all = append(all, text)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return strings.Join(all, " ")
}
