package pgxstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/test/testdb"
)

func TestNewerTakesOneRoundTrip(t *testing.T) {
	db := newOutboxDB(t, testdb.Postgres18, 2)
	store, trips := db.traced(t)
	ctx := t.Context()
	for version := range int64(3) { // the first transaction prepares the statements
		err := store.InTx(ctx, nil, func(tx pgx.Tx, _ []dedup.Claim) error {
			trips.take()
			for _, want := range []bool{true, false} {
				if newer, err := store.Newer(ctx, tx, "o", version); err != nil || newer != want {
					t.Errorf("version %d: newer is %v, error %v", version, newer, err)
				}
			}
			if sent := trips.take(); version > 0 && len(sent) != 2 {
				t.Errorf("%d round trips for two calls: %q", len(sent), sent)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// stateTable has the state of an object, which the handlers below write without a comparison of their own.
const stateTable = `CREATE TABLE state (object text PRIMARY KEY, version bigint)`

const (
	writeState   = `INSERT INTO state VALUES ($1, $2) ON CONFLICT (object) DO UPDATE SET version = excluded.version`
	guardedState = `INSERT INTO state AS s VALUES ($1, $2) ON CONFLICT (object) DO UPDATE SET version = excluded.version
WHERE s.version < excluded.version`
)

// Handlers that share a transaction do not wait for each other's row locks. Each must write its state before the next
// one asks.
func TestNewerKeepsInterleavedHandlersInOrder(t *testing.T) {
	const n = 12
	db := newOutboxDBAt(t, testdb.Schema(t, testdb.Postgres18(t)), 4)
	db.exec(t, stateTable)
	h := &handlerTest{T: t, db: db, store: newStore(t, pgxstore.Config{Pool: db.pool})}
	pgxstore.SetStallsAfter(h.store, time.Minute)
	versions := rand.Perm(n)
	_, err := h.interleave(nil, alike(n, func(ctx context.Context, tx pgx.Tx, i int) error {
		newer, err := h.store.Newer(ctx, tx, "o", int64(versions[i]))
		if err != nil || !newer {
			return err
		}
		runtime.Gosched()
		if err := second(tx.Exec(ctx, `SELECT 1`)); err != nil {
			return err
		}
		return second(tx.Exec(ctx, writeState, "o", versions[i]))
	})...)
	if err != nil {
		t.Fatal(err)
	}
	if got := db.strings(t, `SELECT version::text FROM state`); len(got) != 1 || got[0] != strconv.Itoa(n-1) {
		t.Errorf("after versions %v the state has %v", versions, got)
	}
}

// A Pipeline either compares in its statements, or leaves out the messages that Newer has refused before.
func TestVersionsInAPipeline(t *testing.T) {
	version := func(m *consumer.Message) int64 { return m.Time.Unix() % 100 }
	for name, handle := range map[string]func(*pgxstore.Store) consumer.BatchHandler[pgx.Tx]{
		"guarded upsert": func(*pgxstore.Store) consumer.BatchHandler[pgx.Tx] {
			return pgxstore.Pipeline(func(_ context.Context, b *pgx.Batch, m *consumer.Message) error {
				b.Queue(guardedState, "o", version(m))
				return nil
			})
		},
		"Newer": func(store *pgxstore.Store) consumer.BatchHandler[pgx.Tx] {
			return func(ctx context.Context, tx pgx.Tx, msgs []*consumer.Message) error {
				var newest []*consumer.Message
				for _, m := range msgs {
					newer, err := store.Newer(ctx, tx, "o", version(m))
					if err != nil {
						return err
					}
					if newer {
						newest = append(newest, m)
					}
				}
				return pgxstore.Pipeline(func(_ context.Context, b *pgx.Batch, m *consumer.Message) error {
					b.Queue(writeState, "o", version(m))
					return nil
				})(ctx, tx, newest)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := newOutboxDBAt(t, testdb.Schema(t, testdb.Postgres(t)), 4)
			db.exec(t, stateTable)
			store := newStore(t, pgxstore.Config{Pool: db.pool})
			c := newConsumer(t, store, consumer.Config[pgx.Tx]{Name: "billing", HandleBatch: handle(store)})
			began := time.Now().Truncate(100 * time.Second)
			for round, versions := range [][]int{{3, 1, 7, 5}, {2, 6}, {9, 8}} {
				var msgs []*consumer.Message
				for i, v := range versions {
					msgs = append(msgs, &consumer.Message{
						ID: fmt.Sprint(round, "-", i), Payload: []byte("x"), Time: began.Add(time.Duration(v) * time.Second),
					})
				}
				for _, err := range c.ProcessBatch(t.Context(), msgs) {
					if err != nil {
						t.Fatal(err)
					}
				}
				want := []string{"7", "7", "9"}[round]
				if got := db.strings(t, `SELECT version::text FROM state`); len(got) != 1 || got[0] != want {
					t.Errorf("after versions %v the state has %v, want %s", versions, got, want)
				}
			}
		})
	}
}
