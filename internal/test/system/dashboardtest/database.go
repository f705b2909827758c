// Package dashboardtest has databases with all that a dashboard shows: consumers, dead letters of each kind, an outbox
// with pending and parked messages, and content that tries to attack the page.
package dashboardtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/migrations"
	"github.com/txonce/txonce/observe"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/relay"
)

// DB is a database with its store.
type DB struct {
	*sqlstore.Store
	SQL *sql.DB
	DSN string

	words *strings.Replacer // see Fill

	Broken atomic.Bool  // all handlers fail
	Fixed  atomic.Bool  // messages with the header "fails" no longer fail
	Ran    atomic.Int64 // handlers that returned nil
}

// SQLite returns an empty database in a file.
func SQLite(t testing.TB) *DB {
	t.Helper()
	dsn := (&url.URL{Scheme: "file", Opaque: filepath.Join(t.TempDir(), "dashboard.db")}).String() +
		"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_txlock=immediate"
	return open(t, sqlstore.SQLite, "sqlite", "sqlite", dsn, sqliteWords)
}

// Postgres returns an empty schema of the server.
func Postgres(t testing.TB) *DB {
	t.Helper()
	return open(t, sqlstore.Postgres, "postgres", "pgx", testdb.Schema(t, testdb.Postgres(t)), postgresWords)
}

// MySQL returns an empty database of MySQL or MariaDB: see testdb.OnMySQL.
func MySQL(t testing.TB) *DB {
	t.Helper()
	return open(t, sqlstore.MySQL, "mysql", "mysql", testdb.MySQL(t), mysqlWords)
}

