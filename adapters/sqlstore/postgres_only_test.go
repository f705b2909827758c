package sqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/internal/dialect"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/migrations"
)

// Behind a pooler drivers send everything as text, prepared or not.
func TestPostgresWithoutPreparedStatements(t *testing.T) {
	for _, mode := range []string{"exec", "simple_protocol", "describe_exec", "cache_describe"} {
		t.Run(mode, func(t *testing.T) {
			d := openPostgres(t, testdb.Postgres(t))
			s := d.open(t, d.dsn+"&default_query_exec_mode="+mode, deduptest.Options{})
			if err := s.Register(t.Context(), "billing", 0); err != nil {
				t.Fatal(err)
			}
			odd := record(`a"b\c{},NULL' $1 ünï`)
			odd.Key.Tenant, odd.Time = `"`, time.Now()
			odd.Fingerprint = dedup.Fingerprint{0xff}
			recs := []dedup.Record{odd, record("k"), record("l")}
			for _, want := range []dedup.Verdict{dedup.First, dedup.Duplicate} {
				for i, c := range claim(t, s, recs...) {
					if c.Verdict != want {
						t.Errorf("record %d: %v, want %v", i, c.Verdict, want)
					}
				}
			}
			if c := claim(t, s, record("one")); c[0].Verdict != dedup.First {
				t.Errorf("alone: %v", c[0].Verdict)
			}
			within(t, s, func(ctx context.Context, tx *sql.Tx) error {
				if err := s.SaveResult(ctx, tx, odd.Key, everyByte); err != nil {
					return err
				}
				return s.Park(ctx, tx, letter(1))
			})
			if c, found, err := s.Lookup(t.Context(), odd.Key); err != nil || !found || string(c.Result) != string(everyByte) || c.Fingerprint != odd.Fingerprint {
				t.Errorf("Lookup = %+v, %v, %v", c, found, err)
			}
			if _, err := s.Purge(t.Context(), dedup.Sweep{Owner: "test", Lease: time.Minute, Limit: 10}); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestPostgresSchemaNeedNotBeInSearchPath(t *testing.T) {
	d := openPostgres(t, testdb.Postgres(t))
	var home string
	if err := d.db.QueryRow(`SELECT current_schema()`).Scan(&home); err != nil {
		t.Fatal(err)
	}
	elsewhere := openPostgres(t, testdb.Postgres(t)) // another search_path
	s := newNode(t, elsewhere.db, sqlstore.Config{Dialect: sqlstore.Postgres, Schema: home})
	if err := s.Register(t.Context(), "billing", 0); err != nil {
		t.Fatal(err)
	}
	claim(t, s, record("k"))
	var n int
	if err := d.db.QueryRow(`SELECT count(*) FROM processed_messages`).Scan(&n); err != nil || n != 1 {
		t.Errorf("%d rows in the schema, %v", n, err)
	}
	missing := newNode(t, elsewhere.db, sqlstore.Config{Dialect: sqlstore.Postgres, Schema: "No Such"})
	if err := missing.Register(t.Context(), "billing", 0); !errors.Is(err, dedup.ErrSchema) || !strings.Contains(err.Error(), `"No Such"`) {
		t.Errorf("Register = %v", err)
	}
	if err := migrations.Apply(t.Context(), elsewhere.db, "postgres", home); err != nil {
		t.Error(err)
	}
}

func TestPostgresIsolationIsReadCommittedUnlessSaid(t *testing.T) {
	d := openPostgres(t, testdb.Postgres(t))
	for _, test := range []struct{ isolation, want string }{{"", "read committed"}, {sql.LevelSerializable.String(), "serializable"}} {
		s := d.open(t, d.dsn+"&default_transaction_isolation=repeatable%20read", deduptest.Options{Isolation: test.isolation})
		within(t, s, func(ctx context.Context, tx *sql.Tx) error {
			var got string
			err := tx.QueryRowContext(ctx, `SHOW transaction_isolation`).Scan(&got)
			if got != test.want {
				t.Errorf("isolation %q, want %q", got, test.want)
			}
			return err
		})
	}
}

// Where a standby must confirm commits, a duplicate must wait for it too: so it writes. A standby that was set up after the
// Store's first claim is one.
func TestPostgresDuplicateWritesForStandbys(t *testing.T) {
	d := openPostgres(t, testdb.Postgres(t))
	s := d.open(t, d.dsn, deduptest.Options{})
	s.db.SetMaxOpenConns(1)
	s.HasStandbys()
	claim(t, s, record("k"))
	for _, standbys := range []bool{false, true, false} {
		exec(t, s.db, map[bool]string{false: `RESET txonce_test.standbys`, true: `SET txonce_test.standbys = 'yes'`}[standbys])
		err := s.InTx(t.Context(), []dedup.Record{record("k")}, func(tx *sql.Tx, _ []dedup.Claim) error {
			var wrote bool
			err := tx.QueryRow(`SELECT pg_current_xact_id_if_assigned() IS NOT NULL`).Scan(&wrote)
			if wrote != standbys {
				t.Errorf("standbys %v: a duplicate wrote %v", standbys, wrote)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// What the server refuses for as long as nobody changes it is told from what passes by itself.
func TestPostgresRegisterTellsWhatAPersonMustChange(t *testing.T) {
	dsn := testdb.Postgres(t)
	for old, tt := range map[string]struct {
		to     string
		access bool
	}{
		"/postgres?":  {"/nowhere?", true},
		"//postgres@": {"//nobody_of_txonce@", true},
		"127.0.0.1:":  {"127.0.0.1:1", false},
	} {
		s := newNode(t, openDB(t, "pgx", strings.Replace(dsn, old, tt.to, 1)), sqlstore.Config{Dialect: sqlstore.Postgres})
		err := s.Register(t.Context(), "billing", 0)
		if err == nil || errors.Is(err, dedup.ErrAccess) != tt.access || !s.Retryable(err) {
			t.Errorf("%s: Register = %v; want ErrAccess: %v, and retryable where it happens later", tt.to, err, tt.access)
		}
	}
}

func TestPostgresReadOnly(t *testing.T) {
	d := openPostgres(t, testdb.Postgres(t))
	s := d.open(t, d.dsn+"&default_transaction_read_only=on", deduptest.Options{})
	if err := s.Register(t.Context(), "billing", 0); !s.Retryable(err) || !strings.Contains(err.Error(), "set default_transaction_read_only") {
		t.Errorf("Register = %v", err)
	}
}

// A claim in the caller's transaction that needs a second connection, of a pool that has none, is a bounded wait.
func TestPostgresClaimOnAnExhaustedPool(t *testing.T) {
	d := openPostgres(t, testdb.Postgres(t))
	s := d.open(t, d.dsn, deduptest.Options{Wait: 100 * time.Millisecond})
	s.db.SetMaxOpenConns(1)
	began := time.Now()
	err := inTx(t.Context(), s.db, nil, func(tx *sql.Tx) error {
		_, err := s.Claim(t.Context(), tx, []dedup.Record{record("k")})
		return err
	})
	if took := time.Since(began); !s.Retryable(err) || took > time.Minute { // without a limit it would be for ever
		t.Errorf("got %v after %v, want a Retryable error soon", err, took)
	}
	warm(t, s)
	err = again(s, func() error {
		return inTx(t.Context(), s.db, nil, func(tx *sql.Tx) error {
			_, err := s.Claim(t.Context(), tx, []dedup.Record{record("k")})
			return err
		})
	})
	if err != nil {
		t.Errorf("once registered: %v", err)
	}
}

// Above READ COMMITTED an old message needs a second connection: one of the pool is left for that, however many
// transactions there are.
func TestPostgresHorizonOnASmallPool(t *testing.T) {
	d := openPostgres(t, testdb.Postgres(t))
	db := openDB(t, "pgx", d.dsn)
	db.SetMaxOpenConns(2)
	s := newNode(t, db, sqlstore.Config{Dialect: sqlstore.Postgres, Isolation: sql.LevelRepeatableRead})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			r := record(fmt.Sprint("k", i))
			r.Time = time.Now().Add(-24 * time.Hour)
			if err := s.InTx(ctx, []dedup.Record{r}, func(*sql.Tx, []dedup.Claim) error { return nil }); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func TestPostgresDeferredConstraint(t *testing.T) {
	d := openPostgres(t, testdb.Postgres(t))
	exec(t, d.db, `CREATE TABLE parent (id int PRIMARY KEY)`)
	exec(t, d.db, `CREATE TABLE child (parent int REFERENCES parent DEFERRABLE INITIALLY DEFERRED)`)
	s := d.open(t, d.dsn, deduptest.Options{})
	err := s.InTx(t.Context(), []dedup.Record{record("k")}, func(tx *sql.Tx, _ []dedup.Claim) error {
		_, err := tx.Exec(`INSERT INTO child VALUES (1)`)
		return err
	})
	if err == nil || s.Retryable(err) || errors.Is(err, dedup.ErrTxEnded) {
		t.Errorf("InTx = %v, want the constraint's error", err)
	}
	if c := claim(t, s, record("k")); c[0].Verdict != dedup.First {
		t.Errorf("verdict afterwards: %v", c[0].Verdict)
	}
}

// A connection that is lost under a handler is the database's fault, though its error has no SQLSTATE.
func TestPostgresConnectionLostUnderTheHandler(t *testing.T) {
	d := openPostgres(t, testdb.Postgres(t))
	s := d.open(t, d.dsn, deduptest.Options{})
	err := s.InTx(t.Context(), []dedup.Record{record("k")}, func(tx *sql.Tx, _ []dedup.Claim) error {
		_, _ = tx.Exec(`SELECT pg_terminate_backend(pg_backend_pid())`)
		_, err := tx.Exec(`INSERT INTO effects (name) VALUES ('x')`)
		if err == nil {
			t.Error("wrote on a lost connection")
		}
		return fmt.Errorf("charge: %v", err) // as text: nothing is left to recognise
	})
	if !s.Retryable(err) || errors.Is(err, dedup.ErrTxEnded) {
		t.Errorf("InTx = %v, want a Retryable error", err)
	}
	if c := claim(t, s, record("k")); c[0].Verdict != dedup.First {
		t.Errorf("verdict afterwards: %v", c[0].Verdict)
	}
}

// After an error that the handler swallowed, the store's own statements fail too: that is not the database's fault.
func TestPostgresStatementsAfterASwallowedError(t *testing.T) {
	d := openPostgres(t, testdb.Postgres(t))
	s := d.open(t, d.dsn, deduptest.Options{})
	claim(t, s, record("warm"))
	ctx, r := t.Context(), record("k")
	for name, do := range map[string]func(tx *sql.Tx) error{
		"SaveResult": func(tx *sql.Tx) error { return s.SaveResult(ctx, tx, r.Key, nil) },
		"Forget":     func(tx *sql.Tx) error { return s.Forget(ctx, tx, r.Key) },
		"Park":       func(tx *sql.Tx) error { return s.Park(ctx, tx, letter(1)) },
		"Claim":      func(tx *sql.Tx) error { _, err := s.Claim(ctx, tx, []dedup.Record{record("l")}); return err },
	} {
		err := s.InTx(ctx, []dedup.Record{r}, func(tx *sql.Tx, _ []dedup.Claim) error {
			_, _ = tx.Exec(`SELECT 1/0`)
			return do(tx)
		})
		if err == nil || s.Retryable(err) {
			t.Errorf("%s: %v, retryable %v", name, err, s.Retryable(err))
		}
	}
}

// A session plans once and keeps the plan while the table grows: it must not be one that reads the whole of a small table.
func TestPostgresPlansForALargeTable(t *testing.T) {
	d := openPostgres(t, testdb.Postgres(t))
	err := inTx(t.Context(), d.db, nil, func(tx *sql.Tx) error {
		for _, q := range []string{`SET LOCAL plan_cache_mode = force_generic_plan`, `PREPARE existing AS ` + dialect.NewPostgres("").Existing} {
			if _, err := tx.Exec(q); err != nil {
				return err
			}
		}
		rows, err := tx.Query(`EXPLAIN EXECUTE existing('{00000000-0000-0000-0000-000000000000}')`)
		if err != nil {
			return err
		}
		defer rows.Close()
		var plan strings.Builder
		for rows.Next() {
			var line string
			if err := rows.Scan(&line); err != nil {
				return err
			}
			plan.WriteString(line + "\n")
		}
		if !strings.Contains(plan.String(), "Index Scan using processed_messages_pkey") {
			t.Error(plan.String())
		}
		return rows.Err()
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A sweep that waits in vain for its row says nothing about a key.
func TestPostgresPurgeBehindALock(t *testing.T) {
	d := openPostgres(t, testdb.Postgres(t))
	s := d.open(t, d.dsn, deduptest.Options{Wait: time.Second})
	err := inTx(t.Context(), d.db, nil, func(tx *sql.Tx) error {
		if _, err := tx.Exec(`SELECT FROM txonce_sweep FOR UPDATE`); err != nil {
			return err
		}
		_, err := s.Purge(t.Context(), dedup.Sweep{Owner: "test", Lease: time.Minute, Limit: 10})
		if !s.Retryable(err) || errors.Is(err, dedup.ErrInFlight) {
			t.Errorf("Purge = %v, want a Retryable error that is not ErrInFlight", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A process that freezes inside its handler must not keep its claim for ever, nor commit when it thaws.
func TestPostgresFrozenProcessLosesItsClaim(t *testing.T) {
	d := openPostgres(t, testdb.Postgres(t))
	other := d.open(t, d.dsn, deduptest.Options{Wait: 2 * time.Minute})
	frozen := newNode(t, d.db, sqlstore.Config{Dialect: sqlstore.Postgres, IdleInTxTimeout: 300 * time.Millisecond})
	var thawed []dedup.Claim
	var err error
	for attempt := 0; thawed == nil && attempt < 100; attempt++ { // so short a limit may strike before the handler
		err = frozen.InTx(t.Context(), []dedup.Record{record("k")}, func(*sql.Tx, []dedup.Claim) error {
			thawed = claim(t, other, record("k")) // stands idle meanwhile
			return nil
		})
	}
	if err == nil || frozen.Retryable(err) || !strings.Contains(err.Error(), "Config.IdleInTxTimeout") {
		t.Errorf("the frozen one: %v; want an attempt that names the limit", err)
	}
	if len(thawed) != 1 || thawed[0].Verdict != dedup.First {
		t.Errorf("the other one: %v, want first", thawed)
	}
}
