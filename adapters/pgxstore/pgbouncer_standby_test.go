package pgxstore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/test/testdb"
)

// newReplicatedSessions returns a PgBouncer in front of a server whose COMMITs wait for a standby. Its direct connections wait for none.
func newReplicatedSessions(t *testing.T, sessions int, settings ...string) *pooledSessions {
	t.Helper()
	if reason := testdb.NoOwnPostgres(); reason != "" {
		t.Fatal(reason)
	}
	primary := testdb.StartPostgres(t)
	primary.StartStandby(t)
	p := newPooledSessionsAt(t, primary.DSN, sessions, settings...)
	p.direct = testPool(t, primary.DSN+"&synchronous_commit=local", 2)
	p.must(second(p.direct.Exec(t.Context(), `ALTER SYSTEM SET synchronous_standby_names = '*'`)))
	p.must(second(p.direct.Exec(t.Context(), `SELECT pg_reload_conf()`)))
	p.await(`SELECT sync_state = 'sync' FROM pg_stat_replication`) // the server's checkpointer and the standby's sender have read the setting
	return p
}

// await waits until query returns true.
func (p *pooledSessions) await(query string) {
	p.Helper()
	for end := time.Now().Add(time.Minute); ; <-time.After(5 * time.Millisecond) {
		if got := stringsIn(p, p.direct, `SELECT (`+query+`)::text`); len(got) == 1 && got[0] == "true" {
			return
		}
		if time.Now().After(end) {
			p.Fatalf("after a minute, this is not true: %s", query)
		}
	}
}

// COMMIT fails, and the session keeps what a rollback does not undo: a lock, or a prepared statement. It is reset before another client gets it.
func TestAChangedSessionWhoseCommitFailsIsReset(t *testing.T) {
	t.Parallel()
	for _, replicated := range []bool{false, true} {
		for _, leaves := range []string{`SELECT pg_advisory_lock(78)`, `PREPARE left_behind AS SELECT 1`} {
			t.Run(fmt.Sprint(leaves, replicated), func(t *testing.T) {
				t.Parallel()
				var p *pooledSessions
				if replicated {
					p = newReplicatedSessions(t, 2, "server_round_robin = 1")
				} else {
					p = newPooledSessions(t, 2, "server_round_robin = 1")
				}
				p.must(second(p.direct.Exec(t.Context(), `CREATE TABLE once (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)`)))
				p.occupy(2)
				s := p.start()
				for i := range 4 {
					if err := p.handle(s, fmt.Sprint("bad", i), leaves+`; INSERT INTO once VALUES (1), (1)`); err == nil || s.Retryable(err) {
						t.Errorf("InTx = %v, want the error of the constraint", err)
					}
					ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
					p.must(s.InTx(ctx, ordinaryRecord(fmt.Sprint("good", i)), func(tx pgx.Tx, _ []dedup.Claim) error {
						return second(tx.Exec(ctx, leaves, pgx.QueryExecModeSimpleProtocol))
					}))
					cancel()
				}
			})
		}
	}
}
