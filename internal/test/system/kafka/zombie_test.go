package kafka_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // registers "pgx", which testdb takes

	"github.com/txonce/txonce/adapters/kafka"
	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/test/brokers/testkafka"
	"github.com/txonce/txonce/internal/test/testdb"
)

// TestZombie tests the module's main promise, on real servers. A consumer's connections to Kafka freeze while its
// handler runs. The group gives its partition to a second consumer, which gets the same message and has its own
// database connection. The first consumer does not know this and goes on. Exactly one effect commits, whichever
// consumer claims first.
func TestZombie(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name        string
		hold        func(z *zombie) // makes the zombie stop for z.resume somewhere
		concurrency int
	}{
		{"it claimed first, and commits late", func(z *zombie) { z.inHandler = z.stop }, 1},
		{"it claims late", func(z *zombie) { z.beforeClaim = z.stop }, 1},
		{"it claimed first, and commits late, 8 side by side", func(z *zombie) { z.inHandler = z.stop }, 8},
		{"it claims late, 8 side by side", func(z *zombie) { z.beforeClaim = z.stop }, 8},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			eachProtocol(t, func(t *testing.T, strategy sarama.BalanceStrategy) {
				g := cluster{name: "kafka", brokers: testkafka.Brokers(t)}.group(t, 1)
				db := newDatabase(t)

				first := &zombie{stopped: make(chan struct{}, 10), resume: make(chan struct{})}
				tt.hold(first)
				first.Consumer = db.consumer(t, first.inHandler)
				cfg := testConfig(strategy)
				cfg.Consumer.Group.Session.Timeout = 3 * time.Second
				frost := newFreezer(cfg)
				g.join(t, kafka.SubscriberConfig{
					Client: dial(t, g.brokers, cfg), Processor: first,
					Concurrency: tt.concurrency,
				})
				g.produce(t, keyed(0, "", "order 1")...)
				<-first.stopped
				frost.freeze()

				second := &zombie{delivered: make(chan struct{}, 100)}
				second.Consumer = db.consumer(t, nil)
				g.join(t, kafka.SubscriberConfig{
					Client: dial(t, g.brokers, testConfig(strategy)), Processor: second,
					Concurrency: tt.concurrency,
				})
				<-second.delivered
				if first.inHandler == nil {
					g.awaitConsumed(t) // the new owner is through before the zombie claims
				} else {
					elapse(300 * time.Millisecond) // the new owner waits for the zombie's claim
				}
				close(first.resume)
				g.awaitConsumed(t)
				frost.thaw()
				g.produce(t, keyed(0, "", "order 2")...)
				g.awaitConsumed(t)

				for _, order := range []string{"order 1", "order 2"} {
					if n := db.effects(t, order); n != 1 {
						t.Errorf("%s has %d effects, want 1", order, n)
					}
				}
				if n := db.letters(t); n != 0 {
					t.Errorf("%d messages are parked, want none", n)
				}
			})
		})
	}
}

// zombie is a Consumer that can be stopped at two places.
type zombie struct {
	*consumer.Consumer[pgx.Tx]
	beforeClaim, inHandler func()
	delivered              chan struct{}
	stopped, resume        chan struct{}
}

func (z *zombie) stop() {
	z.stopped <- struct{}{}
	<-z.resume
}

func (z *zombie) ProcessBatch(ctx context.Context, msgs []*consumer.Message) []error {
	if z.delivered != nil {
		z.delivered <- struct{}{}
	}
	if z.beforeClaim != nil && string(msgs[0].Payload) == "order 1" {
		z.beforeClaim()
	}
	return z.Consumer.ProcessBatch(ctx, msgs)
}

// database is a PostgreSQL schema with the store's tables and a ledger.
type database struct{ pool *pgxpool.Pool }

func newDatabase(t *testing.T) *database {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), testdb.Schema(t, testdb.Postgres(t)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if err := pgxstore.Migrate(t.Context(), pool, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(), "CREATE TABLE ledger (entry text NOT NULL)"); err != nil {
		t.Fatal(err)
	}
	return &database{pool}
}

// consumer makes a separate node: it shares only the database with others.
func (d *database) consumer(t *testing.T, inHandler func()) *consumer.Consumer[pgx.Tx] {
	t.Helper()
	store, err := pgxstore.New(pgxstore.Config{Pool: d.pool})
	if err != nil {
		t.Fatal(err)
	}
	c, err := consumer.New(consumer.Config[pgx.Tx]{
		Name: "billing", Store: store,
		Key: func(m *consumer.Message) (string, error) { return string(m.Payload), nil },
		Handle: func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
			if _, err := tx.Exec(ctx, "INSERT INTO ledger VALUES ($1)", string(m.Payload)); err != nil {
				return err
			}
			if inHandler != nil && string(m.Payload) == "order 1" {
				inHandler()
			}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (d *database) effects(t *testing.T, entry string) (n int) {
	t.Helper()
	return d.count(t, "SELECT count(*) FROM ledger WHERE entry = $1", entry)
}

func (d *database) letters(t *testing.T) (n int) {
	t.Helper()
	return d.count(t, "SELECT count(*) FROM dead_letters")
}

func (d *database) count(t *testing.T, sql string, args ...any) (n int) {
	t.Helper()
	if err := d.pool.QueryRow(t.Context(), sql, args...).Scan(&n); err != nil {
		t.Fatal(fmt.Errorf("%s: %w", sql, err))
	}
	return n
}
