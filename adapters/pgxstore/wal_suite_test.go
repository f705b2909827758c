package pgxstore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/outboxtest"
)

// slots keeps the tests from needing more slots at once than a server has by default, which is ten.
var slots = make(chan struct{}, 3)

// newWALStore returns a store whose slot goes away with the test. It is to be called after newOutboxDB.
func newWALStore(tb testing.TB, db *outboxDB, cfg pgxstore.OutboxConfig) *pgxstore.Store {
	tb.Helper()
	cfg.Mode = pgxstore.OutboxWAL
	store := newStore(tb, pgxstore.Config{Pool: db.pool, Outbox: cfg})
	slots <- struct{}{}
	tb.Cleanup(func() {
		db.dropSlot(tb)
		<-slots
	})
	if err := store.CreateOutboxSlot(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	return store
}

// counted adds to Stats what is in the slot, which the store itself does not know: it has no cheaper way than this one to find
// out, a copy of the slot that is read to its end.
type counted struct {
	*pgxstore.Store
	db *outboxDB
}

func (c counted) Stats(ctx context.Context) (outbox.Stats, error) {
	st, err := c.Store.Stats(ctx)
	if err != nil {
		return st, err
	}
	conn, err := pgx.Connect(ctx, c.db.dsn) // with it the copy goes away
	if err != nil {
		return st, err
	}
	defer conn.Close(ctx)
	var slot, copied string
	if err := conn.QueryRow(ctx, `SELECT slot FROM txonce_slots`).Scan(&slot); err != nil {
		return st, err
	}
	copied = fmt.Sprintf("%s_%d", slot, conn.PgConn().PID())
	if _, err := conn.Exec(ctx, `SELECT pg_copy_logical_replication_slot($1, $2, true)`, slot, copied); err != nil {
		return st, err
	}
	settled := map[int64]bool{}
	rows, _ := conn.Query(ctx, `SELECT seq FROM txonce_slot_settled UNION ALL SELECT unnest(also) FROM txonce_slot_settled
		UNION ALL SELECT seq FROM outbox_messages UNION ALL SELECT seq FROM outbox_parked`)
	var seq int64
	if _, err := pgx.ForEachRow(rows, []any{&seq}, func() error { settled[seq] = true; return nil }); err != nil {
		return st, err
	}
	rows, _ = conn.Query(ctx, `SELECT data FROM pg_logical_slot_peek_binary_changes($1, NULL, NULL,
		'proto_version', '1', 'messages', 'true', 'publication_names', $2)`, copied, slot)
	var data []byte
	_, err = pgx.ForEachRow(rows, []any{&data}, func() error {
		msg, err := pglogrepl.Parse(data)
		emitted, ours := msg.(*pglogrepl.LogicalDecodingMessage)
		if err != nil || !ours || emitted.Prefix != "txonce:"+slot || emitted.Content[0] == 'k' {
			return err
		}
		m, err := pgxstore.DecodeWAL(emitted.Content)
		if err != nil {
			return err
		}
		if settled[m.Seq] {
			return nil
		}
		st.Pending++
		of := st.Topics[m.Topic]
		of.Pending++
		if st.Topics == nil {
			st.Topics = map[string]outbox.TopicStats{}
		}
		st.Topics[m.Topic] = of
		if st.Oldest.IsZero() || m.Enqueued.Before(st.Oldest) {
			st.Oldest = m.Enqueued
		}
		return nil
	})
	return st, err
}

// dropSlot drops the slot of the outbox, whoever reads it.
func (db *outboxDB) dropSlot(tb testing.TB) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), 2*time.Minute)
	defer cancel()
	var name *string
	if err := db.pool.QueryRow(ctx, `SELECT (SELECT slot FROM txonce_slots)`).Scan(&name); err != nil || name == nil {
		tb.Log(name, err)
		return
	}
	for {
		_, err := db.pool.Exec(ctx, `SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1 AND active`, *name)
		if err == nil {
			_, err = db.pool.Exec(ctx, `SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = $1`, *name)
		}
		if err == nil {
			break
		}
		select {
		case <-time.After(10 * time.Millisecond): // its reader ends by and by
		case <-ctx.Done():
			tb.Error(err)
			return
		}
	}
	if _, err := db.pool.Exec(ctx, `DROP PUBLICATION IF EXISTS `+pgx.Identifier{*name}.Sanitize()); err != nil {
		tb.Error(err)
	}
}

const oneReader = "a slot has one reader: one session holds all shards, and the others stand by"

func TestOutboxWALStore(t *testing.T) {
	servers(t, func(t *testing.T, server func(testing.TB) string) {
		outboxtest.TestStore(t, outboxtest.Harness[pgx.Tx]{
			Features: outboxtest.Features{LateSequence: true, LateNews: true, DoesNotApply: map[string]string{
				"sessions share the shards, and never hold one together":                      oneReader,
				"a session above its share gives back what has nothing leased, and only that": oneReader,
				"Hold says until when, how much, and who else":                                oneReader,
				"Stats name the relays":                                    oneReader,
				"sessions that work at once lease each message once":       oneReader,
				"only the session that holds a shard settles its messages": oneReader,
			}},
			TTL: time.Second, // the first Renew begins the stream, and each waits for a disk
			Run: func(t *testing.T, c func(*testing.T)) {
				t.Parallel()
				c(t)
			},
			New: func(t *testing.T, o outboxtest.Options) outboxtest.Outbox[pgx.Tx] {
				db := newOutboxDB(t, server, 6)
				store := newWALStore(t, db, pgxstore.OutboxConfig{KeepSent: o.KeepSent})
				return outboxtest.Outbox[pgx.Tx]{
					Writer: store, Queue: store, Operations: counted{store, db},
					InTx: func(ctx context.Context, fn func(tx pgx.Tx) error) error {
						return store.InTx(ctx, nil, func(tx pgx.Tx, _ []dedup.Claim) error { return fn(tx) })
					},
					Retryable: store.Retryable,
					Serialize: store.Serialize,
					Sent: func(t *testing.T) []string {
						return db.strings(t, `SELECT id FROM outbox_sent ORDER BY sent_at, seq`)
					},
				}
			},
		})
	})
}
