package wire

import (
	"context"
	"database/sql"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // registers "pgx"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/internal/test/wireproxy"
	"github.com/txonce/txonce/outbox/driver"
)

// postgresCodes are serialization failure, deadlock, cancelled, disk full, and lock not available.
var postgresCodes = []string{"40001", "40P01", "57014", "53100", "55P03"}

const (
	postgresEffects = `CREATE TABLE effects (name text NOT NULL, run text NOT NULL); CREATE INDEX ON effects (name)`
	postgresInsert  = `INSERT INTO effects (name, run) VALUES ($1, $2)`

	recycle = 50 // sessions; see wireproxy.Config
	conns   = 4  // of a lane's pool
)

// openPostgres returns a world on a server of PostgreSQL.
func openPostgres(t *testing.T, seed uint64) *world {
	dsn := testdb.Tables(t, testdb.Postgres(t), postgresEffects)
	w := newWorld(t, seed, "pgx", dsn)
	w.name = dollars
	w.clean = w.pgxNode(t, dsn, &lane{}, pgxVariants[1])
	for _, v := range slices.Repeat(pgxVariants, 3) {
		l := newLane(v.name, postgresConsumer, postgresCodes)
		through := l.through(t, dsn, wireproxy.ThroughPostgres)
		if v.vary == nil {
			l.node = w.sqlNode(t, "pgx", through, sqlstore.Postgres, postgresInsert, l, 0)
		} else {
			l.node = w.pgxNode(t, through, l, v)
		}
		w.lanes = append(w.lanes, l)
	}
	for i, name := range slices.Repeat([]string{"relay pgxstore", "relay sqlstore"}, 2) {
		l := newLane(name, postgresRelay, postgresCodes)
		through := l.through(t, dsn, wireproxy.ThroughPostgres)
		var queue driver.Queue
		if name == "relay pgxstore" {
			queue = w.pgxStore(t, through, l)
		} else {
			queue = w.sqlStore(t, "pgx", through, sqlstore.Postgres, l)
		}
		w.relay(t, l, queue, w.flaky(i))
	}
	return w
}

// pgxVariant is how a consumer runs its handlers.
type pgxVariant struct {
	name string
	vary func(w *world, store *pgxstore.Store, cfg *consumer.Config[pgx.Tx]) // nil: it is one of sqlstore
}

// The variants whose transactions have one message.
const (
	single    = "single"
	claimLate = "claim late"
)

var pgxVariants = []pgxVariant{
	{single, func(w *world, store *pgxstore.Store, cfg *consumer.Config[pgx.Tx]) {
		cfg.MaxPerTransaction = 1
		cfg.Handle = w.pgxHandler(store)
	}},
	{"batch", func(w *world, store *pgxstore.Store, cfg *consumer.Config[pgx.Tx]) { cfg.Handle = w.pgxHandler(store) }},
	{"pipeline", func(w *world, store *pgxstore.Store, cfg *consumer.Config[pgx.Tx]) {
		cfg.HandleBatch = w.pgxPipeline(store)
	}},
	{claimLate, func(w *world, store *pgxstore.Store, cfg *consumer.Config[pgx.Tx]) {
		cfg.HandleBatch, cfg.ClaimLate, cfg.MaxPerTransaction = w.pgxPipeline(store), true, 1
	}},
	{"interleave", func(w *world, store *pgxstore.Store, cfg *consumer.Config[pgx.Tx]) {
		cfg.Handle, cfg.Interleave = w.pgxHandler(store), true
	}},
	{"sqlstore", nil},
}

func (w *world) pgxStore(t *testing.T, dsn string, l *lane) *pgxstore.Store {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = conns
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	l.reset = pool.Reset
	store, err := pgxstore.New(pgxstore.Config{Pool: pool, ClaimTimeout: claimTimeout, Logger: w.logger})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func (w *world) pgxNode(t *testing.T, dsn string, l *lane, v pgxVariant) node {
	t.Helper()
	store := w.pgxStore(t, dsn, l)
	cfg := config[pgx.Tx](w)
	cfg.Store = store
	v.vary(w, store, &cfg)
	return started(t, cfg)
}

func (w *world) pgxHandler(store *pgxstore.Store) consumer.Handler[pgx.Tx] {
	return func(ctx context.Context, tx pgx.Tx, msg *consumer.Message) error {
		do, planned := w.run(msg)
		if _, err := tx.Exec(ctx, postgresInsert, do.id, do.run); err != nil {
			return err
		}
		if do.out != nil {
			if err := store.Enqueue(ctx, tx, *do.out); err != nil {
				return err
			}
		}
		return planned
	}
}

func (w *world) pgxPipeline(store *pgxstore.Store) consumer.BatchHandler[pgx.Tx] {
	return func(ctx context.Context, tx pgx.Tx, msgs []*consumer.Message) error {
		return pgxstore.Pipeline(func(ctx context.Context, b *pgx.Batch, msg *consumer.Message) error {
			do, planned := w.run(msg)
			if do.out != nil {
				if err := store.Enqueue(ctx, tx, *do.out); err != nil {
					return err
				}
			}
			b.Queue(postgresInsert, do.id, do.run)
			return planned
		})(ctx, tx, msgs)
	}
}

func (w *world) sqlStore(t *testing.T, driver, dsn string, dialect sqlstore.Dialect, l *lane) *sqlstore.Store {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	l.reset = func() {
		db.SetMaxIdleConns(0)
		db.SetMaxIdleConns(conns)
	}
	store, err := sqlstore.New(sqlstore.Config{DB: db, Dialect: dialect, ClaimTimeout: claimTimeout})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// sqlNode returns a consumer. most is its MaxPerTransaction.
func (w *world) sqlNode(t *testing.T, driver, dsn string, dialect sqlstore.Dialect, insert string, l *lane, most int) node {
	t.Helper()
	store := w.sqlStore(t, driver, dsn, dialect, l)
	cfg := config[*sql.Tx](w)
	cfg.Store, cfg.MaxPerTransaction = store, most
	cfg.Handle = func(ctx context.Context, tx *sql.Tx, msg *consumer.Message) error {
		do, planned := w.run(msg)
		if _, err := tx.ExecContext(ctx, insert, do.id, do.run); err != nil {
			return err
		}
		if do.out != nil {
			if err := store.Enqueue(ctx, tx, *do.out); err != nil {
				return err
			}
		}
		return planned
	}
	return started(t, cfg)
}
