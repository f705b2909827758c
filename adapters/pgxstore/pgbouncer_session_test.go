package pgxstore_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/test/testdb"
)

// pooledSessions is a PgBouncer in front of tables for two tenants.
type pooledSessions struct {
	*testing.T
	direct *pgxpool.Pool // not through the pooler
	pooled string
	schema string
}

func newPooledSessions(t *testing.T, sessions int, settings ...string) *pooledSessions {
	t.Helper()
	_, direct := testdb.PgBouncer(t)
	return newPooledSessionsAt(t, direct, sessions, settings...)
}

func newPooledSessionsAt(t *testing.T, direct string, sessions int, settings ...string) *pooledSessions {
	t.Helper()
	pooled, _ := testdb.StartPgBouncer(t, direct, append(settings, fmt.Sprintf("default_pool_size = %d", sessions))...)
	p := &pooledSessions{T: t, direct: testPool(t, direct, 1), pooled: pooled + "&default_query_exec_mode=exec"}
	if err := p.direct.QueryRow(t.Context(), `SELECT current_schema()`).Scan(&p.schema); err != nil {
		t.Fatal(err)
	}
	makeTables(t, p.direct, strings.ReplaceAll(`CREATE TABLE effects (name text NOT NULL); CREATE SCHEMA @_b; CREATE TABLE @_b.effects (name text NOT NULL);
CREATE FUNCTION use_tenant_b() RETURNS text LANGUAGE sql AS $$ SELECT set_config('search_path', '@_b', false) $$`, "@", p.schema))
	return p
}

// role makes a role that may use the tables in these schemas. It ends with the test.
func (p *pooledSessions) role(schemas ...string) (name string) {
	p.Helper()
	name, in := p.schema+"_r", strings.Join(schemas, ", ")
	p.must(second(p.direct.Exec(p.Context(), fmt.Sprintf(`CREATE ROLE %s; GRANT USAGE ON SCHEMA %s TO %[1]s; GRANT ALL ON ALL TABLES IN SCHEMA %[2]s TO %[1]s`, name, in),
		pgx.QueryExecModeSimpleProtocol)))
	p.Cleanup(func() {
		p.must(second(p.direct.Exec(context.WithoutCancel(p.Context()), `DROP OWNED BY `+name+`; DROP ROLE `+name,
			pgx.QueryExecModeSimpleProtocol)))
	})
	return name
}

// occupy uses n sessions at the same time, so that the pooler has so many.
func (p *pooledSessions) occupy(n int) {
	p.Helper()
	pool := newPool(p, p.pooled, n)
	defer pool.Close()
	for range n {
		tx, err := pool.Begin(p.Context())
		p.must(err)
		defer func() { p.must(tx.Rollback(p.Context())) }()
	}
}

// start returns a Store of another process.
func (p *pooledSessions) start() *pgxstore.Store {
	p.Helper()
	s := newStore(p, pgxstore.Config{Pool: testPool(p, p.pooled, 3), Schema: p.schema})
	if err := s.Register(p.Context(), "billing", time.Hour); err != nil {
		p.Fatal(err)
	}
	return s
}

// handleTwo starts a Store on a pool with cfg, and handles two messages, whose IDs it returns with the pool.
func (p *pooledSessions) handleTwo(cfg *pgxpool.Config) (pool *pgxpool.Pool, ids []string) {
	p.Helper()
	pool, err := pgxpool.NewWithConfig(p.Context(), cfg)
	p.must(err)
	p.Cleanup(pool.Close)
	s := newStore(p, pgxstore.Config{Pool: pool, Schema: p.schema})
	// each try closes some changed sessions of a pooler
	p.must(again(s, func() error { return s.Register(p.Context(), "billing", time.Hour) }))
	ids = []string{"0", "1"}
	for _, id := range ids {
		p.must(p.handle(s, id, fmt.Sprintf(`INSERT INTO effects VALUES ('%s')`, id)))
	}
	return pool, ids
}

// handle handles a message by sql, and then calls meanwhile before COMMIT. A duplicate does nothing.
func (p *pooledSessions) handle(s *pgxstore.Store, id, sql string, meanwhile ...func() error) error {
	rec := dedup.Record{Key: dedup.Key{Consumer: "billing", ID: id}, Time: time.Now(), Window: time.Hour}
	return s.InTx(p.Context(), []dedup.Record{rec}, func(tx pgx.Tx, claims []dedup.Claim) error {
		if claims[0].Verdict != dedup.First {
			return nil
		}
		if _, err := tx.Exec(p.Context(), sql); err != nil {
			return err
		}
		for _, do := range meanwhile {
			if err := do(); err != nil {
				return err
			}
		}
		return nil
	})
}

func (p *pooledSessions) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

// effects checks whose effects are in the schema of the connection.
func (p *pooledSessions) effects(want []string) {
	p.Helper()
	if got := stringsIn(p, p.direct, `SELECT name FROM effects ORDER BY name`); !slices.Equal(got, want) {
		p.Errorf("effects of messages %v in the schema of the connection, want %v", got, want)
	}
}

