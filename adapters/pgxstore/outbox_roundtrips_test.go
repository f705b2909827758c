package pgxstore_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/outbox"
)

func second[T any](_ T, err error) error { return err }

// roundTrips counts the round trips of pgx: each query, batch and preparation is one.
type roundTrips struct {
	mu   sync.Mutex
	sent []string
}

func (r *roundTrips) add(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent = append(r.sent, what)
}

func (r *roundTrips) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	sent := r.sent
	r.sent = nil
	return sent
}

var schemaName = regexp.MustCompile(`"[^"]+"\.`)

// brief returns the first words of a statement, without the schema's name.
func brief(sql string) string {
	sql = schemaName.ReplaceAllString(sql, "")
	sql = strings.ToLower(strings.Join(strings.Fields(sql), " "))
	if words := strings.Fields(sql); len(words) > 3 {
		sql = strings.Join(words[:3], " ")
	}
	return sql
}

// isWakeUp reports whether the statement is the NOTIFY, which a goroutine sends some time after a commit.
func isWakeUp(sql string) bool { return strings.Contains(sql, "pg_notify") }

func (r *roundTrips) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	if !isWakeUp(d.SQL) {
		r.add(brief(d.SQL))
	}
	return ctx
}

func (r *roundTrips) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (r *roundTrips) TraceBatchStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceBatchStartData) context.Context {
	var all []string
	for _, q := range d.Batch.QueuedQueries {
		all = append(all, brief(q.SQL))
	}
	r.add(strings.Join(all, " + "))
	return ctx
}

func (r *roundTrips) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (r *roundTrips) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

func (r *roundTrips) TracePrepareStart(ctx context.Context, _ *pgx.Conn, d pgx.TracePrepareStartData) context.Context {
	if !isWakeUp(d.SQL) {
		r.add("prepare " + brief(d.SQL))
	}
	return ctx
}

func (r *roundTrips) TracePrepareEnd(context.Context, *pgx.Conn, pgx.TracePrepareEndData) {}

// traced returns a Store on one connection whose round trips are counted.
func (db *outboxDB) traced(t *testing.T) (*pgxstore.Store, *roundTrips) {
	trips := &roundTrips{}
	cfg := db.pool.Config()
	cfg.MaxConns, cfg.ConnConfig.Tracer = 1, trips
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return newStore(t, pgxstore.Config{Pool: pool}), trips
}

// The outbox adds no round trip: PERFORMANCE.md 5.
func TestOutboxWriterRoundTrips(t *testing.T) {
	db := newOutboxDB(t, testdb.Postgres, 2)
	store, trips := db.traced(t)
	handle := func(id string, msgs ...outbox.Message) []string {
		recs := []dedup.Record{{Key: dedup.Key{Consumer: "billing", ID: id}, Time: time.Now()}}
		err := store.InTx(t.Context(), recs, func(tx pgx.Tx, _ []dedup.Claim) error {
			if err := store.Enqueue(t.Context(), tx, msgs...); err != nil {
				return err
			}
			_, err := tx.Exec(t.Context(), `INSERT INTO effects VALUES ($1)`, id)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return trips.take()
	}
	for _, tt := range []struct {
		name string
		msgs []outbox.Message
		want string
	}{
		{"none", nil, `commit`},
		{"one", messages("a"), `insert into outbox_messages + commit`},
		{"some", messages("b", "c", "d"), `insert into outbox_messages + commit`},
		{
			"later",
			[]outbox.Message{message("e"), {ID: "f", Topic: "events", NotBefore: time.Now().Add(time.Hour)}},
			`with m as + commit`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			// the first messages prepare statements, register, and count the shards
			handle("first "+tt.name, tt.msgs...)
			want := []string{`begin isolation level + insert into processed_messages`, `insert into effects`, tt.want}
			if diff := cmp.Diff(want, handle("then "+tt.name, tt.msgs...)); diff != "" {
				t.Errorf("round trips (-want +got):\n%s", diff)
			}
		})
	}
}

// One statement writes all messages that the handlers of a batch enqueue.
func TestOutboxWriterInProcessBatch(t *testing.T) {
	db := newOutboxDB(t, testdb.Postgres, 2)
	store, trips := db.traced(t)
	c := newConsumer(t, store, consumer.Config[pgx.Tx]{
		Name: "billing",
		Handle: func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
			return store.Enqueue(ctx, tx, outbox.Message{Topic: "charged", OrderingKey: "k", Payload: m.Payload})
		},
	})
	batch := func(prefix string) (insertions int) {
		msgs := make([]*consumer.Message, 20)
		for i := range msgs {
			msgs[i] = &consumer.Message{ID: fmt.Sprintf("%s-%02d", prefix, i), Payload: fmt.Appendf(nil, "%s-%02d",
				prefix, i), Time: time.Now(), Attempt: 1}
		}
		for _, err := range c.ProcessBatch(t.Context(), msgs) {
			if err != nil {
				t.Fatal(err)
			}
		}
		for _, trip := range trips.take() {
			insertions += strings.Count(trip, "insert into outbox_messages")
		}
		return insertions
	}
	batch("a")
	if n := batch("b"); n != 1 {
		t.Errorf("%d statements for the messages of a batch, want 1", n)
	}
	var want []string
	for _, prefix := range []string{"a", "b"} {
		for i := range 20 {
			want = append(want, fmt.Sprintf("%s-%02d", prefix, i))
		}
	}
	if diff := cmp.Diff(want, db.strings(t, `SELECT convert_from(payload, 'UTF8') FROM outbox_messages ORDER BY seq`)); diff != "" {
		t.Errorf("messages in the order of their numbers (-want +got):\n%s", diff)
	}
}
