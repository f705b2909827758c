package pgxstore_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/outbox"
)

// changesItsSession runs handlers that change their session, without a pooler and behind one. COMMIT must do the same.
func changesItsSession(t *testing.T, more string, do func(p *pooledSessions, s *pgxstore.Store)) {
	t.Parallel()
	for _, mode := range []string{"direct", "transaction", "session"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			p := newPooledSessions(t, 4, "pool_mode = "+strings.Replace(mode, "direct", "session", 1), "server_reset_query = DISCARD ALL")
			p.must(second(p.direct.Exec(t.Context(), strings.ReplaceAll(more, "@", p.schema), pgx.QueryExecModeSimpleProtocol)))
			cfg, err := pgxpool.ParseConfig(p.pooled)
			p.must(err)
			if mode == "direct" {
				cfg = p.direct.Config()
			}
			cfg.MaxConns = 2
			pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
			p.must(err)
			t.Cleanup(pool.Close)
			s := newStore(p, pgxstore.Config{Pool: pool, Schema: p.schema})
			p.must(s.Register(t.Context(), "billing", time.Hour))
			do(p, s)
			if mode == "transaction" {
				if got := stringsIn(t, testPool(t, p.pooled, 1), `SELECT current_setting('search_path')`); got[0] != p.schema {
					t.Errorf("another client has the search_path %s", got[0])
				}
			}
		})
	}
}

// A deferred trigger runs within COMMIT, in the session as the handler has left it.
func TestADeferredTriggerHasTheSessionOfTheHandler(t *testing.T) {
	changesItsSession(t, `CREATE FUNCTION @.audited() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO effects VALUES ('audit of ' || NEW.name); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER audited AFTER INSERT ON @.effects DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.name = 'a') EXECUTE FUNCTION @.audited()`,
		func(p *pooledSessions, s *pgxstore.Store) {
			p.must(p.handle(s, "a", fmt.Sprintf(`INSERT INTO effects VALUES ('a'); SET search_path = %s_b`, p.schema)))
			p.effects([]string{"a"})
			if got := stringsIn(p, p.direct, `SELECT name FROM `+p.schema+`_b.effects`); !slices.Equal(got, []string{"audit of a"}) {
				p.Errorf("the schema that the handler has chosen has the effects %v", got)
			}
		})
}

// COMMIT comes before the temporary table is dropped: its deferred constraints are checked then.
func TestATemporaryTableWithDeferredConstraints(t *testing.T) {
	changesItsSession(t, ``, func(p *pooledSessions, s *pgxstore.Store) {
		p.must(p.handle(s, "a", `CREATE TEMP TABLE staged (id int UNIQUE DEFERRABLE INITIALLY DEFERRED); INSERT INTO staged VALUES (1), (2);
UPDATE staged SET id = id + 1; INSERT INTO effects VALUES ('a')`))
		p.effects([]string{"a"})
	})
}

// A session's advisory lock that a handler has taken is held until its effects are committed.
func TestALockOfTheSessionIsHeldUntilCommit(t *testing.T) {
	changesItsSession(t, `CREATE FUNCTION @.held() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
INSERT INTO @_b.effects SELECT count(*)::text FROM pg_locks WHERE locktype = 'advisory' AND objid = 77 AND pid = pg_backend_pid(); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER held AFTER INSERT ON @.effects DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION @.held()`,
		func(p *pooledSessions, s *pgxstore.Store) {
			p.must(p.handle(s, "a", `SELECT pg_advisory_lock(77); INSERT INTO effects VALUES ('a')`))
			if got := stringsIn(p, p.direct, `SELECT name FROM `+p.schema+`_b.effects`); !slices.Equal(got, []string{"1"}) {
				p.Errorf("%v locks were held within COMMIT, want 1", got)
			}
		})
}

// Outbox messages are written in the session as the handler has left it, such as with the role that it has set.
func TestOutboxMessagesAreWrittenInTheSessionOfTheHandler(t *testing.T) {
	changesItsSession(t, `CREATE FUNCTION @.written() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO @.effects VALUES (current_setting('lock_timeout')); RETURN NULL; END $$;
CREATE TRIGGER written AFTER INSERT ON @.outbox_messages FOR EACH ROW EXECUTE FUNCTION @.written()`,
		func(p *pooledSessions, s *pgxstore.Store) {
			rec := dedup.Record{Key: dedup.Key{Consumer: "billing", ID: "a"}, Time: time.Now(), Window: time.Hour}
			p.must(s.InTx(p.Context(), []dedup.Record{rec}, func(tx pgx.Tx, _ []dedup.Claim) error {
				if _, err := tx.Exec(p.Context(), `SET lock_timeout = '77s'`); err != nil {
					return err
				}
				return s.Enqueue(p.Context(), tx, outbox.Message{ID: "a", Topic: "events", OrderingKey: "k"})
			}))
			p.effects([]string{"77s"})
		})
}

// COMMIT also waits for standbys, and is answered, if it begins another transaction.
func TestCommitOfAChangedSessionWaitsForStandbys(t *testing.T) {
	t.Parallel()
	if reason := testdb.NoOwnPostgres(); reason != "" {
		t.Fatal(reason)
	}
	primary := testdb.StartPostgres(t, "synchronous_standby_names=absent", "synchronous_commit=local")
	db := newOutboxDBAt(t, primary.DSN, 1)
	conn, err := db.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if _, err := conn.Exec(t.Context(), `BEGIN`); err != nil {
		t.Fatal(err)
	}
	if err := pgxstore.CommitReplicated(t.Context(), conn.Conn().PgConn(), "commit and chain"); err != nil || conn.Conn().PgConn().TxStatus() != 'T' {
		t.Errorf("COMMIT = %v, status %c", err, conn.Conn().PgConn().TxStatus())
	}
}

// Another client waits for the only session of the pooler while a handler changes that session. It does not get the session before the reset.
func TestTheSessionIsResetBeforeAnotherClientGetsIt(t *testing.T) {
	t.Parallel()
	p := newPooledSessions(t, 1)
	s := p.start()
	conn, err := pgx.Connect(t.Context(), p.pooled)
	p.must(err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	p.must(s.InTx(t.Context(), ordinaryRecord("a"), func(tx pgx.Tx, _ []dedup.Claim) error {
		front := conn.PgConn().Frontend()
		front.Send(&pgproto3.Query{String: `SELECT current_setting('search_path')`})
		if err := front.Flush(); err != nil {
			return err
		}
		for range 2 { // the pooler has read the other client's statement when it answers
			if _, err := tx.Exec(t.Context(), `SET search_path = `+p.schema+`_b`); err != nil {
				return err
			}
		}
		return nil
	}))
	for {
		msg, err := conn.PgConn().Frontend().Receive()
		p.must(err)
		if row, ok := msg.(*pgproto3.DataRow); ok {
			if got := string(row.Values[0]); got != p.schema {
				t.Errorf("another client has the search_path %s", got)
			}
			return
		}
	}
}