// A function of a handler changes the search_path of two sessions that the pooler gives to others later. No other
// message runs in such a session, whatever meets it first.
func TestASessionOfAPoolerThatAFunctionHasChanged(t *testing.T) {
	t.Parallel()
	for name, next := range map[string]func(p *pooledSessions, s *pgxstore.Store) *pgxstore.Store{
		"a new message": func(_ *pooledSessions, s *pgxstore.Store) *pgxstore.Store { return s },
		"a redelivery": func(p *pooledSessions, s *pgxstore.Store) *pgxstore.Store {
			p.must(p.handle(s, "of tenant_b", ``))
			return s
		},
		"a process's start": func(p *pooledSessions, _ *pgxstore.Store) *pgxstore.Store { return p.start() },
	} {
		t.Run(name, func(t *testing.T) {
			p := newPooledSessions(t, 5)
			s := p.start()
			p.must(p.handle(s, "of tenant_b", `SELECT use_tenant_b()`, func() error {
				return p.handle(s, "another of tenant_b", `SELECT use_tenant_b()`)
			}))
			s = next(p, s)
			want := []string{"0", "1", "2", "3"}
			for _, id := range want {
				p.must(p.handle(s, id, fmt.Sprintf(`INSERT INTO effects VALUES ('%s')`, id)))
			}
			p.effects(want)
		})
	}
}

// The pooler gives out its sessions in turns, so that a claim and what follows it meet different ones. A session that a
// function of a handler has changed is closed all the same, and no message fails.
func TestASessionOfAPoolerThatTakesTurns(t *testing.T) {
	t.Parallel()
	for n := range 6 {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			sessions, turns := 3+n%2, n/2 // until the changed session's turn comes
			p := newPooledSessions(t, sessions, "server_round_robin = 1")
			p.occupy(sessions)
			s, other := p.start(), testPool(t, p.pooled, 1)
			p.must(p.handle(s, "of tenant_b", `SELECT use_tenant_b()`))
			for range turns {
				p.must(second(other.Exec(t.Context(), `SELECT 1`)))
			}
			var want []string
			for i := range 8 {
				want = append(want, fmt.Sprint(i))
				p.must(p.handle(s, want[i], fmt.Sprintf(`INSERT INTO effects VALUES ('%d')`, i)))
			}
			p.effects(want)
		})
	}
}

// Behind a pooler, what a hook sets may reach sessions of other clients. So the start is refused, and its error names
// what was found and what is wanted. That holds in each of the pooler's modes, because the Store cannot find out the
// mode.
func TestSessionsOfAPoolerThatHooksPrepare(t *testing.T) {
	t.Parallel()
	for name, hook := range map[string]func(cfg *pgxpool.Config, sql string){
		"AfterConnect of pgxpool": func(cfg *pgxpool.Config, sql string) {
			cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error { return second(conn.Exec(ctx, sql)) }
		},
		"AfterConnect of pgconn": func(cfg *pgxpool.Config, sql string) {
			cfg.ConnConfig.AfterConnect = func(ctx context.Context,
				conn *pgconn.PgConn,
			) error {
				return conn.Exec(ctx, sql).Close()
			}
		},
		"BeforeConnect": func(cfg *pgxpool.Config, sql string) {
			cfg.BeforeConnect = func(_ context.Context, cfg *pgx.ConnConfig) error {
				cfg.AfterConnect = func(ctx context.Context,
					conn *pgconn.PgConn,
				) error {
					return conn.Exec(ctx, sql).Close()
				}
				return nil
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPooledSessions(t, 14, "pool_mode = session", "server_round_robin = 1",
				"server_reset_query = DISCARD ALL")
			cfg, err := pgxpool.ParseConfig(p.pooled)
			p.must(err)
			hook(cfg, fmt.Sprintf(`SET search_path = %s_b`, p.schema))
			pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
			p.must(err)
			t.Cleanup(pool.Close)
			s := newStore(t, pgxstore.Config{Pool: pool, Schema: p.schema})
			err = s.Register(t.Context(), "billing", time.Hour)
			if !s.Retryable(err) || !strings.Contains(err.Error(), p.schema+`_b", want "on 0 `) ||
				!strings.Contains(err.Error(), "ALTER ROLE") {
				t.Errorf("Register = %v, want an error that names both schemas and ALTER ROLE", err)
			}
		})
	}
}

// The pooler has one session, and a function of a handler has changed it. The next claim meets the change and closes
// the session, and does not wait for a second one while it occupies the only one.
func TestTheOnlySessionOfAPoolerIsClosed(t *testing.T) {
	t.Parallel()
	p := newPooledSessions(t, 1)
	s := p.start()
	p.must(p.handle(s, "of tenant_b", `SELECT use_tenant_b()`))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // less than ClaimTimeout
	defer cancel()
	rec := dedup.Record{Key: dedup.Key{Consumer: "billing", ID: "0"}, Time: time.Now(), Window: time.Hour}
	p.must(s.InTx(ctx, []dedup.Record{rec}, func(tx pgx.Tx, _ []dedup.Claim) error {
		return second(tx.Exec(ctx, `INSERT INTO effects VALUES ('0')`))
	}))
	p.effects([]string{"0"})
}

