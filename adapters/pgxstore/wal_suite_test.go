package pgxstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/outbox/outboxtest"
)

// slots keeps the tests from needing more slots at once than a server has by default, which is ten.
var slots = make(chan struct{}, 3)

// newWALStore returns a store whose slot goes away with the test. It is to be called after newOutboxDB.
func newWALStore(tb testing.TB, db *outboxDB, cfg pgxstore.OutboxConfig) *pgxstore.Store {
	tb.Helper()
	store := newSlotlessStore(tb, db, cfg)
	if err := store.CreateOutboxSlot(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	return store
}

// newSlotlessStore leaves it to the test to create the slot.
func newSlotlessStore(tb testing.TB, db *outboxDB, cfg pgxstore.OutboxConfig) *pgxstore.Store {
	tb.Helper()
	cfg.Mode = pgxstore.OutboxWAL
	store := newStore(tb, pgxstore.Config{Pool: db.pool, Outbox: cfg})
	slots <- struct{}{}
	tb.Cleanup(func() {
		db.dropSlot(tb)
		<-slots
	})
	return store
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

const goesAway = "the stream counts roughly, and from when a message was enqueued; docs/outbox.md says so, and that the mode goes away"

const oneReader = "a slot has one reader: one session holds all shards, and the others stand by"

func TestOutboxWALStore(t *testing.T) {
	servers(t, func(t *testing.T, server func(testing.TB) string) {
		outboxtest.TestStore(t, outboxtest.Harness[pgx.Tx]{
			Features: outboxtest.Features{LateSequence: true, LateNews: true, DoesNotApply: map[string]string{
				"sessions share the shards, and never hold one together":                      oneReader,
				"a session above its share gives back what has nothing leased, and only that": oneReader,
				"Hold says until when, how much, and who else":                                oneReader,
				"a session that joins a busy one has its share after three Renews":            oneReader,
				"nobody gives up a shard for a session that has asked once":                   oneReader,
				"what stays free is taken":                                                    oneReader,
				"Stats name the relays":                                                       oneReader,
				"Stats count what comes later as due since its not-before time":               goesAway,
				"Stats leave nothing out while messages move":                                 goesAway,
				"sessions that work at once lease each message once":                          oneReader,
				"only the session that holds a shard settles its messages":                    oneReader,
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
