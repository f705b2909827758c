package pgxstore_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/test/matrix"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/outbox"
	outboxdriver "github.com/txonce/txonce/outbox/driver"
)

// outboxDB is a schema with an outbox, and a Store on it.
type outboxDB struct {
	dsn   string
	pool  *pgxpool.Pool
	store *pgxstore.Store
}

func newOutboxDB(tb testing.TB, server func(testing.TB) string, conns int) *outboxDB {
	tb.Helper()
	return openOutboxDB(tb, testdb.Reused(tb, server(tb), outboxTables), conns)
}

const outboxTables = `CREATE TABLE effects (name text NOT NULL)`

// newOutboxDBAt makes the tables where dsn leads to.
func newOutboxDBAt(tb testing.TB, dsn string, conns int) *outboxDB {
	tb.Helper()
	db := openOutboxDB(tb, dsn, conns)
	makeTables(tb, db.pool, outboxTables)
	return db
}

func openOutboxDB(tb testing.TB, dsn string, conns int) *outboxDB {
	tb.Helper()
	return outboxDBOf(tb, dsn, testPool(tb, dsn, conns))
}

func outboxDBOf(tb testing.TB, dsn string, pool *pgxpool.Pool) *outboxDB {
	tb.Helper()
	return &outboxDB{dsn, pool, newStore(tb, pgxstore.Config{Pool: pool})}
}

func (db *outboxDB) exec(tb testing.TB, sql string, args ...any) {
	tb.Helper()
	if _, err := db.pool.Exec(tb.Context(), sql, args...); err != nil {
		tb.Fatalf("%s: %v", sql, err)
	}
}

// ids returns the IDs of pending messages in the order of their sequence numbers.
func (db *outboxDB) ids(tb testing.TB) []string {
	tb.Helper()
	return db.strings(tb, `SELECT id FROM outbox_messages ORDER BY seq`)
}

func (db *outboxDB) strings(tb testing.TB, sql string, args ...any) []string {
	tb.Helper()
	return stringsIn(tb, db.pool, sql, args...)
}

// stringsIn returns the rows of a query, which has one column.
func stringsIn(tb testing.TB, pool *pgxpool.Pool, sql string, args ...any) []string {
	tb.Helper()
	rows, _ := pool.Query(tb.Context(), sql, args...)
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		tb.Fatalf("%s: %v", sql, err)
	}
	return all
}

func (db *outboxDB) want(tb testing.TB, ids ...string) {
	tb.Helper()
	if diff := cmp.Diff(append([]string{}, ids...), db.ids(tb)); diff != "" {
		tb.Errorf("pending messages (-want +got):\n%s", diff)
	}
}

func message(id string) outbox.Message {
	return outbox.Message{ID: id, Topic: "events", OrderingKey: "k", Payload: []byte("p-" + id)}
}

func messages(ids ...string) []outbox.Message {
	msgs := make([]outbox.Message, len(ids))
	for i, id := range ids {
		msgs[i] = message(id)
	}
	return msgs
}

// servers runs a test on each version of PostgreSQL.
func servers(t *testing.T, run func(t *testing.T, server func(testing.TB) string)) {
	for name, server := range map[string]func(testing.TB) string{
		"postgres15": testdb.Postgres,
		"postgres18": testdb.Postgres18,
	} {
		if !matrix.RunsOn(name, t.Name()) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, server)
		})
	}
}

// The table contains what was enqueued, in every mode of pgx.
func TestOutboxWriterKeepsMessages(t *testing.T) {
	servers(t, func(t *testing.T, server func(testing.TB) string) {
		db := newOutboxDB(t, server, 2)
		for _, mode := range []pgx.QueryExecMode{
			pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
			pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
		} {
			t.Run(mode.String(), func(t *testing.T) {
				cfg := db.pool.Config()
				cfg.ConnConfig.DefaultQueryExecMode = mode
				pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
				if err != nil {
					t.Fatal(err)
				}
				defer pool.Close()
				store := newStore(t, pgxstore.Config{Pool: pool})
				later := time.Now().Add(time.Hour).Truncate(time.Microsecond)
				msgs := []outbox.Message{
					{ID: "plain", Topic: "events", OrderingKey: "k", Payload: []byte("p")},
					{
						ID: "bytes", Topic: "Ä 'quoted' \\", OrderingKey: "\x00\xff", Payload: []byte("\x00'\\\xfe"),
						Headers: map[string]string{"trace": "a\x00b", "'\\": "<"},
					},
					{ID: "bare", Topic: "events"},
					{ID: "due", Topic: "events", NotBefore: time.Now().Add(-time.Hour)},
				}
				delayed := outbox.Message{
					ID: "later", Topic: "events", OrderingKey: "k", NotBefore: later,
					Headers: map[string]string{"a": "b"},
				}
				for name, calls := range map[string][][]outbox.Message{
					"one by one": {msgs[:1], msgs[1:2], msgs[2:3], msgs[3:], {delayed}},
					"together":   {append(msgs[:4:4], delayed)},
					"in two":     {msgs[:3], {msgs[3], delayed}},
				} {
					t.Run(name, func(t *testing.T) {
						db.exec(t, `TRUNCATE outbox_messages, outbox_delayed`)
						err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
							for _, call := range calls {
								if err := store.Enqueue(t.Context(), tx, call...); err != nil {
									return err
								}
							}
							return nil
						})
						if err != nil {
							t.Fatal(err)
						}
						db.wantMessages(t, `SELECT shard, id, topic, key, payload, headers::text, NULL::timestamptz FROM outbox_messages ORDER BY seq`, msgs...)
						db.wantMessages(t, `SELECT shard, id, topic, key, payload, headers::text, not_before FROM outbox_delayed ORDER BY seq`, delayed)
					})
				}
			})
		}
	})
}

func (db *outboxDB) wantMessages(t *testing.T, sql string, want ...outbox.Message) {
	t.Helper()
	rows, _ := db.pool.Query(t.Context(), sql)
	got, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (m outbox.Message, err error) {
		var (
			shard     int
			key       []byte
			headers   *string
			notBefore *time.Time
		)
		if err := row.Scan(&shard, &m.ID, &m.Topic, &key, &m.Payload, &headers, &notBefore); err != nil {
			return m, err
		}
		if m.OrderingKey = string(key); key != nil && m.OrderingKey == "" {
			return m, errors.New("an empty key instead of NULL")
		}
		if headers != nil {
			if m.Headers, err = driver.DecodeHeaders([]byte(*headers)); len(m.Headers) == 0 {
				return m, fmt.Errorf("headers %s instead of NULL", *headers)
			}
		}
		if notBefore != nil {
			m.NotBefore = *notBefore
		}
		if want := outboxdriver.Shard(&m, 64); shard != want {
			return m, fmt.Errorf("%s: shard %d, want %d", m.ID, shard, want)
		}
		return m, err
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range want {
		if want[i].NotBefore.Before(time.Now()) {
			want[i].NotBefore = time.Time{}
		}
		if want[i].Payload == nil {
			want[i].Payload = []byte{}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", sql, diff)
	}
}
