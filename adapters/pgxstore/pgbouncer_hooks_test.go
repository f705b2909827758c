package pgxstore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Behind a pooler hooks of the pool that change nothing may do what they like. Another client has changed all sessions
// before.
func TestHooksThatChangeNothingBehindAPooler(t *testing.T) {
	t.Parallel()
	for name, hook := range map[string]func(ctx context.Context, conn *pgx.Conn) error{
		"a transaction of its own": func(ctx context.Context, conn *pgx.Conn) error {
			return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return second(tx.Exec(ctx, `SELECT 1`)) })
		},
		"DISCARD ALL": func(ctx context.Context, conn *pgx.Conn) error { return second(conn.Exec(ctx, `DISCARD ALL`)) },
		"an error that it ignores": func(ctx context.Context, conn *pgx.Conn) error {
			_, _ = conn.LoadType(ctx, "no_such_type")
			return nil
		},
	} {
		for _, sessions := range []int{2, 3, 4} {
			for _, each := range []bool{false, true} {
				t.Run(fmt.Sprint(name, sessions, each), func(t *testing.T) {
					t.Parallel()
					p := newPooledSessions(t, sessions, "server_round_robin = 1")
					p.change(sessions, fmt.Sprintf(`SELECT set_config('search_path', '%s_b', false)`, p.schema))
					cfg, err := pgxpool.ParseConfig(p.pooled)
					p.must(err)
					if each {
						cfg.PrepareConn = func(ctx context.Context, conn *pgx.Conn) (bool, error) {
							err := hook(ctx, conn)
							return err == nil, err
						}
					} else {
						cfg.AfterConnect = hook
					}
					_, want := p.handleTwo(cfg)
					p.effects(want)
				})
			}
		}
	}
}

// pgx calls a hook of pgconn once per connection. So does the Store: the hook may not work twice.
func TestAHookOfPgconnRunsOncePerConnection(t *testing.T) {
	t.Parallel()
	p := newPooledSessions(t, 5, "pool_mode = session", "server_reset_query = DISCARD ALL")
	cfg, err := pgxpool.ParseConfig(p.pooled)
	p.must(err)
	cfg.ConnConfig.AfterConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		_, err := conn.Prepare(ctx, "tenant_of", `SELECT 1`, nil)
		return err
	}
	_, want := p.handleTwo(cfg)
	p.effects(want)
}

// The hook pings, and another client of the pooler changes the session meanwhile. That does not make the Store believe
// that the hook sets something: it notices a session that is changed later.
func TestAHookThatAnotherClientInterrupts(t *testing.T) {
	t.Parallel()
	p := newPooledSessions(t, 1)
	cfg, err := pgxpool.ParseConfig(p.pooled)
	p.must(err)
	cfg.MaxConns = 2
	other, changes := testPool(t, p.pooled, 1), false
	s, _ := p.hooked(cfg, func(ctx context.Context, conn *pgx.Conn) (bool, error) {
		if changes {
			// it waits as long as the Store has the only session
			ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			defer cancel()
			_, _ = other.Exec(ctx, `SELECT set_config('search_path', $1, false)`, p.schema+"_b")
		}
		return pings(ctx, conn)
	})
	changes = true
	if err := p.handle(s, "0", `INSERT INTO effects VALUES ('0')`); err != nil && !s.Retryable(err) {
		t.Fatal(err)
	}
	changes = false
	p.must(p.handle(s, "of tenant_b", `SELECT `+p.schema+`.use_tenant_b()`))
	p.must(p.handle(s, "1", `INSERT INTO effects VALUES ('1')`))
	if got := stringsIn(t, p.direct, `SELECT name FROM `+p.schema+`_b.effects`); len(got) > 0 {
		t.Errorf("the other client's schema has the effects %v", got)
	}
}

// The temporary tables of a hook have another name for each tenant.
func TestAHookThatMakesTemporaryTablesOfATenant(t *testing.T) {
	t.Parallel()
	p := newPooledSessions(t, 1)
	cfg := p.direct.Config()
	cfg.MaxConns = 1
	connections, tenants := 0, 0
	cfg.AfterConnect = func(context.Context, *pgx.Conn) error { connections++; return nil }
	s, _ := p.hooked(cfg, func(ctx context.Context, conn *pgx.Conn) (bool, error) {
		tenants++
		return true, second(conn.Exec(ctx, fmt.Sprintf(`DISCARD TEMP; CREATE TEMP TABLE tenant_%d (n int)`, tenants),
			pgx.QueryExecModeSimpleProtocol))
	})
	for i := range 20 {
		p.must(s.InTx(t.Context(), ordinaryRecord(fmt.Sprint(i)), doNothing))
	}
	if connections > 5 {
		t.Errorf("%d connections for 20 messages", connections)
	}
}
