package watermilltx_test

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/adapters/watermilltx"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/migrations"
	"github.com/txonce/txonce/outbox/outboxtest"
	"github.com/txonce/txonce/outbox/relay"
)

// base is a database with txonce's tables, and a table of effects.
type base struct {
	*sqlstore.Store
	t       *testing.T
	db      *sql.DB
	dialect sqlstore.Dialect
}

// eachBase runs a test on SQLite, which needs nothing, and on PostgreSQL.
func eachBase(t *testing.T, test func(t *testing.T, b *base)) {
	t.Run("sqlite", func(t *testing.T) { test(t, newSQLite(t)) })
	t.Run("postgres", func(t *testing.T) {
		if testing.Short() {
			t.Log("-short: SQLite stands for it")
			return
		}
		test(t, newPostgres(t))
	})
}

func newSQLite(t *testing.T) *base {
	t.Helper()
	path := filepath.Join(t.TempDir(), "app.db")
	return newBase(t, "sqlite", "file:"+path+"?_pragma=journal_mode(wal)&_pragma=synchronous(full)&_pragma=busy_timeout(60000)", sqlstore.SQLite)
}

func newPostgres(t *testing.T) *base {
	t.Helper()
	return newBase(t, "pgx", testdb.Schema(t, testdb.Postgres(t)), sqlstore.Postgres)
}

// newQuietPostgres is on a server that no other test uses, where such a server can be started: watermill's subscribers
// wait for each transaction of the whole server that is older than a message.
func newQuietPostgres(t *testing.T) *base {
	t.Helper()
	if testdb.NoOwnPostgres() != "" {
		return newPostgres(t)
	}
	return newBase(t, "pgx", testdb.StartPostgres(t, "max_connections=300").DSN, sqlstore.Postgres)
}

func newBase(t *testing.T, driver, dsn string, dialect sqlstore.Dialect) *base {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	db.SetMaxIdleConns(16) // a new connection costs the server more than most statements do
	if err := migrations.Apply(t.Context(), db, string(dialect), ""); err != nil {
		t.Fatal(err)
	}
	b := &base{t: t, db: db, dialect: dialect}
	b.exec(`CREATE TABLE effects (id TEXT)`)
	b.Store = b.node()
	return b
}

// node is one more Store on the database, as of another process.
func (b *base) node() *sqlstore.Store {
	b.t.Helper()
	store, err := sqlstore.New(sqlstore.Config{DB: b.db, Dialect: b.dialect, ClaimTimeout: 2 * time.Second})
	if err != nil {
		b.t.Fatal(err)
	}
	return store
}

func (b *base) exec(query string) {
	b.t.Helper()
	if _, err := b.db.Exec(query); err != nil {
		b.t.Fatalf("%s: %v", query, err)
	}
}

// effects lists what handlers have written and committed.
func (b *base) effects() (all []string) {
	b.t.Helper()
	rows, err := b.db.Query(`SELECT id FROM effects ORDER BY id`)
	if err != nil {
		b.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			b.t.Fatal(err)
		}
		all = append(all, id)
	}
	if err := rows.Err(); err != nil {
		b.t.Fatal(err)
	}
	return all
}

func (b *base) wantEffects(want ...string) {
	b.t.Helper()
	if got := b.effects(); !slices.Equal(got, want) {
		b.t.Errorf("effects are %q, want %q", got, want)
	}
}

// wantPublished runs a relay until it has published n messages, and returns them; none are left.
func (b *base) wantPublished(n int) []outboxtest.Published {
	b.t.Helper()
	fake := new(outboxtest.FakePublisher)
	r, err := relay.New(relay.Config{Queue: b.Store, Publisher: fake})
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	eventually(b.t, func() bool {
		stats, err := b.Outbox().Stats(b.t.Context())
		if err != nil {
			b.t.Fatal(err)
		}
		return len(fake.Published()) >= n && stats.Pending == 0
	})
	cancel()
	if err := <-done; err != nil {
		b.t.Error(err)
	}
	if got := fake.Published(); len(got) != n {
		b.t.Fatalf("%d messages were in the outbox, want %d: %v", len(got), n, got)
	}
	return fake.Published()
}

// shown returns when a reader of topic can see all of its messages. That waits for the oldest transaction of the whole
// server, and the suite gives some messages only 5 s.
func (b *base) shown(ctx context.Context, topic string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	query := `SELECT count(*) FROM ` + schemaAdapter().MessagesTable(topic) +
		` WHERE transaction_id >= pg_snapshot_xmin(pg_current_snapshot())`
	for {
		var hidden int
		if err := b.db.QueryRowContext(ctx, query).Scan(&hidden); err != nil || hidden == 0 {
			return err
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !ok(); {
		if time.Now().After(deadline) {
			t.Fatal("waited in vain")
		}
		<-time.After(10 * time.Millisecond)
	}
}

// insert is the effect of a handler.
func insert(msg *message.Message, id string) error {
	_, err := watermilltx.Tx[*sql.Tx](msg.Context()).ExecContext(msg.Context(), `INSERT INTO effects (id) VALUES ('`+
		id+`')`)
	return err
}

// byID is the business key of orders.
var byID = consumer.KeyOf(func(body struct {
	OrderID string `json:"order_id"`
},
) (string, error) {
	return body.OrderID, nil
})

// config is that of most tests: failed messages are nacked at once.
func config(b *base, name string) watermilltx.Config[*sql.Tx] {
	return watermilltx.Config[*sql.Tx]{
		Name: name, Store: b.Store, Outbox: b.Store, Key: byID, MaxWait: -1,
		Logger: slog.New(slog.DiscardHandler),
		Topic:  func(_, _ *message.Message) string { return "charges" },
	}
}

func newMiddleware(t *testing.T, cfg watermilltx.Config[*sql.Tx]) *watermilltx.Middleware[*sql.Tx] {
	t.Helper()
	m, err := watermilltx.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// order is a message of a topic, published for the first or another time.
func order(t *testing.T, id string) *message.Message {
	msg := message.NewMessage(newUUID(), []byte(`{"order_id":"`+id+`"}`))
	msg.SetContext(t.Context())
	return msg
}

func letters(t *testing.T, m *watermilltx.Middleware[*sql.Tx]) []consumer.DeadLetter {
	t.Helper()
	all, err := m.Consumer().DeadLetters(t.Context(), consumer.DeadLetterFilter{})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func wantRetry(t *testing.T, err error, uncounted bool) {
	t.Helper()
	var retry *consumer.RetryError
	if !errors.As(err, &retry) {
		t.Fatalf("error %v, want a RetryError", err)
	}
	if retry.Held != uncounted {
		t.Errorf("Held is %v: %v", retry.Held, err)
	}
}
