package pgxstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/test/testdb"
)

// mark is what txonce's own statements set before they delete keys.
const mark = `SELECT set_config('txonce.sweep', pg_current_xact_id()::text, true);`

// A cleanup job that every article recommends is refused, and a redelivery after it is a duplicate.
func TestForeignDeletionsAreRefused(t *testing.T) {
	t.Parallel()
	for name, server := range map[string]func(testing.TB) string{"15": testdb.Postgres, "18": testdb.Postgres18} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := newOutboxDB(t, server, 4)
			at := time.Now()
			db.claimAt(t, "order-1", at, dedup.First)
			db.expire(t, 20*24*time.Hour)
			at = at.Add(-20 * 24 * time.Hour)
			conn, err := pgx.Connect(t.Context(), db.dsn) // as psql or cron
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close(context.WithoutCancel(t.Context()))
			for _, statements := range []string{
				`DELETE FROM processed_messages WHERE expires_at < now()`,
				`DELETE FROM processed_messages WHERE false`,
				`WITH gone AS (DELETE FROM processed_messages RETURNING key) SELECT count(*) FROM gone`,
				`DO $$ BEGIN DELETE FROM processed_messages; END $$`,
				`MERGE INTO processed_messages p USING (SELECT now() AS t) AS n ON p.expires_at < n.t WHEN MATCHED THEN DELETE`,
				`TRUNCATE processed_messages`,
				`TRUNCATE effects, processed_messages CASCADE`,
				`SET txonce.sweep = 'true'; DELETE FROM processed_messages`,
				// a mark is good for one statement, and for one transaction
				mark + `DELETE FROM processed_messages WHERE false; DELETE FROM processed_messages`,
				`BEGIN; SELECT set_config('txonce.sweep', pg_current_xact_id()::text, false); COMMIT; DELETE FROM processed_messages`,
				`RESET txonce.sweep; DELETE FROM processed_messages`,
				// a Sweeper of a program that does not know the trigger
				`BEGIN; UPDATE txonce_sweep SET owner = 'old'; DELETE FROM processed_messages; UPDATE txonce_sweep SET forgotten_until = now(); COMMIT`,
			} {
				_, err := conn.Exec(t.Context(), statements, pgx.QueryExecModeSimpleProtocol)
				refused, _ := errors.AsType[*pgconn.PgError](err)
				hint := ".txonce_sweep('1 minute')"
				if strings.HasPrefix(statements, "TRUNCATE") {
					hint = "SELECT set_config('txonce.sweep', pg_current_xact_id()::text, true)"
				}
				if refused == nil || !strings.Contains(refused.Message, "txonce: ") || !strings.Contains(refused.Hint, hint) {
					t.Errorf("%s: %v, hint %q", statements, err, hintOf(err))
				}
				if _, err := conn.Exec(t.Context(), `ROLLBACK`); err != nil {
					t.Fatal(err)
				}
			}
			db.claimAt(t, "order-1", at, dedup.Duplicate)

			// What has the mark, and what a replica applies, passes.
			for _, statements := range []string{
				mark + `DELETE FROM processed_messages WHERE false`, mark + `TRUNCATE processed_messages`,
				`SET session_replication_role = replica; DELETE FROM processed_messages; RESET session_replication_role`,
				`UPDATE processed_messages SET expires_at = expires_at`, // not guarded, nor needs it to be
			} {
				if _, err := conn.Exec(t.Context(), statements, pgx.QueryExecModeSimpleProtocol); err != nil {
					t.Errorf("%s: %v", statements, err)
				}
			}
		})
	}
}

func hintOf(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Hint
	}
	return ""
}

// Forget leaves no mark that a later statement of the handler could use.
func TestForgetAllowsNoOtherDeletion(t *testing.T) {
	t.Parallel()
	db := newOutboxDB(t, testdb.Postgres, 4)
	now := time.Now()
	db.claimAt(t, "a", now, dedup.First)
	db.claimAt(t, "b", now, dedup.First)
	err := db.inTx(t.Context(), func(tx pgx.Tx) error {
		return errors.Join(db.store.Forget(t.Context(), tx, dedup.Key{Consumer: "billing", ID: "a"}),
			second(tx.Exec(t.Context(), `DELETE FROM processed_messages`)))
	})
	if err == nil || !strings.Contains(err.Error(), "txonce: DELETE of ") {
		t.Errorf("error %v", err)
	}
	if err := db.inTx(t.Context(), func(tx pgx.Tx) error {
		return db.store.Forget(t.Context(), tx, dedup.Key{Consumer: "billing", ID: "a"})
	}); err != nil {
		t.Fatal(err)
	}
	db.claimAt(t, "a", now, dedup.First)
	db.claimAt(t, "b", now, dedup.Duplicate)
}

