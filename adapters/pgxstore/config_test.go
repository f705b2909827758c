package pgxstore_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/dialect"
	"github.com/txonce/txonce/internal/test/testdb"
)

func TestNewRefuses(t *testing.T) {
	idle := func(conns string) *pgxpool.Pool {
		pool, err := pgxpool.New(t.Context(), "postgres://nobody@127.0.0.1:1/none?pool_min_conns=0&pool_max_conns="+conns)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		return pool
	}
	for _, tt := range []struct {
		name string
		cfg  pgxstore.Config
		want string
	}{
		{"no pool", pgxstore.Config{}, "Config.Pool"},
		{"a schema that is no name", pgxstore.Config{Pool: idle("2"), Schema: `a"b`}, "Config.Schema"},
		{
			"a wait that rounds to none",
			pgxstore.Config{Pool: idle("2"), ClaimTimeout: time.Microsecond},
			"Config.ClaimTimeout",
		},
		{
			"an idle limit that rounds to none",
			pgxstore.Config{Pool: idle("2"), IdleInTxTimeout: time.Microsecond},
			"Config.IdleInTxTimeout",
		},
		{"a negative wait", pgxstore.Config{Pool: idle("2"), ClaimTimeout: -1}, "Config.ClaimTimeout"},
		{"unknown isolation", pgxstore.Config{Pool: idle("2"), Isolation: "chaos"}, "Config.Isolation"},
		{
			"no connection left to read the horizon",
			pgxstore.Config{Pool: idle("1"), Isolation: pgx.Serializable},
			"Config.Isolation",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := pgxstore.New(tt.cfg); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("New = %v, want an error that names %s", err, tt.want)
			}
		})
	}
}

func TestUnreachableDatabase(t *testing.T) {
	pool, err := pgxpool.New(t.Context(), "postgres://nobody@127.0.0.1:1/none?connect_timeout=2")
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	s := newStore(t, pgxstore.Config{Pool: pool, ClaimTimeout: time.Second})
	for name, err := range map[string]error{
		"Register": s.Register(t.Context(), "billing", 0),
		"InTx":     s.InTx(t.Context(), nil, func(pgx.Tx, []dedup.Claim) error { return nil }),
	} {
		if err == nil || !s.Retryable(err) || !strings.Contains(err.Error(), "127.0.0.1") {
			t.Errorf("%s = %v (retryable %v): want a retryable error that names the address", name, err,
				s.Retryable(err))
		}
	}
}

// A refusal that lasts until the configuration changes differs from a temporary error.
func TestRegisterTellsWhatAPersonMustChange(t *testing.T) {
	dsn := testdb.Postgres(t)
	for name, tt := range map[string]struct {
		alter  func(cfg *pgx.ConnConfig)
		access bool
	}{
		"no such database":  {func(cfg *pgx.ConnConfig) { cfg.Database = "nowhere" }, true},
		"no such user":      {func(cfg *pgx.ConnConfig) { cfg.User = "nobody_of_txonce" }, true},
		"no server listens": {func(cfg *pgx.ConnConfig) { cfg.Port, cfg.Fallbacks = 1, nil }, false},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, err := pgxpool.ParseConfig(dsn)
			if err != nil {
				t.Fatal(err)
			}
			tt.alter(cfg.ConnConfig)
			pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer pool.Close()
			s := newStore(t, pgxstore.Config{Pool: pool})
			err = s.Register(t.Context(), "billing", 0)
			if errors.Is(err, dedup.ErrAccess) != tt.access || !s.Retryable(err) {
				t.Errorf("Register = %v; want ErrAccess: %v, and retryable where it happens later", err, tt.access)
			}
		})
	}
}

// A duplicate writes nothing to the database.
func TestDuplicateWritesNoWAL(t *testing.T) {
	pool := testPool(t, testdb.Schema(t, testdb.Postgres(t)), 2)
	if err := pgxstore.Migrate(t.Context(), pool, ""); err != nil {
		t.Fatal(err)
	}
	s := newStore(t, pgxstore.Config{Pool: pool})
	key := dedup.Key{Consumer: "billing", ID: "order-1"}
	rec := dedup.Record{Key: key, Time: time.Now()}
	if err := s.InTx(t.Context(), []dedup.Record{rec}, func(pgx.Tx, []dedup.Claim) error { return nil }); err != nil {
		t.Fatal(err)
	}
	claim := func(id string) (records int, xid bool) {
		err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			var plan []byte
			if err := tx.QueryRow(t.Context(), `EXPLAIN (ANALYZE, WAL, FORMAT JSON) `+dialect.NewPostgres("").InsertOne,
				[16]byte(dedup.Key{Consumer: "billing", ID: id}.Hash()), nil, "billing", nil, id, nil, 3600.0,
				nil).Scan(&plan); err != nil {
				return err
			}
			var out []struct {
				Plan struct {
					Records int `json:"WAL Records"`
				}
			}
			if err := json.Unmarshal(plan, &out); err != nil {
				return err
			}
			records = out[0].Plan.Records
			return tx.QueryRow(t.Context(), `SELECT pg_current_xact_id_if_assigned() IS NOT NULL`).Scan(&xid)
		})
		if err != nil {
			t.Fatal(err)
		}
		return records, xid
	}
	if n, xid := claim("order-1"); n != 0 || xid {
		t.Errorf("a duplicate wrote %d WAL records, transaction id assigned: %v; want none", n, xid)
	}
	if n, xid := claim("order-2"); n == 0 || !xid {
		t.Errorf("a new key wrote %d WAL records, transaction id assigned: %v: this test measures nothing", n, xid)
	}
}

