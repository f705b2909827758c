package pgxstore_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/internal/test/testdb"
)

// Another client of the pooler changes each session again and again: before each new connection of the Store's process,
// and once more before the next one. A process that starts meanwhile does not take such a session for an unchanged one,
// whether or not its pool has a hook. It starts when the other client has stopped.
func TestASessionOfAPoolerThatAnotherClientKeepsChanging(t *testing.T) {
	t.Parallel()
	for name, hook := range map[string]func(context.Context, *pgx.Conn) error{
		"no hook": nil, "a hook that sets nothing": func(context.Context, *pgx.Conn) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPooledSessions(t, 1)
			other := testPool(t, p.pooled, 1)
			cfg, err := pgxpool.ParseConfig(p.pooled)
			p.must(err)
			cfg.AfterConnect = hook
			dial := cfg.ConnConfig.DialFunc
			var stopped atomic.Bool
			cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
				if stopped.Load() {
					return dial(ctx, network, addr)
				}
				if _, err := other.Exec(ctx, `SELECT set_config('search_path', $1, false)`, p.schema+"_b"); err != nil {
					return nil, err
				}
				return dial(ctx, network, addr)
			}
			pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
			p.must(err)
			t.Cleanup(pool.Close)
			s := newStore(p, pgxstore.Config{Pool: pool, Schema: p.schema})
			for what, err := range map[string]error{
				"Register": s.Register(t.Context(), "billing", time.Hour),
				"InTx":     p.handle(s, "0", `INSERT INTO effects VALUES ('0')`),
			} {
				if err != nil && (!s.Retryable(err) || !strings.Contains(err.Error(), p.schema+`_b", want "on 0 `)) {
					t.Errorf("%s = %v, want an error that names both schemas", what, err)
				}
			}
			stopped.Store(true)
			p.must(again(s, func() error { return s.Register(t.Context(), "billing", time.Hour) }))
			p.must(again(s, func() error { return p.handle(s, "0", `INSERT INTO effects VALUES ('0')`) }))
			p.effects([]string{"0"})
		})
	}
}

// change sends sql in each of n sessions.
func (p *pooledSessions) change(n int, sql string) {
	p.Helper()
	pool := newPool(p, p.pooled, n)
	defer pool.Close()
	for range n {
		tx, err := pool.Begin(p.Context())
		p.must(err)
		p.must(second(tx.Exec(p.Context(), sql)))
		defer func() { p.must(tx.Commit(p.Context())) }()
	}
}

// Another client has changed all sessions of the pooler. A process that starts then finds the tables and the settings
// that it would find without that client. It has no Config.Schema.
func TestAStartBehindAPoolerMeetsChangedSessions(t *testing.T) {
	t.Parallel()
	for change, other := range map[string]bool{ // whether the other schema has tables of txonce
		`SELECT set_config('search_path', '@_b', false)`:      true,
		`SELECT set_config('search_path', '@_b', false), '-'`: false,
		`SET synchronous_commit = off`:                        false, `SET default_transaction_read_only = on`: false,
	} {
		t.Run(change, func(t *testing.T) {
			t.Parallel()
			p := newPooledSessions(t, 3, "server_round_robin = 1")
			if other {
				p.must(second(p.direct.Exec(t.Context(), `SET search_path = `+p.schema+`_b; `+testdb.PostgresTables(t, "")+`; RESET search_path`, pgx.QueryExecModeSimpleProtocol)))
			}
			for range 2 { // two processes
				p.change(3, strings.ReplaceAll(change, "@", p.schema))
				s := newStore(p, pgxstore.Config{Pool: testPool(p, p.pooled, 3)})
				err := s.Register(p.Context(), "billing", time.Hour)
				for tries := 0; s.Retryable(err) && tries < 3; tries++ {
					// a session that accepts no writes is reset when a statement has met it
					err = s.Register(p.Context(), "billing", time.Hour)
				}
				p.must(err)
				p.must(p.handle(s, "m", `INSERT INTO effects VALUES ('m')`))
			}
			p.effects([]string{"m"})
		})
	}
}

// In transaction mode a hook's settings are left to other clients. A Store that has the hook uses no session with them,
// so that no message is in the hook's schema or in both.
func TestAHookBehindAPoolerInTransactionMode(t *testing.T) {
	t.Parallel()
	p := newPooledSessions(t, 4)
	cfg, err := pgxpool.ParseConfig(p.pooled)
	p.must(err)
	cfg.MaxConns = 6
	cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		return second(conn.Exec(ctx, `SET search_path = `+p.schema+`_b`))
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	p.must(err)
	t.Cleanup(pool.Close)
	s := newStore(p, pgxstore.Config{Pool: pool, Schema: p.schema})
	if err := s.Register(t.Context(), "billing", time.Hour); err != nil && !s.Retryable(err) {
		t.Fatal(err)
	}
	done := make(chan error)
	for w := range 4 {
		go func() {
			var failed error
			for i := range 10 {
				if err := p.handle(s, fmt.Sprint(w, "-", i), `INSERT INTO effects VALUES ('1')`); err != nil {
					failed = err
				}
			}
			done <- failed
		}()
	}
	for range 4 {
		if err := <-done; err != nil && !s.Retryable(err) {
			t.Error(err)
		}
	}
	if got := stringsIn(t, p.direct, `SELECT name FROM `+p.schema+`_b.effects`); len(got) > 0 {
		t.Errorf("the hook's schema has the effects %v", got)
	}
}

// A pooler that sets up its sessions by connect_query is refused: the Store cannot tell these settings from those that
// another client has left.
func TestASessionThatThePoolerSetsUpIsRefused(t *testing.T) {
	t.Parallel()
	p := newPooledSessions(t, 1)
	server := p.direct.Config().ConnConfig
	dsn, _ := testdb.StartPgBouncer(t, p.direct.Config().ConnString(), "default_pool_size = 1", "[databases]",
		fmt.Sprintf("%s = host=%s port=%d user=%s connect_query='SET search_path = %s_b'", server.Database, server.Host,
			server.Port, server.User, p.schema))
	s := newStore(p, pgxstore.Config{Pool: testPool(p, dsn+"&default_query_exec_mode=exec", 3), Schema: p.schema})
	for what, err := range map[string]error{
		"Register": s.Register(t.Context(), "billing", time.Hour),
		"InTx":     p.handle(s, "a", `INSERT INTO effects VALUES ('a')`),
	} {
		if !s.Retryable(err) || !strings.Contains(err.Error(), p.schema+`_b", want "on 0 `) ||
			!strings.Contains(err.Error(), "connect_query") {
			t.Errorf("%s = %v, want an error that names both schemas and connect_query", what, err)
		}
	}
	p.effects(nil)
}

// PgBouncer drops a parameter of the connection. The Store does not expect it in the sessions.
func TestAParameterThatThePoolerIgnores(t *testing.T) {
	t.Parallel()
	p := newPooledSessions(t, 1, "ignore_startup_parameters = search_path")
	p.pooled += "&search_path=" + p.schema + "_b"
	s := p.start()
	p.must(p.handle(s, "a", `INSERT INTO effects VALUES ('a')`))
	p.effects([]string{"a"})
}
