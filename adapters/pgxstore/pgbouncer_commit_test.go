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
	"github.com/txonce/txonce/outbox"
)

// changesItsSession runs a handler that changes its session. Without a pooler it works, which check finds out. Behind
// one it is refused and commits nothing, and other clients find an unchanged session.
func changesItsSession(t *testing.T, more string, do func(p *pooledSessions, s *pgxstore.Store) error,
	check func(p *pooledSessions),
) {
	t.Parallel()
	for _, mode := range []string{"direct", "transaction", "session"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			p := newPooledSessions(t, 4, "pool_mode = "+strings.Replace(mode, "direct", "session", 1),
				"server_reset_query = DISCARD ALL")
			p.must(second(p.direct.Exec(t.Context(), strings.ReplaceAll(more, "@", p.schema),
				pgx.QueryExecModeSimpleProtocol)))
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
			err = do(p, s)
			if mode == "direct" {
				p.must(err)
				check(p)
				return
			}
			if err == nil || s.Retryable(err) || !strings.Contains(err.Error(), "SET LOCAL") {
				t.Errorf("InTx = %v, want an error that names SET LOCAL and is not retryable", err)
			}
			p.effects(nil)
			p.must(p.handle(s, "next", `INSERT INTO effects VALUES ('next')`))
			p.effects([]string{"next"})
			if got := stringsIn(t, testPool(t, p.pooled, 1),
				`SELECT current_setting('search_path')`); got[0] != p.schema {
				t.Errorf("another client has the search_path %s", got[0])
			}
		})
	}
}

// A deferred trigger runs within COMMIT, in the session as the handler has left it.
func TestADeferredTriggerHasTheSessionOfTheHandler(t *testing.T) {
	changesItsSession(t, `CREATE FUNCTION @.audited() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO effects VALUES ('audit of ' || NEW.name); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER audited AFTER INSERT ON @.effects DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.name = 'a') EXECUTE FUNCTION @.audited()`,
		func(p *pooledSessions, s *pgxstore.Store) error {
			return p.handle(s, "a", fmt.Sprintf(`INSERT INTO effects VALUES ('a'); SET search_path = %s_b`, p.schema))
		}, func(p *pooledSessions) {
			p.effects([]string{"a"})
			if got := stringsIn(p, p.direct, `SELECT name FROM `+p.schema+`_b.effects`); !slices.Equal(got,
				[]string{"audit of a"}) {
				p.Errorf("the schema that the handler has chosen has the effects %v", got)
			}
		})
}

// COMMIT comes before the temporary table is dropped: its deferred constraints are checked then.
func TestATemporaryTableWithDeferredConstraints(t *testing.T) {
	changesItsSession(t, ``, func(p *pooledSessions, s *pgxstore.Store) error {
		return p.handle(s, "a", `CREATE TEMP TABLE staged (id int UNIQUE DEFERRABLE INITIALLY DEFERRED); INSERT INTO staged VALUES (1), (2);
UPDATE staged SET id = id + 1; INSERT INTO effects VALUES ('a')`)
	}, func(p *pooledSessions) { p.effects([]string{"a"}) })
}

// A session's advisory lock that a handler has taken is held until its effects are committed.
func TestALockOfTheSessionIsHeldUntilCommit(t *testing.T) {
	changesItsSession(t, `CREATE FUNCTION @.held() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
INSERT INTO @_b.effects SELECT count(*)::text FROM pg_locks WHERE locktype = 'advisory' AND objid = 77 AND pid = pg_backend_pid(); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER held AFTER INSERT ON @.effects DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION @.held()`,
		func(p *pooledSessions, s *pgxstore.Store) error {
			return p.handle(s, "a", `SELECT pg_advisory_lock(77); INSERT INTO effects VALUES ('a')`)
		}, func(p *pooledSessions) {
			if got := stringsIn(p, p.direct, `SELECT name FROM `+p.schema+`_b.effects`); !slices.Equal(got,
				[]string{"1"}) {
				p.Errorf("%v locks were held within COMMIT, want 1", got)
			}
		})
}

// Outbox messages are written in the session as the handler has left it, such as with the role that it has set.
func TestOutboxMessagesAreWrittenInTheSessionOfTheHandler(t *testing.T) {
	changesItsSession(t, `CREATE FUNCTION @.written() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO @.effects VALUES (current_setting('lock_timeout')); RETURN NULL; END $$;
CREATE TRIGGER written AFTER INSERT ON @.outbox_messages FOR EACH ROW EXECUTE FUNCTION @.written()`,
		func(p *pooledSessions, s *pgxstore.Store) error {
			rec := dedup.Record{Key: dedup.Key{Consumer: "billing", ID: "a"}, Time: time.Now(), Window: time.Hour}
			return s.InTx(p.Context(), []dedup.Record{rec}, func(tx pgx.Tx, _ []dedup.Claim) error {
				if _, err := tx.Exec(p.Context(), `SET lock_timeout = '77s'`); err != nil {
					return err
				}
				return s.Enqueue(p.Context(), tx, outbox.Message{ID: "a", Topic: "events", OrderingKey: "k"})
			})
		}, func(p *pooledSessions) { p.effects([]string{"77s"}) })
}

// Another client waits for the only session of the pooler while a handler tries to change that session.
func TestAHandlerChangesNoSessionThatAnotherClientWaitsFor(t *testing.T) {
	t.Parallel()
	p := newPooledSessions(t, 1)
	s := p.start()
	conn, err := pgx.Connect(t.Context(), p.pooled)
	p.must(err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	if err := s.InTx(t.Context(), ordinaryRecord("a"), func(tx pgx.Tx, _ []dedup.Claim) error {
		front := conn.PgConn().Frontend()
		front.Send(&pgproto3.Query{String: `SELECT current_setting('search_path')`})
		if err := front.Flush(); err != nil {
			return err
		}
		for range 2 { // the pooler has read the other client's statement when it answers
			if _, err := tx.Exec(t.Context(), `SELECT 1`); err != nil {
				return err
			}
		}
		_, _ = tx.Exec(t.Context(), `SET search_path = `+p.schema+`_b`) // like a handler that ignores its errors
		return nil
	}); err == nil || s.Retryable(err) || !strings.Contains(err.Error(), "SET LOCAL") {
		t.Errorf("InTx = %v, want an error that names SET LOCAL and is not retryable", err)
	}
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
