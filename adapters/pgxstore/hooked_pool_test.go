package pgxstore_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/test/testdb"
)

// pings is a hook that is called each time that a connection is acquired, and that sets nothing.
func pings(ctx context.Context, conn *pgx.Conn) (bool, error) { return conn.Ping(ctx) == nil, nil }

// pool returns a Store on a pool with a hook, and the pool. cfg is the pool's.
func (p *pooledSessions) hooked(cfg *pgxpool.Config,
	hook func(context.Context, *pgx.Conn) (bool, error),
) (*pgxstore.Store, *pgxpool.Pool) {
	p.Helper()
	cfg.PrepareConn = hook
	pool, err := pgxpool.NewWithConfig(p.Context(), cfg)
	p.must(err)
	p.Cleanup(pool.Close)
	s := newStore(p, pgxstore.Config{Pool: pool, Schema: p.schema})
	p.must(s.Register(p.Context(), "billing", time.Hour))
	return s, pool
}

// A hook that runs for each use decides about the search_path. It does not keep the Store from noticing a change that
// loses messages.
func TestASessionThatWasChangedIsNoticedInAPoolWithAHook(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(p *pooledSessions, s *pgxstore.Store, pool *pgxpool.Pool) error{
		"by a handler's function": func(p *pooledSessions, s *pgxstore.Store, _ *pgxpool.Pool) error {
			p.must(second(p.direct.Exec(p.Context(), `CREATE FUNCTION hurry() RETURNS text LANGUAGE sql AS $$ SELECT set_config('synchronous_commit', 'off', false) $$`)))
			return p.handle(s, "hurries", `SELECT hurry()`)
		},
		"by the application": func(p *pooledSessions, _ *pgxstore.Store, pool *pgxpool.Pool) error {
			return second(pool.Exec(p.Context(), `SET synchronous_commit = off`))
		},
		"by a temporary table of the application": func(p *pooledSessions, _ *pgxstore.Store,
			pool *pgxpool.Pool,
		) error {
			return second(pool.Exec(p.Context(), `CREATE TEMP TABLE effects (name text)`))
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPooledSessions(t, 1)
			cfg := p.direct.Config()
			cfg.MaxConns = 1
			s, pool := p.hooked(cfg, pings)
			p.must(change(p, s, pool))
			p.must(p.handle(s, "a", `INSERT INTO effects VALUES ('a')`))
			p.effects([]string{"a"})
		})
	}
}

// Behind a pooler the first use of a connection says nothing about its session: an earlier message may have left a
// temporary table there.
func TestATemporaryTableBehindAPoolerInAPoolWithAHook(t *testing.T) {
	t.Parallel()
	p := newPooledSessions(t, 1)
	p.must(second(p.direct.Exec(t.Context(),
		`CREATE FUNCTION leave_table() RETURNS void LANGUAGE plpgsql AS $$ BEGIN EXECUTE 'CREATE TEMP TABLE effects (name text)'; END $$`)))
	cfg, err := pgxpool.ParseConfig(p.pooled)
	p.must(err)
	cfg.MaxConns = 3
	s, pool := p.hooked(cfg, pings)
	p.must(p.handle(s, "a", `INSERT INTO effects VALUES ('a'); SELECT leave_table()`))
	one, err := pool.Acquire(t.Context()) // the connection of message a, so that another one handles message b
	p.must(err)
	defer one.Release()
	p.must(p.handle(s, "b", `INSERT INTO effects VALUES ('b')`))
	p.effects([]string{"a", "b"})
}

// A hook chooses the tenant by the message's ctx, each time or when the connection's tenant is another. At the start
// there is none. AfterConnect has set a role. The role of the pool's connections stays, for messages and for the
// application.
func TestAHookThatChoosesTheTenantOfAMessage(t *testing.T) {
	t.Parallel()
	for _, remembers := range []bool{false, true} {
		t.Run(fmt.Sprint("remembers ", remembers), func(t *testing.T) {
			t.Parallel()
			p := newPooledSessions(t, 1)
			role := p.role(p.schema, p.schema+"_b")
			type tenant struct{}
			cfg := p.direct.Config()
			cfg.MaxConns = 1
			cfg.AfterConnect = func(ctx context.Context,
				conn *pgx.Conn,
			) error {
				return second(conn.Exec(ctx, `SET ROLE `+role))
			}
			s, pool := p.hooked(cfg, func(ctx context.Context, conn *pgx.Conn) (bool, error) {
				schema, ok := ctx.Value(tenant{}).(string)
				if !ok || remembers && conn.PgConn().CustomData()["tenant"] == schema {
					return true, nil
				}
				conn.PgConn().CustomData()["tenant"] = schema
				return true, second(conn.Exec(ctx, `SELECT set_config('search_path', $1, false)`, schema))
			})
			for _, id := range []string{"1", "2", "3", "4"} {
				schema := map[bool]string{true: p.schema, false: p.schema + "_b"}[id > "2"]
				ctx := context.WithValue(t.Context(), tenant{}, schema)
				p.must(s.InTx(ctx, ordinaryRecord(id), func(tx pgx.Tx, _ []dedup.Claim) error {
					return second(tx.Exec(ctx, `INSERT INTO effects VALUES ($1 || ' as ' || current_user)`, id))
				}))
				if got := stringsIn(t, pool, `SELECT current_user`); got[0] != role {
					t.Errorf("the application's connection has the role %s, want %s", got[0], role)
				}
			}
			p.effects([]string{"3 as " + role, "4 as " + role})
			if got := stringsIn(p, p.direct, `SELECT name FROM `+p.schema+
				`_b.effects ORDER BY name`); !slices.Equal(got, []string{"1 as " + role, "2 as " + role}) {
				t.Errorf("tenant_b has the effects %v, want 1 and 2", got)
			}
		})
	}
}

// The application has changed the search_path of a connection before the Store first looks for its tables. Both schemas
// have some.
func TestTheSchemaIsThatOfANewSession(t *testing.T) {
	t.Parallel()
	p := newPooledSessions(t, 1)
	p.must(second(p.direct.Exec(t.Context(), `SET search_path = `+p.schema+`_b; `+testdb.PostgresTables(t, "")+`; RESET search_path`, pgx.QueryExecModeSimpleProtocol)))
	for _, before := range []string{`SELECT 1`, `SET search_path = ` + p.schema + `_b`} {
		cfg := p.direct.Config()
		cfg.MaxConns = 2
		pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
		p.must(err)
		defer pool.Close()
		p.must(second(pool.Exec(t.Context(), before)))
		s := newStore(p, pgxstore.Config{Pool: pool})
		p.must(s.Register(t.Context(), "billing", time.Hour))
		p.must(p.handle(s, "m", `INSERT INTO effects VALUES ('m')`))
	}
	p.effects([]string{"m"})
}

// A function of a handler drops the temporary table of a hook, and makes another one.
func TestAnotherTemporaryTableInThePlaceOfAHooks(t *testing.T) {
	t.Parallel()
	p := newPooledSessions(t, 1)
	cfg := p.direct.Config()
	cfg.MaxConns, cfg.AfterConnect = 1, makesTable
	s, _ := p.hooked(cfg, nil)
	p.must(second(p.direct.Exec(t.Context(),
		`CREATE FUNCTION stage() RETURNS void LANGUAGE plpgsql AS $$ BEGIN EXECUTE 'DROP TABLE staged; CREATE TEMP TABLE effects (name text)'; END $$`)))
	p.must(p.handle(s, "a", `SELECT stage()`))
	p.must(p.handle(s, "b", `INSERT INTO effects VALUES ('b')`))
	p.effects([]string{"b"})
}