func open(t testing.TB, dialect sqlstore.Dialect, name, driver, dsn string, words *strings.Replacer) *DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	db.SetMaxIdleConns(16) // a new connection costs the server more than most statements do
	if err := migrations.Apply(t.Context(), db, name, ""); err != nil {
		t.Fatal(err)
	}
	store, err := sqlstore.New(sqlstore.Config{DB: db, Dialect: dialect, ClaimTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return &DB{Store: store, SQL: db, DSN: dsn, words: words}
}

// Later returns an expression: an hour after the time in a column, which is later than the times of all other rows of a
// test, also on a slow machine.
func (d *DB) Later(column string) string { return d.words.Replace(column + ` + 3600000 * {ms}`) }

var errBroken = errors.New("POST /v1/charges: 502 Bad Gateway: the card service is being deployed")

// Consumer returns a Consumer of the database. Each message that it handles enqueues a receipt.
func (d *DB) Consumer(t testing.TB, name string) *consumer.Consumer[*sql.Tx] {
	t.Helper()
	c, err := consumer.New(consumer.Config[*sql.Tx]{
		Name: name, Store: d.Store, Key: consumer.MessageID, ParkLimit: consumer.ParkLimit{Unlimited: true},
		MaxAttempts: 2, Backoff: func(int) time.Duration { return time.Millisecond },
		Logger: slog.New(slog.DiscardHandler),
		Handle: func(ctx context.Context, tx *sql.Tx, msg *consumer.Message) error {
			switch {
			case d.Broken.Load() || msg.Headers["fails"] != "" && !d.Fixed.Load():
				return errBroken
			case msg.Headers["refused"] != "":
				return consumer.Permanent(errors.New("order refused: " + msg.Headers["refused"]))
			case msg.Headers["panics"] != "":
				panic("assignment to entry in nil map")
			}
			d.Ran.Add(1)
			return d.Enqueue(ctx, tx, outbox.Message{
				ID: name + "/" + msg.ID, Topic: "receipts",
				OrderingKey: msg.OrderingKey, Payload: msg.Payload,
			})
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// Hostile is content that would run a script, load from elsewhere or break the page if it was not escaped.
const Hostile = `"><script>document.title='attacked';fetch('http://203.0.113.7/')</script><img src=http://203.0.113.7/x onerror="document.title='attacked'">{{.}}</pre></textarea>`

// Message returns a message of the topic orders.
func Message(id string) *consumer.Message {
	return &consumer.Message{
		ID: id, Topic: "orders", OrderingKey: "customer-" + id, Position: fmt.Sprint("orders/3/", len(id)),
		Time:    time.Now().Add(-time.Minute),
		Payload: fmt.Appendf(nil, `{"order":%q,"amount":1250,"currency":"EUR"}`, id),
		Headers: map[string]string{"content-type": "application/json"},
	}
}

// Seed fills the database with something of each kind.
func (d *DB) Seed(t testing.TB) {
	t.Helper()
	billing, mailer := d.Consumer(t, "billing"), d.Consumer(t, "mailer")
	defer billing.Close() // so that a test can be a worker of that name
	defer mailer.Close()
	position := 1041
	process := func(c *consumer.Consumer[*sql.Tx], change func(*consumer.Message), ids ...string) {
		for _, id := range ids {
			m := Message(id)
			position++
			m.Position = fmt.Sprint("orders/3/", position)
			if change != nil {
				change(m)
			}
			if err := c.Process(t.Context(), m); err != nil {
				t.Fatalf("%q: %v", m.ID, err)
			}
		}
	}
	header := func(name, value string) func(*consumer.Message) {
		return func(m *consumer.Message) { m.Headers[name] = value }
	}
	process(billing, nil, "order-40:paid", "order-41:paid", "order-42:paid", "order-40:paid")
	process(billing, header("fails", "yes"), "order-51:paid", "order-52:paid", "order-53:paid")
	process(billing, header("panics", "yes"), "order-54:paid")
	process(billing, header("refused", "the amount is negative"), "order-55:paid")
	process(billing, func(m *consumer.Message) {
		m.Payload = []byte(`{"order":"order-42:paid","amount":990,"currency":"EUR"}`)
	}, "order-42:paid")
	process(billing, func(m *consumer.Message) {
		m.Payload = []byte(`{"order":"order-42:paid","amount":995,"currency":"EUR","note":"corrected"}`)
	}, "order-42:paid")
	process(billing, func(m *consumer.Message) { m.ID = "" }, "order-56:paid")
	process(mailer, func(m *consumer.Message) {
		m.Payload, m.Topic, m.Headers["refused"], m.Headers[Hostile] = []byte(Hostile), "mails<b>", Hostile, Hostile
	}, Hostile[:60])
	process(mailer, nil, "mail-1")
	d.ParkOutbox(t)
	process(billing, nil, "order-61:paid", "order-62:paid")
	d.recordActivity(t)
}

// recordActivity makes billing run and mailer be paused.
func (d *DB) recordActivity(t testing.TB) {
	t.Helper()
	now := time.Now().Truncate(time.Minute)
	rows := []ops.Activity{{Minute: now, Consumer: "mailer", Node: "worker-2/1", Paused: observe.CauseDatabase}}
	for i := range 31 {
		n := int64(900 + 37*i%400 + 9*i*(30-i)/5)
		rows = append(rows, ops.Activity{Minute: now.Add(time.Duration(-i) * time.Minute), Consumer: "billing", Node: "worker-1/1", Messages: map[observe.Outcome]int64{
			observe.Processed: n, observe.Duplicate: n / 32, observe.Retried: n / 450,
		}})
	}
	if err := d.Activity().RecordActivity(t.Context(), rows); err != nil {
		t.Fatal(err)
	}
}

// ParkOutbox publishes the pending messages to a broker that refuses the first half of them.
func (d *DB) ParkOutbox(t testing.TB) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	settled := 0
	r, err := relay.New(relay.Config{
		Queue: d.Store, Name: "relay-1", Publisher: refuser{}, Logger: slog.New(slog.DiscardHandler),
		Trace: &relay.Trace{Settled: func(ctx context.Context, s []relay.Settlement) {
			if settled += len(s); settled >= 4 {
				stop()
			}
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Run(ctx); err != nil {
		t.Fatal(err)
	}
}

// refuser is a broker that refuses the messages of two customers for good.
type refuser struct{}

func (refuser) Publish(_ context.Context, msgs []outbox.Message) []error {
	errs := make([]error, len(msgs))
	for i, m := range msgs {
		if m.OrderingKey == "customer-order-40:paid" || m.OrderingKey == "customer-order-41:paid" {
			errs[i] = outbox.Permanent(errors.New("MESSAGE_TOO_LARGE: the message is larger than max.message.bytes of receipts"))
		}
	}
	return errs
}