// Behind a pooler a handler may not change its session. The forms of such statements that end with the transaction
// work.
func TestASessionOfAPoolerMayNotBeChanged(t *testing.T) {
	t.Parallel()
	p := newPooledSessions(t, 1)
	s := p.start()
	for sql, works := range map[string]bool{
		`DECLARE c CURSOR WITH HOLD FOR SELECT 1`: false, `PREPARE "My plan" AS SELECT 1`: false,
		`CREATE TEMP TABLE left_behind (n int)`: false,
		`SET lock_timeout = 1000`:               false, `SELECT set_config('lock_timeout', '1000', false)`: false,
		`SET ROLE pg_monitor`: false, `LISTEN x`: false,
		`SELECT pg_advisory_lock(1)`: false, `DO $$ BEGIN PERFORM pg_advisory_lock(1); END $$`: false,
		`SELECT 1; SET lock_timeout = 1000`: false,
		`SET LOCAL lock_timeout = 1000`:     true, `SELECT set_config('lock_timeout', '1000', true)`: true,
		`SELECT pg_advisory_xact_lock(1)`:               true,
		`CREATE TEMP TABLE gone (n int) ON COMMIT DROP`: true, `SET LOCAL ROLE pg_monitor; RESET ROLE`: false,
	} {
		for i := range 2 {
			err := p.handle(s, fmt.Sprint(sql, i), sql)
			if (err == nil) != works || err != nil && (s.Retryable(err) || !strings.Contains(err.Error(),
				"SET LOCAL")) {
				t.Errorf("%s, message %d: %v; want it to work: %v", sql, i, err, works)
			}
		}
	}
}

// A statement outside of a transaction meets a session of the pooler that accepts no writes. That session is closed.
func TestASessionOfAPoolerThatAcceptsNoWritesIsClosed(t *testing.T) {
	t.Parallel()
	p := newPooledSessions(t, 1)
	s := p.start()
	p.must(second(testPool(t, p.pooled, 1).Exec(t.Context(), `SET default_transaction_read_only = on`)))
	claim := func() error {
		rec := dedup.Record{Key: dedup.Key{Consumer: "another", ID: "1"}, Time: time.Now()}
		return s.InTx(t.Context(), []dedup.Record{rec}, func(pgx.Tx, []dedup.Claim) error { return nil })
	}
	first, then := claim(), claim()
	if first == nil || then != nil {
		t.Errorf("InTx = %v, and then %v; want an error, and then nil", first, then)
	}
}

// A program that does not call Register leaves other clients of the pooler no changed session either.
func TestASessionOfAPoolerMayNotBeChangedWithoutRegister(t *testing.T) {
	t.Parallel()
	p := newPooledSessions(t, 1)
	s := newStore(p, pgxstore.Config{Pool: testPool(p, p.pooled, 3), Schema: p.schema})
	if err := p.handle(s, "a", `SET search_path = `+p.schema+`_b`); err == nil || !strings.Contains(err.Error(),
		"SET LOCAL") {
		t.Errorf("InTx = %v, want an error that names SET LOCAL", err)
	}
	if got := stringsIn(t, testPool(t, p.pooled, 1), `SELECT current_setting('search_path')`); got[0] != p.schema {
		t.Errorf("another client has the search_path %s", got[0])
	}
}

// A handler uses its transaction although the message is a duplicate. That transaction may meet a session that another
// client has changed.
func TestADuplicatesTransactionMeetsAChangedSession(t *testing.T) {
	t.Parallel()
	p := newPooledSessions(t, 2, "server_round_robin = 1")
	p.occupy(2)
	s, other := p.start(), testPool(t, p.pooled, 1)
	p.must(p.handle(s, "a", ``))
	rec := dedup.Record{Key: dedup.Key{Consumer: "billing", ID: "a"}, Time: time.Now(), Window: time.Hour}
	for i := range 6 {
		for range i % 2 {
			p.must(second(other.Exec(t.Context(), `SELECT 1`)))
		}
		p.must(second(other.Exec(t.Context(), `SELECT set_config('search_path', $1, false)`, p.schema+"_b")))
		p.must(again(s, func() error {
			return s.InTx(t.Context(), []dedup.Record{rec}, func(tx pgx.Tx, _ []dedup.Claim) error {
				var path string
				err := tx.QueryRow(t.Context(), `SELECT current_setting('search_path')`).Scan(&path)
				if err == nil && path != p.schema {
					t.Errorf("a handler has the search_path %s", path)
				}
				return err
			})
		}))
	}
}
