package pgxstore_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
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

// Claim works in the caller's transaction and accepts the state of its session, but refuses settings that may lose
// commits.
func TestClaimRefusesATransactionThatACrashMayUndo(t *testing.T) {
	pool := testPool(t, testdb.Schema(t, testdb.Postgres(t)), 2)
	makeTables(t, pool, ``)
	for _, allowed := range []bool{false, true} {
		s := newStore(t, pgxstore.Config{Pool: pool, AllowAsyncCommit: allowed})
		err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), `SET LOCAL synchronous_commit = off`); err != nil {
				return err
			}
			_, err := s.Claim(t.Context(), tx, []dedup.Record{{Key: dedup.Key{Consumer: "billing", ID: "1"}, Time: time.Now()}})
			return err
		})
		if errors.Is(err, dedup.ErrNotDurable) == allowed || allowed && err != nil {
			t.Errorf("AllowAsyncCommit %v: Claim = %v", allowed, err)
		}
	}
}

// A connection whose commits a crash may undo leaves the pool, so that the Store works again once the setting is taken
// back.
func TestASessionWhoseCommitsACrashMayUndoIsClosed(t *testing.T) {
	cfg, err := pgxpool.ParseConfig(testdb.Schema(t, testdb.Postgres(t)))
	if err != nil {
		t.Fatal(err)
	}
	setting := "off"
	cfg.MaxConns = 1
	cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		return second(conn.Exec(ctx, `SET synchronous_commit = `+setting))
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	makeTables(t, pool, ``)
	s := newStore(t, pgxstore.Config{Pool: pool})
	if err := s.InTx(t.Context(), ordinaryRecord("1"), doNothing); !errors.Is(err, dedup.ErrNotDurable) {
		t.Errorf("InTx = %v, want ErrNotDurable", err)
	}
	setting = "on"
	if err := s.InTx(t.Context(), ordinaryRecord("1"), doNothing); err != nil {
		t.Errorf("after the setting was taken back, InTx = %v", err)
	}
}

// If a hook of the pool prepares each session for its use, the hook decides about role and search_path.
func TestPoolThatPreparesItsSessions(t *testing.T) {
	dsn := testdb.Schema(t, testdb.Postgres(t))
	makeTables(t, testPool(t, dsn, 1), ``)
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	cfg.MaxConns = 1
	cfg.PrepareConn = func(ctx context.Context, conn *pgx.Conn) (bool, error) {
		n++
		_, err := conn.Exec(ctx, `SELECT set_config('search_path', $1, false)`, fmt.Sprintf("tenant_%d", n))
		return true, err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	s := newStore(t, pgxstore.Config{Pool: pool, Schema: strings.Trim(u.Query().Get("search_path"), `"`)})
	for i := range 3 {
		rec := dedup.Record{Key: dedup.Key{Consumer: "billing", ID: fmt.Sprint(i)}, Time: time.Now()}
		if err := s.InTx(t.Context(), []dedup.Record{rec},
			func(pgx.Tx, []dedup.Claim) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
}

// A statement that was prepared before a migration fails once on each connection, and never twice.
func TestStalePlan(t *testing.T) {
	for name, query := range map[string]struct{ named bool }{"cached by pgx": {false}, "prepared by name": {true}} {
		t.Run(name, func(t *testing.T) {
			h := newHandlerTest(t, testdb.Postgres(t), pgxstore.Config{})
			read := func(ctx context.Context, tx pgx.Tx) error {
				sql := `SELECT * FROM effects`
				if query.named {
					if _, err := tx.Prepare(ctx, "read_effects", sql); err != nil {
						return err
					}
					sql = "read_effects"
				}
				rows, _ := tx.Query(ctx, sql)
				rows.Close()
				return rows.Err()
			}
			if err := h.handle("before", read); err != nil {
				t.Fatal(err)
			}
			h.db.exec(t, `ALTER TABLE effects ADD COLUMN extra int`)
			err := h.handle("after", read)
			for range 3 { // the migration may have used another connection
				if err != nil {
					break
				}
				err = h.handle(fmt.Sprint(time.Now().UnixNano()), read)
			}
			var pg *pgconn.PgError
			if err != nil && (!h.store.Retryable(err) || h.store.Ambiguous(err)) {
				t.Errorf("%v (%T): retryable %v, ambiguous %v; want it to pass without blame", err, pg,
					h.store.Retryable(err), h.store.Ambiguous(err))
			}
			if err := h.handle(fmt.Sprint(time.Now().UnixNano()), read); err != nil {
				t.Errorf("once more: %v", err)
			}
		})
	}
}

// Register rejects a database whose encoding cannot store every text. Otherwise the first message with such a text
// would fail.
func TestRegisterRefusesOtherEncodings(t *testing.T) {
	server := testdb.Postgres(t)
	admin := testPool(t, server, 1)
	for _, encoding := range []string{"LATIN1", "SQL_ASCII"} {
		t.Run(encoding, func(t *testing.T) {
			name := fmt.Sprintf("txonce_%s_%d", strings.ToLower(encoding), time.Now().UnixNano())
			if _, err := admin.Exec(t.Context(), `CREATE DATABASE `+name+` ENCODING '`+encoding+
				`' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0`); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if _, err := admin.Exec(context.WithoutCancel(t.Context()),
					`DROP DATABASE `+name+` WITH (FORCE)`); err != nil {
					t.Error(err)
				}
			})
			u, err := url.Parse(server)
			if err != nil {
				t.Fatal(err)
			}
			u.Path = name
			pool := testPool(t, u.String(), 2)
			makeTables(t, pool, ``)
			s := newStore(t, pgxstore.Config{Pool: pool})
			err = s.Register(t.Context(), "billing", 0)
			if err == nil || s.Retryable(err) || !strings.Contains(err.Error(), encoding) ||
				!strings.Contains(err.Error(), "UTF8") {
				t.Errorf("Register = %v; want a refusal that names the encoding and the fix", err)
			}
		})
	}
}

// PostgreSQL skips a schema in search_path that the role may not use, and reads names without quotes as lower case. So
// does the Store when it looks for its tables.
func TestTheSchemaIsOneThatTheRoleMayUse(t *testing.T) {
	t.Parallel()
	p := newPooledSessions(t, 1)
	p.must(second(p.direct.Exec(t.Context(), `SET search_path = `+p.schema+`_b; `+testdb.PostgresTables(t, "")+`; RESET search_path`, pgx.QueryExecModeSimpleProtocol)))
	role := p.role(p.schema)
	for i, before := range []string{`SELECT 1`, `SET search_path = ` + p.schema + `_b`} {
		cfg := p.direct.Config()
		cfg.MaxConns = 1
		params := cfg.ConnConfig.RuntimeParams
		params["role"], params["search_path"] = role, strings.ToUpper(p.schema+"_b, "+p.schema)
		pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
		p.must(err)
		defer pool.Close()
		p.must(second(pool.Exec(t.Context(), before)))
		s := newStore(p, pgxstore.Config{Pool: pool})
		p.must(s.Register(t.Context(), "billing", time.Hour))
		p.must(p.handle(s, fmt.Sprint(i), `INSERT INTO effects VALUES ('`+fmt.Sprint(i)+`')`))
	}
	p.effects([]string{"0", "1"})
}
