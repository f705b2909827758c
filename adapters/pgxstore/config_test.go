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
		{"a wait that rounds to none", pgxstore.Config{Pool: idle("2"), ClaimTimeout: time.Microsecond}, "Config.ClaimTimeout"},
		{"an idle limit that rounds to none", pgxstore.Config{Pool: idle("2"), IdleInTxTimeout: time.Microsecond}, "Config.IdleInTxTimeout"},
		{"a negative wait", pgxstore.Config{Pool: idle("2"), ClaimTimeout: -1}, "Config.ClaimTimeout"},
		{"unknown isolation", pgxstore.Config{Pool: idle("2"), Isolation: "chaos"}, "Config.Isolation"},
		{"nobody left to read the horizon", pgxstore.Config{Pool: idle("1"), Isolation: pgx.Serializable}, "Config.Isolation"},
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
			t.Errorf("%s = %v (retryable %v): want a retryable error that names the address", name, err, s.Retryable(err))
		}
	}
}

// What the server refuses for as long as nobody changes it is told from what passes by itself.
func TestRegisterTellsWhatAPersonMustChange(t *testing.T) {
	dsn := testdb.Postgres(t)
	for name, tt := range map[string]struct {
		alter  func(cfg *pgx.ConnConfig)
		access bool
	}{
		"no such database": {func(cfg *pgx.ConnConfig) { cfg.Database = "nowhere" }, true},
		"no such user":     {func(cfg *pgx.ConnConfig) { cfg.User = "nobody_of_txonce" }, true},
		"nobody listens":   {func(cfg *pgx.ConnConfig) { cfg.Port, cfg.Fallbacks = 1, nil }, false},
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

// A duplicate must cost the database nothing to remember.
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
				[16]byte(dedup.Key{Consumer: "billing", ID: id}.Hash()), nil, "billing", nil, id, nil, 3600.0, nil).Scan(&plan); err != nil {
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

// A process that was stopped for longer than its registration holds must not claim under it: the horizon no longer
// counts its window.
func TestClaimPastItsRegistration(t *testing.T) {
	pool := testPool(t, testdb.Schema(t, testdb.Postgres(t)), 2)
	if err := pgxstore.Migrate(t.Context(), pool, ""); err != nil {
		t.Fatal(err)
	}
	s := newStore(t, pgxstore.Config{Pool: pool})
	claim := func(id string) {
		rec := dedup.Record{Key: dedup.Key{Consumer: "billing", ID: id}, Time: time.Now()}
		if err := s.InTx(t.Context(), []dedup.Record{rec}, func(pgx.Tx, []dedup.Claim) error { return nil }); err != nil {
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
		t.Error("claimed under a window that the table says is out of use")
	}
}

// A process that freezes inside its handler must not keep its claim for ever, nor commit when it thaws.
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
	for froze := false; !froze; { // a slow machine may lose the claim before
		_, err = handle(frozen, "frozen", func() {
			froze = true
			var err error
			if verdict, err = handle(other, "other", func() {}); err != nil {
				t.Error(err)
			}
		})
		if !froze && err == nil {
			t.Fatal("the claim is somebody else's")
		}
	}
	if err == nil || !frozen.Retryable(err) {
		t.Errorf("the frozen one: %v; want a retryable error", err)
	}
	if verdict != dedup.First {
		t.Errorf("the other one: %v, want first", verdict)
	}
	var effects string
	if err := pool.QueryRow(t.Context(), `SELECT string_agg(name, ' ') FROM effects`).Scan(&effects); err != nil {
		t.Fatal(err)
	}
	if effects != "other" {
		t.Errorf("effects of %q, want those of the other alone", effects)
	}
}

// A handler that swallows an error and then parks, forgets or saves gets 25P02 from that: its own fault, not the
// database's.
func TestStepsAfterASwallowedError(t *testing.T) {
	pool := testPool(t, testdb.Schema(t, testdb.Postgres(t)), 2)
	if err := pgxstore.Migrate(t.Context(), pool, ""); err != nil {
		t.Fatal(err)
	}
	s := newStore(t, pgxstore.Config{Pool: pool})
	key := dedup.Key{Consumer: "billing", ID: "order-1"}
	for name, step := range map[string]func(tx pgx.Tx) error{
		"Forget":         func(tx pgx.Tx) error { return s.Forget(t.Context(), tx, key) },
		"SaveResult":     func(tx pgx.Tx) error { return s.SaveResult(t.Context(), tx, key, nil) },
		"Park":           func(tx pgx.Tx) error { return s.Park(t.Context(), tx, consumer.DeadLetter{}) },
		"TakeDeadLetter": func(tx pgx.Tx) error { return s.TakeDeadLetter(t.Context(), tx, consumer.DeadLetterID{}) },
	} {
		t.Run(name, func(t *testing.T) {
			err := s.InTx(t.Context(), []dedup.Record{{Key: key}}, func(tx pgx.Tx, _ []dedup.Claim) error {
				_, _ = tx.Exec(t.Context(), `SELECT 1/0`)
				return step(tx)
			})
			if err == nil || s.Retryable(err) || !strings.Contains(err.Error(), "22012") {
				t.Errorf("%v (retryable %v): want an error that names the first one, and blames the handler", err, s.Retryable(err))
			}
		})
	}
}

// The version alone does not show that a table was dropped, or that the user may not read it.
func TestRegisterMissesADroppedTable(t *testing.T) {
	pool := testPool(t, testdb.Schema(t, testdb.Postgres(t)), 2)
	makeTables(t, pool, `; DROP TABLE dead_letters`)
	err := newStore(t, pgxstore.Config{Pool: pool}).Register(t.Context(), "billing", 0)
	if !errors.Is(err, dedup.ErrSchema) || !strings.Contains(err.Error(), "dead_letters") {
		t.Errorf("Register = %v; want ErrSchema that names dead_letters", err)
	}
}