// A subscriber of logical replication applies the deletions of the publisher's Sweeper, and refuses those of others.
func TestLogicalReplicationAppliesSweeps(t *testing.T) {
	t.Parallel()
	server := testdb.StartPostgres(t, "wal_level=logical", "wal_retrieve_retry_interval=50ms")
	from := newOutboxDBAt(t, server.DSN, 4)
	from.exec(t, `CREATE DATABASE subscriber`)
	at, err := pgx.ParseConfig(server.DSN)
	if err != nil {
		t.Fatal(err)
	}
	to := newOutboxDBAt(t, strings.Replace(server.DSN, "/postgres?", "/subscriber?", 1), 2)
	to.exec(t, `TRUNCATE txonce_sweep`) // its row comes from the publisher
	from.exec(t, `CREATE PUBLICATION claims FOR TABLE processed_messages, txonce_sweep`)
	from.exec(t, `SELECT pg_create_logical_replication_slot('claims', 'pgoutput')`)
	to.exec(t, fmt.Sprintf(`CREATE SUBSCRIPTION claims CONNECTION 'host=127.0.0.1 port=%d user=%s dbname=%s' PUBLICATION claims WITH (create_slot = false, slot_name = 'claims')`,
		at.Port, at.User, at.Database))
	await := func(query, want string) {
		t.Helper()
		var got string
		for began := time.Now(); time.Since(began) < 2*time.Minute; <-time.After(20 * time.Millisecond) {
			if got = to.value(t, query); got == want {
				return
			}
		}
		t.Fatalf("the subscriber answers %s with %q, want %q", query, got, want)
	}
	from.claimAt(t, "old", time.Now(), dedup.First)
	from.expire(t, 20*24*time.Hour)
	from.claimAt(t, "young", time.Now(), dedup.First)
	const keys = `SELECT coalesce(string_agg(id, ' ' ORDER BY id), '') FROM processed_messages`
	await(keys, "old young")
	from.mustSweep(t, ``, swept{1, true})
	await(keys, "young")
	if _, err := to.pool.Exec(t.Context(), `DELETE FROM processed_messages`); err == nil {
		t.Error("the subscriber accepts a foreign DELETE")
	}
	await(`SELECT (forgotten_until IS NOT NULL)::text FROM txonce_sweep`, "true") // it has the horizon
}

// claimAt claims a key with a message of that time, and fails if the answer is not want.
func (db *outboxDB) claimAt(tb testing.TB, id string, at time.Time, want dedup.Verdict) {
	tb.Helper()
	rec := dedup.Record{Key: dedup.Key{Consumer: "billing", ID: id}, Time: at}
	var got dedup.Verdict
	err := db.store.InTx(tb.Context(), []dedup.Record{rec}, func(_ pgx.Tx, claims []dedup.Claim) error {
		got = claims[0].Verdict
		return nil
	})
	if err != nil || got != want {
		tb.Errorf("%s is %v, error %v; want %v", id, got, err, want)
	}
}

// expire makes the database look as if d had passed. It leaves the clock of the last sweep alone.
func (db *outboxDB) expire(tb testing.TB, d time.Duration) {
	tb.Helper()
	for _, q := range []string{
		`UPDATE processed_messages SET expires_at = expires_at - $1::text::interval`,
		`UPDATE txonce_windows SET first_run = first_run - $1::text::interval, used_until = used_until - $1::text::interval`,
		`UPDATE txonce_sweep SET forgotten_until = forgotten_until - $1::text::interval, lease_until = lease_until - $1::text::interval`,
	} {
		db.exec(tb, q, fmt.Sprintf("%d s", int(d.Seconds())))
	}
}
