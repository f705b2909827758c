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

// Drivers for poolers may send parameters as text, prepared or not.
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
			if c, found, err := s.Lookup(t.Context(), odd.Key); err != nil || !found ||
				string(c.Result) != string(everyByte) || c.Fingerprint != odd.Fingerprint {
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
	elsewhere := openPostgres(t, testdb.Postgres(t)) // a schema with another search_path
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
	if err := missing.Register(t.Context(), "billing", 0); !errors.Is(err, dedup.ErrSchema) ||
		!strings.Contains(err.Error(), `"No Such"`) {
		t.Errorf("Register = %v", err)
	}
	if err := migrations.Apply(t.Context(), elsewhere.db, "postgres", home); err != nil {
		t.Error(err)
	}
}

func TestPostgresIsolationIsReadCommittedUnlessSaid(t *testing.T) {
	d := openPostgres(t, testdb.Postgres(t))
	for _, test := range []struct{ isolation, want string }{
		{"", "read committed"},
		{sql.LevelSerializable.String(), "serializable"},
	} {
		s := d.open(t, d.dsn+"&default_transaction_isolation=repeatable%20read",
			deduptest.Options{Isolation: test.isolation})
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

// If a standby must confirm commits, a duplicate must wait for it too, so it writes. This includes standbys that were
// added after the Store's first claim.
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

// Register distinguishes errors that an operator must fix from temporary errors.
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
		s := newNode(t, openDB(t, "pgx", strings.Replace(dsn, old, tt.to, 1)),
			sqlstore.Config{Dialect: sqlstore.Postgres})
		err := s.Register(t.Context(), "billing", 0)
		if err == nil || errors.Is(err, dedup.ErrAccess) != tt.access || !s.Retryable(err) {
			t.Errorf("%s: Register = %v; want ErrAccess: %v, and retryable where it happens later", tt.to, err,
				tt.access)
		}
	}
}

func TestPostgresReadOnly(t *testing.T) {
	d := openPostgres(t, testdb.Postgres(t))
	s := d.open(t, d.dsn+"&default_transaction_read_only=on", deduptest.Options{})
	if err := s.Register(t.Context(), "billing", 0); !s.Retryable(err) || !strings.Contains(err.Error(),
		"set default_transaction_read_only") {
		t.Errorf("Register = %v", err)
	}
}

// A claim in the caller's transaction may need a second connection. If the pool has none, the wait is limited.
func TestPostgresClaimOnAnExhaustedPool(t *testing.T) {
	d := openPostgres(t, testdb.Postgres(t))
	s := d.open(t, d.dsn, deduptest.Options{Wait: 100 * time.Millisecond})
	s.db.SetMaxOpenConns(1)
	began := time.Now()
	err := inTx(t.Context(), s.db, nil, func(tx *sql.Tx) error {
		_, err := s.Claim(t.Context(), tx, []dedup.Record{record("k")})
		return err
	})
	if took := time.Since(began); !s.Retryable(err) || took > time.Minute { // without a limit the wait would not end
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

// Above READ COMMITTED an old message needs a second connection. The Store keeps one of the pool free for that,
// whatever the number of transactions.
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

// A connection that is lost while a handler uses it is the database's fault, although the error has no SQLSTATE.
func TestPostgresConnectionLostUnderTheHandler(t *testing.T) {
	d := openPostgres(t, testdb.Postgres(t))
	s := d.open(t, d.dsn, deduptest.Options{})
	err := s.InTx(t.Context(), []dedup.Record{record("k")}, func(tx *sql.Tx, _ []dedup.Claim) error {
		_, _ = tx.Exec(`SELECT pg_terminate_backend(pg_backend_pid())`)
		_, err := tx.Exec(`INSERT INTO effects (name) VALUES ('x')`)
		if err == nil {
			t.Error("wrote on a lost connection")
		}
		return fmt.Errorf("charge: %v", err) // %v: the error's chain is cut
	})
	if !s.Retryable(err) || errors.Is(err, dedup.ErrTxEnded) {
		t.Errorf("InTx = %v, want a Retryable error", err)
	}
	if c := claim(t, s, record("k")); c[0].Verdict != dedup.First {
		t.Errorf("verdict afterwards: %v", c[0].Verdict)
	}
}

// After a handler ignored a failed statement, the Store's own statements fail too. That is not the database's fault.
func TestPostgresStatementsAfterASwallowedError(t *testing.T) {
	d := openPostgres(t, testdb.Postgres(t))
	s := d.open(t, d.dsn, deduptest.Options{})
	claim(t, s, record("warm"))
	ctx, r := t.Context(), record("k")
	for name, do := range map[string]func(tx *sql.Tx) error{
		"SaveResult": func(tx *sql.Tx) error { return s.SaveResult(ctx, tx, r.Key, nil) },
		"Forget":     func(tx *sql.Tx) error { return s.Forget(ctx, tx, r.Key) },
		"Newer":      func(tx *sql.Tx) error { _, err := s.Newer(ctx, tx, "o", 1); return err },
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

// A session may keep a plan from when the table was small. That plan must not scan the whole table.
func TestPostgresPlansForALargeTable(t *testing.T) {
	d := openPostgres(t, testdb.Postgres(t))
	err := inTx(t.Context(), d.db, nil, func(tx *sql.Tx) error {
		for _, q := range []string{
			`SET LOCAL plan_cache_mode = force_generic_plan`,
			`PREPARE existing AS ` + dialect.NewPostgres("").Existing,
		} {
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

// If a sweep times out waiting for its row, its error is not ErrInFlight: no message's key is involved.
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

// A process that freezes in its handler must not keep its claim forever. Its transaction must not commit when it
// continues.
func TestPostgresFrozenProcessLosesItsClaim(t *testing.T) {
	d := openPostgres(t, testdb.Postgres(t))
	other := d.open(t, d.dsn, deduptest.Options{Wait: 2 * time.Minute})
	frozen := newNode(t, d.db, sqlstore.Config{Dialect: sqlstore.Postgres, IdleInTxTimeout: 300 * time.Millisecond})
	var thawed []dedup.Claim
	var err error
	for attempt := 0; thawed == nil && attempt < 100; attempt++ {
		// such a short limit may end the transaction before the handler runs
		err = frozen.InTx(t.Context(), []dedup.Record{record("k")}, func(*sql.Tx, []dedup.Claim) error {
			thawed = claim(t, other, record("k")) // meanwhile the first transaction is idle
			return nil
		})
	}
	if err == nil || !frozen.Ambiguous(err) || !strings.Contains(err.Error(), "Config.IdleInTxTimeout") {
		t.Errorf("the frozen node: InTx = %v; want an ambiguous error that names the limit", err)
	}
	if len(thawed) != 1 || thawed[0].Verdict != dedup.First {
		t.Errorf("the other node: %v, want first", thawed)
	}
}
