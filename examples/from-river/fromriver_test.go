package fromriver

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // registers "pgx", which testdb takes
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/examples/internal/command"
	"github.com/txonce/txonce/internal/test/testdb"
)

const orders = 4

func payload(i int) []byte { return fmt.Appendf(nil, `{"order_id": "order-%d", "cents": 700}`, i+1) }

// The old code charges each order once while River has its job, and again when River has deleted the job. The keys of
// the jobs that River still has, and of the charges, are imported: then all of them are duplicates for the new code.
func TestMove(t *testing.T) {
	dsn := testdb.Tables(t, testdb.Postgres(t), `CREATE TABLE charges (order_id text, cents bigint)`)
	pool, err := pgxpool.New(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := migrator.Migrate(t.Context(), rivermigrate.DirectionUp, nil); err != nil {
		t.Fatal(err)
	}
	old, err := newBefore(pool)
	if err != nil {
		t.Fatal(err)
	}
	if err := old.client.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	deliver := func(want int) (duplicates int) {
		for i := range orders {
			duplicate, err := old.handle(t.Context(), payload(i))
			if err != nil {
				t.Fatal(err)
			}
			if duplicate {
				duplicates++
			}
		}
		completed(t, pool, want)
		return duplicates
	}
	if n := deliver(orders); n != 0 {
		t.Errorf("%d duplicates of new orders", n)
	}
	if n := deliver(orders); n != orders {
		t.Errorf("%d duplicates, want %d", n, orders)
	}
	// a day later: this is what River's cleaner does
	if _, err := pool.Exec(t.Context(), `DELETE FROM river_job WHERE state = 'completed'`); err != nil {
		t.Fatal(err)
	}
	if n := deliver(orders); n != 0 {
		t.Errorf("River knows %d orders whose jobs are deleted", n)
	}
	if err := old.client.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := charged(t, pool); got != 2*orders {
		t.Errorf("the old code has charged %d times, want %d", got, 2*orders)
	}

	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "real-keys.txt"), []byte("order-1\norder-4\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), command.Build(t, "github.com/txonce/txonce/cmd/txonce"), "import",
		"--consumer", "billing", "--query", `SELECT order_id FROM charges UNION
			SELECT args->>'order_id' FROM river_job WHERE kind = 'charge' AND state = 'completed'`,
		"--key-column", "order_id", "--no-time", "--keys-file", "real-keys.txt", "--window", "360h",
		"--reason", "the move from River", "--yes")
	cmd.Env, cmd.Dir = append(os.Environ(), "TXONCE_DSN="+dsn), dir
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "imported     4, ") {
		t.Fatalf("%v: %s", err, out)
	}
	store, err := pgxstore.New(pgxstore.Config{Pool: pool})
	if err != nil {
		t.Fatal(err)
	}
	billing, err := after(store)
	if err != nil {
		t.Fatal(err)
	}
	defer billing.Close()
	for i := range orders + 1 { // and a new one
		if err := billing.Process(t.Context(), &consumer.Message{Topic: "orders", Payload: payload(i)}); err != nil {
			t.Fatal(err)
		}
	}
	if got := charged(t, pool); got != 2*orders+1 {
		t.Errorf("charged %d times, want %d", got, 2*orders+1)
	}
}

// completed waits until River has completed so many jobs, and has none that waits.
func completed(t *testing.T, pool *pgxpool.Pool, want int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		var done, all int
		if err := pool.QueryRow(ctx, `SELECT count(*) FILTER (WHERE state = 'completed'), count(*) FROM river_job`).Scan(&done,
			&all); err != nil {
			t.Fatal(err)
		}
		if done == want && all == want {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%d of %d jobs are completed, want %d", done, all, want)
		}
	}
}

func charged(t *testing.T, pool *pgxpool.Pool) (n int) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM charges`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
