package pgxstore_test

import (
	"context"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/test/testdb"
)

// leavesTemporary handles messages on one connection of a pool that configure has changed. Each handler inserts an
// effect and then sends sql.
type leavesTemporary struct {
	*testing.T
	db           *outboxDB
	consumer     *consumer.Consumer[pgx.Tx]
	transactions []string
}

func newLeavesTemporary(t *testing.T, sql string, configure func(cfg *pgxpool.Config)) *leavesTemporary {
	t.Helper()
	dsn := testdb.Reused(t, testdb.Postgres(t), outboxTables)
	l := &leavesTemporary{T: t, db: openOutboxDB(t, dsn, 1)}
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = 1
	configure(cfg)
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	l.consumer = newConsumer(t, newStore(t, pgxstore.Config{Pool: pool}), consumer.Config[pgx.Tx]{Name: "suite", Handle: func(ctx context.Context, tx pgx.Tx, msg *consumer.Message) error {
		var xid string
		err := tx.QueryRow(ctx, `INSERT INTO effects (name) VALUES ($1) RETURNING pg_current_xact_id()::text`,
			msg.ID).Scan(&xid)
		if err == nil {
			_, err = tx.Exec(ctx, sql)
		}
		l.transactions = append(l.transactions, xid)
		return err
	}})
	return l
}

// batch handles the messages ids in one batch. attempt is the Attempt of each.
func (l *leavesTemporary) batch(attempt int, ids ...string) {
	l.Helper()
	msgs := deliveriesOf(ids...)
	for _, m := range msgs {
		m.Attempt = attempt
	}
	for i, err := range l.consumer.ProcessBatch(l.Context(), msgs) {
		if err != nil {
			l.Errorf("%s: %v", ids[i], err)
		}
	}
}

func (l *leavesTemporary) want(effects ...string) {
	l.Helper()
	if got := l.db.strings(l.T, `SELECT name FROM effects ORDER BY name`); !slices.Equal(got, effects) {
		l.Errorf("the effects are %v, want %v", got, effects)
	}
}

// A duplicate ends its transaction before its session is compared. In a session that has had a temporary table, this
// must not matter.
func TestADuplicateInASessionThatHadATemporaryTable(t *testing.T) {
	t.Parallel()
	for name, attempt := range map[string]int{"claimed": 1, "redelivered": 2} {
		t.Run(name, func(t *testing.T) {
			l := newLeavesTemporary(t, `CREATE TEMP TABLE staged (name text) ON COMMIT DROP`, func(*pgxpool.Config) {})
			l.batch(1, "a")
			for range 2 {
				l.batch(attempt, "a")
				l.batch(attempt, "b", "c")
			}
			l.want("a", "b", "c")
		})
	}
}

// makesTable is a hook of a pool that makes a temporary table.
func makesTable(ctx context.Context, conn *pgx.Conn) error {
	return second(conn.Exec(ctx, `CREATE TEMP TABLE IF NOT EXISTS staged (n int)`))
}

// hooks are hooks of a pool that affect sessions.
var hooks = map[string]func(cfg *pgxpool.Config){
	"AfterConnect makes a table": func(cfg *pgxpool.Config) { cfg.AfterConnect = makesTable },
	"PrepareConn makes a table": func(cfg *pgxpool.Config) {
		cfg.PrepareConn = func(ctx context.Context, conn *pgx.Conn) (bool, error) { return true, makesTable(ctx, conn) }
	},
	"PrepareConn sets a tenant": func(cfg *pgxpool.Config) {
		cfg.PrepareConn = func(ctx context.Context, conn *pgx.Conn) (bool, error) {
			return true, second(conn.Exec(ctx, `SELECT set_config('app.tenant', 'a', false)`))
		}
	},
}

// A hook's temporary table is not taken for one that a handler has left: handlers share a transaction.
func TestATemporaryTableOfAHook(t *testing.T) {
	t.Parallel()
	for name, hook := range hooks {
		t.Run(name, func(t *testing.T) {
			l := newLeavesTemporary(t, `SAVEPOINT mine`, hook)
			for range 2 {
				l.batch(1, "a", "b", "c")
			}
			l.want("a", "b", "c")
			if n := len(slices.Compact(l.transactions)); n != 1 {
				t.Errorf("%d transactions, want 1", n)
			}
		})
	}
}

// Whatever hooks of the pool do: a temporary table that a handler has left takes neither what the others of its batch
// write nor what the next one writes.
func TestATemporaryTableInAPoolWithAHook(t *testing.T) {
	t.Parallel()
	for name, hook := range hooks {
		for _, leave := range []string{
			`CREATE TEMP TABLE effects (name text) ON COMMIT DROP`,
			`DO $$ BEGIN EXECUTE 'CREATE TEMP' || ' TABLE effects (name text)'; END $$`,
		} {
			t.Run(name+", "+leave, func(t *testing.T) {
				l := newLeavesTemporary(t, leave, hook)
				l.batch(1, "a")
				l.batch(1, "b", "c", "d")
				l.batch(2, "b")
				l.batch(1, "e")
				l.want("a", "b", "c", "d", "e")
			})
		}
	}
}