// A process that was suspended for longer than its registration lasts must not claim under it: the horizon no longer
// counts its window.
func TestClaimPastItsRegistration(t *testing.T) {
	pool := testPool(t, testdb.Schema(t, testdb.Postgres(t)), 2)
	if err := pgxstore.Migrate(t.Context(), pool, ""); err != nil {
		t.Fatal(err)
	}
	s := newStore(t, pgxstore.Config{Pool: pool})
	claim := func(id string) {
		rec := dedup.Record{Key: dedup.Key{Consumer: "billing", ID: id}, Time: time.Now()}
		if err := s.InTx(t.Context(), []dedup.Record{rec},
			func(pgx.Tx, []dedup.Claim) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	claim("order-1")
	if _, err := pool.Exec(t.Context(), `UPDATE txonce_windows SET used_until = now() - interval '1 hour'`); err != nil {
		t.Fatal(err)
	}
	pgxstore.EndLease(s, "billing", dedup.DefaultWindow, time.Now().Add(-time.Hour))
	claim("order-2")
	var registered bool
	if err := pool.QueryRow(t.Context(), `SELECT used_until > now() FROM txonce_windows`).Scan(&registered); err != nil {
		t.Fatal(err)
	}
	if !registered {
		t.Error("claimed under a window whose registration has expired")
	}
}

// A process that freezes in its handler loses its claim after a while, and cannot commit when it continues.
func TestFrozenProcessLosesItsClaim(t *testing.T) {
	pool := testPool(t, testdb.Schema(t, testdb.Postgres(t)), 4)
	if err := pgxstore.Migrate(t.Context(), pool, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(), `CREATE TABLE effects (name text)`); err != nil {
		t.Fatal(err)
	}
	frozen := newStore(t, pgxstore.Config{Pool: pool, IdleInTxTimeout: 300 * time.Millisecond})
	other := newStore(t, pgxstore.Config{Pool: pool, ClaimTimeout: 2 * time.Minute})
	recs := []dedup.Record{{Key: dedup.Key{Consumer: "billing", ID: "order-1"}, Time: time.Now()}}
	handle := func(s *pgxstore.Store, name string, freeze func()) (verdict dedup.Verdict, err error) {
		err = s.InTx(t.Context(), recs, func(tx pgx.Tx, claims []dedup.Claim) error {
			verdict = claims[0].Verdict
			if verdict != dedup.First {
				return nil
			}
			_, err := tx.Exec(t.Context(), `INSERT INTO effects VALUES ($1)`, name)
			freeze()
			return err
		})
		return verdict, err
	}
	var (
		verdict dedup.Verdict
		err     error
	)
	for froze := false; !froze; { // on a slow machine the first attempt may lose its claim earlier
		_, err = handle(frozen, "frozen", func() {
			froze = true
			var err error
			if verdict, err = handle(other, "other", func() {}); err != nil {
				t.Error(err)
			}
		})
		if !froze && err == nil {
			t.Fatal("another process made the claim")
		}
	}
	if err == nil || !frozen.Retryable(err) {
		t.Errorf("the frozen process: %v; want a retryable error", err)
	}
	if verdict != dedup.First {
		t.Errorf("the other process: %v, want first", verdict)
	}
	var effects string
	if err := pool.QueryRow(t.Context(), `SELECT string_agg(name, ' ') FROM effects`).Scan(&effects); err != nil {
		t.Fatal(err)
	}
	if effects != "other" {
		t.Errorf("effects of %q, want only those of the other process", effects)
	}
}

// When a handler ignores an error and then parks, forgets or saves, the Store's own statement fails with 25P02. The
// handler is at fault, not the database.
func TestStepsAfterASwallowedError(t *testing.T) {
	pool := testPool(t, testdb.Schema(t, testdb.Postgres(t)), 2)
	if err := pgxstore.Migrate(t.Context(), pool, ""); err != nil {
		t.Fatal(err)
	}
	s := newStore(t, pgxstore.Config{Pool: pool})
	key := dedup.Key{Consumer: "billing", ID: "order-1"}
	for name, step := range map[string]func(tx pgx.Tx) error{
		"Forget":         func(tx pgx.Tx) error { return s.Forget(t.Context(), tx, key) },
		"Newer":          func(tx pgx.Tx) error { return second(s.Newer(t.Context(), tx, "o", 1)) },
		"SaveResult":     func(tx pgx.Tx) error { return s.SaveResult(t.Context(), tx, key, nil) },
		"Park":           func(tx pgx.Tx) error { return s.Park(t.Context(), tx, consumer.DeadLetter{}) },
		"TakeDeadLetter": func(tx pgx.Tx) error { return s.TakeDeadLetter(t.Context(), tx, consumer.DeadLetter{}) },
	} {
		t.Run(name, func(t *testing.T) {
			err := s.InTx(t.Context(), []dedup.Record{{Key: key}}, func(tx pgx.Tx, _ []dedup.Claim) error {
				_, _ = tx.Exec(t.Context(), `SELECT 1/0`)
				return step(tx)
			})
			if err == nil || s.Retryable(err) || !strings.Contains(err.Error(), "22012") {
				t.Errorf("%v (retryable %v): want an error that names the first one, and blames the handler", err,
					s.Retryable(err))
			}
		})
	}
}

// Register also finds a dropped table, and tables that the user may not read, although the version is right.
func TestRegisterMissesADroppedTable(t *testing.T) {
	pool := testPool(t, testdb.Schema(t, testdb.Postgres(t)), 2)
	makeTables(t, pool, `; DROP TABLE dead_letters`)
	err := newStore(t, pgxstore.Config{Pool: pool}).Register(t.Context(), "billing", 0)
	if !errors.Is(err, dedup.ErrSchema) || !strings.Contains(err.Error(), "dead_letters") {
		t.Errorf("Register = %v; want ErrSchema that names dead_letters", err)
	}
}
