package fromredis

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // registers "pgx", which testdb takes
	"github.com/redis/go-redis/v9"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/examples/internal/command"
	"github.com/txonce/txonce/internal/test/testdb"
)

// errCrash stands for the end of the process.
var errCrash = errors.New("the process is killed")

type move struct {
	dsn, dir string
	pool     *pgxpool.Pool
	redis    *redis.Client
	old      *before
}

// newMove handles four orders with the old code, which dies in the middle of the third. Each test has keys of its own in
// Redis.
func newMove(t *testing.T) *move {
	t.Helper()
	m := &move{dsn: testdb.Tables(t, testdb.Postgres(t), `CREATE TABLE charges (order_id text, cents bigint)`), dir: t.TempDir()}
	var err error
	if m.pool, err = pgxpool.New(t.Context(), m.dsn); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.pool.Close)
	m.redis = redis.NewClient(&redis.Options{Addr: testdb.Server(t, "TXONCE_REDIS", "Redis")})
	t.Cleanup(func() { _ = m.redis.Close() })
	m.old = &before{m.redis, rand.Text() + ":", m.pool, func(id string) error {
		if id == "order-3" {
			return errCrash
		}
		return nil
	}}
	for i := range 4 {
		o := OrderPlaced{fmt.Sprintf("order-%d", i+1), 700}
		if err := m.old.handle(t.Context(), o); err != nil && !errors.Is(err, errCrash) {
			t.Fatal(err)
		}
	}
	return m
}

// txonce runs the command line, as an operator does.
func (m *move) txonce(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), command.Build(t, "github.com/txonce/txonce/cmd/txonce"), args...)
	cmd.Env, cmd.Dir = append(os.Environ(), "TXONCE_DSN="+m.dsn), m.dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (m *move) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(m.dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// redeliver delivers all four orders to the new code, and returns what was charged.
func (m *move) redeliver(t *testing.T) string {
	t.Helper()
	store, err := pgxstore.New(pgxstore.Config{Pool: m.pool})
	if err != nil {
		t.Fatal(err)
	}
	billing, err := after(store)
	if err != nil {
		t.Fatal(err)
	}
	defer billing.Close()
	for i := range 4 {
		body := fmt.Sprintf(`{"order_id": "order-%d", "cents": 700}`, i+1)
		if err := billing.Process(t.Context(), &consumer.Message{Topic: "orders", Payload: []byte(body)}); err != nil {
			t.Fatal(err)
		}
	}
	return m.charged(t)
}

func (m *move) charged(t *testing.T) (ids string) {
	t.Helper()
	if err := m.pool.QueryRow(t.Context(),
		`SELECT string_agg(order_id, ' ' ORDER BY order_id) FROM charges`).Scan(&ids); err != nil {
		t.Fatal(err)
	}
	return ids
}

// The old code has lost order 3: Redis knows its key, so no redelivery is charged.
func TestBefore(t *testing.T) {
	m := newMove(t)
	for i := range 4 {
		if err := m.old.handle(t.Context(), OrderPlaced{fmt.Sprintf("order-%d", i+1), 700}); err != nil {
			t.Fatal(err)
		}
	}
	if got := m.charged(t); got != "order-1 order-2 order-4" {
		t.Errorf("charged %s", got)
	}
}

// Keys that are imported from the effects, and not from Redis, bring the lost order back: it is charged when it comes
// again, and the others are duplicates.
func TestMoveWithTheEffects(t *testing.T) {
	m := newMove(t)
	m.write(t, "real-keys.txt", "order-1\norder-4\n")
	out, err := m.txonce(t, "import", "--consumer", "billing", "--from", "charges", "--key-column", "order_id", "--no-time",
		"--keys-file", "real-keys.txt", "--window", "360h", "--reason", "the move from Redis", "--yes")
	if err != nil || !strings.Contains(out, "imported     3, and 0 have a claim already") {
		t.Fatalf("%v: %s", err, out)
	}
	if got := m.redeliver(t); got != "order-1 order-2 order-3 order-4" {
		t.Errorf("charged %s", got)
	}
}

// Keys that are imported from Redis keep the lost order lost, and txonce audit names it. Keys with Redis's prefix are
// refused.
func TestMoveWithTheKeys(t *testing.T) {
	m := newMove(t)
	m.write(t, "real-keys.txt", "order-1\norder-4\n")
	m.write(t, "prefixed.txt", "seen:order-1\nseen:order-2\nseen:order-3\nseen:order-4\n")
	out, err := m.txonce(t, "import", "--consumer", "billing", "--from-file", "prefixed.txt",
		"--keys-file", "real-keys.txt", "--window", "360h", "--reason", "the move from Redis", "--yes")
	if err == nil || !strings.Contains(out, "A real key: 'order-1', and a key of the table: 'seen:order-1'") {
		t.Fatalf("%v: %s", err, out)
	}
	var keys strings.Builder
	if err := export(context.Background(), m.redis, m.old.prefix, &keys); err != nil {
		t.Fatal(err)
	}
	m.write(t, "keys.txt", keys.String())
	out, err = m.txonce(t, "import", "--consumer", "billing", "--from-file", "keys.txt",
		"--keys-file", "real-keys.txt", "--window", "360h", "--reason", "the move from Redis", "--yes")
	if err != nil || !strings.Contains(out, "imported     4, and 0 have a claim already") {
		t.Fatalf("%v: %s", err, out)
	}
	if got := m.redeliver(t); got != "order-1 order-2 order-4" {
		t.Errorf("charged %s", got)
	}
	out, err = m.txonce(t, "audit", "--consumer", "billing", "--effects",
		`SELECT order_id, count(*) FROM charges WHERE order_id IN (:ids) GROUP BY order_id`)
	if err == nil || !strings.Contains(out, "order-3 has no effect") || strings.Contains(out, "order-1 has") {
		t.Errorf("%v: %s", err, out)
	}
}
