package sqlstore_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/internal/testdb"
	"github.com/txonce/txonce/migrations"
)

// What stands in the DSN, and the session's time zone, must not change what a row means to another node.
func TestMySQLWhateverTheDSNSays(t *testing.T) {
	d := openMySQL(t)
	plain := d.open(t, d.dsn, deduptest.Options{})
	for i, params := range []string{
		"", "parseTime=true", "parseTime=false", "parseTime=true&loc=America%2FNew_York", "parseTime=true&loc=Local",
		"time_zone=%27%2B05%3A00%27", "parseTime=true&loc=UTC&time_zone=%27-11%3A00%27", "clientFoundRows=true",
		"interpolateParams=true", "interpolateParams=true&clientFoundRows=true&parseTime=true", "multiStatements=true",
		"sql_mode=%27ANSI,STRICT_ALL_TABLES%27", "sql_mode=%27NO_BACKSLASH_ESCAPES,STRICT_TRANS_TABLES%27&interpolateParams=true",
		"collation=utf8mb4_bin", "tx_isolation=%27SERIALIZABLE%27",
	} {
		t.Run(params, func(t *testing.T) {
			dsn := d.dsn
			if params != "" {
				dsn = testdb.WithMySQL(t, d.dsn, params)
			}
			s := d.open(t, dsn, deduptest.Options{})
			if err := s.Register(t.Context(), fmt.Sprint("billing", i), 0); err != nil {
				t.Fatal(err)
			}
			mine, other, alone := record(fmt.Sprint(`a"b\c{},NULL' $1 ünï 🙂 `, i)), record(fmt.Sprint("k", i)), record(fmt.Sprint("K", i))
			mine.Key.Tenant, mine.Time, mine.Fingerprint = `"`, time.Now().Add(20*time.Minute), dedup.Fingerprint{0xff}
			other.Time = time.Now().Add(-50 * time.Hour) // its horizon is read
			for _, want := range []dedup.Verdict{dedup.First, dedup.Duplicate} {
				for i, c := range append(claim(t, s, mine, other), claim(t, s, alone)...) {
					if c.Verdict != want {
						t.Errorf("record %d: %v, want %v", i, c.Verdict, want)
					}
				}
			}
			for range 2 { // the second time nothing changes
				within(t, s, func(ctx context.Context, tx *sql.Tx) error { return s.SaveResult(ctx, tx, mine.Key, everyByte) })
			}
			within(t, s, func(ctx context.Context, tx *sql.Tx) error { return s.SaveResult(ctx, tx, alone.Key, nil) })
			for _, from := range []*node{s, plain} {
				c, found, err := from.Lookup(t.Context(), mine.Key)
				if err != nil || !found || !bytes.Equal(c.Result, everyByte) || c.Fingerprint != mine.Fingerprint {
					t.Fatalf("Lookup = %+v, %v, %v", c, found, err)
				}
				if want := mine.Time.Add(mine.Keep()); c.ExpiresAt.Sub(want).Abs() > 2*time.Microsecond {
					t.Errorf("expires at %v, want %v", c.ExpiresAt, want)
				}
				if c, _, err := from.Lookup(t.Context(), alone.Key); err != nil || c.Result == nil || len(c.Result) != 0 {
					t.Errorf("an empty result is %v, %v", c.Result, err)
				}
				if c, _, err := from.Lookup(t.Context(), other.Key); err != nil || time.Until(c.ExpiresAt.Add(-other.Keep())).Abs() > 10*time.Minute {
					t.Errorf("claimed at %v, %v", c.ExpiresAt.Add(-other.Keep()), err)
				}
			}
			letter := consumer.DeadLetter{ID: consumer.LetterID{byte(i), 0xff}, Record: mine, Reason: "rejected", Message: consumer.Message{Topic: "t", Payload: everyByte, Key: "\xff"}}
			within(t, s, func(ctx context.Context, tx *sql.Tx) error { return s.Park(ctx, tx, letter) })
			for _, from := range []*node{s, plain} {
				got, err := from.Letters(t.Context(), consumer.LetterFilter{ID: letter.ID, Consumer: "billing", Reason: "rejected"})
				if err != nil || len(got) != 1 || !bytes.Equal(got[0].Message.Payload, everyByte) || got[0].Message.Key != "\xff" ||
					time.Since(got[0].First).Abs() > 10*time.Minute || !got[0].Settled {
					t.Errorf("Letters = %+v, %v", got, err)
				}
				if got, err := from.Letters(t.Context(), consumer.LetterFilter{ID: letter.ID, Consumer: "Billing"}); err != nil || len(got) != 0 {
					t.Errorf("Letters of another consumer = %+v, %v", got, err)
				}
			}
			if swept, err := s.Purge(t.Context(), dedup.Sweep{Owner: "me", Lease: time.Second, Limit: 10}); err != nil || swept.Keys != 0 {
				t.Errorf("Purge = %+v, %v", swept, err)
			}
		})
	}
}

func TestMySQLRegisterRefuses(t *testing.T) {
	for _, tt := range []struct {
		name, params     string
		exec             string
		setting, value   string
		also, alsoValue  string
		want             string
		err              error
		allowAsyncCommit bool
	}{
		{name: "good", want: ""},
		{name: "a key without case", exec: "ALTER TABLE processed_messages MODIFY `key` VARCHAR(36) COLLATE utf8mb4_general_ci", want: "utf8mb4_general_ci", err: dedup.ErrSchema},
		{name: "a consumer with trailing spaces", exec: "ALTER TABLE txonce_windows MODIFY consumer VARCHAR(255) COLLATE utf8mb4_bin", want: "consumer of table txonce_windows", err: dedup.ErrSchema},
		{name: "MyISAM", exec: "ALTER TABLE processed_messages ENGINE = MyISAM", want: "engine MyISAM", err: dedup.ErrSchema},
		{name: "not strict", params: "sql_mode=%27%27", want: "is not strict"},
		{name: "empty is NULL", params: "sql_mode=%27STRICT_ALL_TABLES,EMPTY_STRING_IS_NULL%27", want: "EMPTY_STRING_IS_NULL"},
		{name: "latin1", params: "charset=latin1", want: "charset=utf8mb4"},
		{name: "utf8mb3", params: "charset=utf8", want: "charset=utf8mb4"},
		{name: "no autocommit", params: "autocommit=0", want: "autocommit is off"},
		{name: "read-only transactions", params: "tx_read_only=1", want: "transaction_read_only"},
		{name: "a replica", setting: "read_only", value: "ON", want: "connect to the primary"},
		{name: "statements in the binary log", setting: "log_bin", value: "ON", also: "binlog_format", alsoValue: "STATEMENT", want: "binlog_format is STATEMENT"},
		{name: "flush at leisure", setting: "innodb_flush_log_at_trx_commit", value: "0", want: "innodb_flush_log_at_trx_commit is 0", err: dedup.ErrNotDurable},
		{name: "binary log at leisure", setting: "log_bin", value: "ON", also: "sync_binlog", alsoValue: "0", want: "sync_binlog is 0", err: dedup.ErrNotDurable},
		{name: "flush at leisure, allowed", setting: "innodb_flush_log_at_trx_commit", value: "2", allowAsyncCommit: true},
		{name: "too old", setting: "version", value: "5.7.44", want: "MySQL 8.0.19 or later"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := openMySQL(t)
			dsn := d.dsn
			if tt.params != "" {
				dsn = testdb.WithMySQL(t, dsn, tt.params)
			}
			if tt.exec != "" {
				exec(t, d.db, tt.exec)
			}
			s := newNode(t, openDB(t, "mysql", dsn), sqlstore.Config{Dialect: sqlstore.MySQL, AllowAsyncCommit: tt.allowAsyncCommit})
			s.Pretend(tt.setting, tt.value, tt.also, tt.alsoValue)
			err := s.Register(t.Context(), "billing", 0)
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("Register = %v", err)
			case tt.want == "":
			case err == nil || !strings.Contains(err.Error(), tt.want) || tt.err != nil && !errors.Is(err, tt.err):
				t.Errorf("Register = %v, want %q and %v", err, tt.want, tt.err)
			}
		})
	}
}

// The application's connections come back as they were.
func TestMySQLGivesConnectionsBackAsTheyWere(t *testing.T) {
	d := openMySQL(t)
	s := d.open(t, testdb.WithMySQL(t, d.dsn, "innodb_lock_wait_timeout=17&wait_timeout=1234"), deduptest.Options{})
	s.db.SetMaxOpenConns(1)
	state := func() (all string) {
		err := s.db.QueryRow(`SELECT CONCAT_WS(' ', CONNECTION_ID(), @@autocommit, @@tx_isolation, @@wait_timeout, @@innodb_lock_wait_timeout, @@in_transaction)`).Scan(&all)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	before := state()
	claim(t, s, record("k"))
	claim(t, s, record("k"), record("l"))
	if err := s.InTx(t.Context(), []dedup.Record{record("m")}, func(*sql.Tx, []dedup.Claim) error { return errUndo }); !errors.Is(err, errUndo) {
		t.Fatal(err)
	}
	if after := state(); after != before {
		t.Errorf("session is %q, was %q", after, before)
	}
	_, before, _ = strings.Cut(before, " ")
	for _, q := range []string{`COMMIT`, `ROLLBACK`, `BEGIN`, `SET autocommit = 1`} {
		err := s.InTx(t.Context(), []dedup.Record{record(q)}, func(tx *sql.Tx, _ []dedup.Claim) error {
			_, err := tx.Exec(q)
			return err
		})
		if err != nil && !errors.Is(err, dedup.ErrTxEnded) {
			t.Errorf("%s: %v", q, err)
		}
		if _, after, _ := strings.Cut(state(), " "); after != before {
			t.Errorf("after %s the session is %q, was %q", q, after, before)
		}
	}
}

// A process that is frozen while it holds a claim must not hold it for ever.
func TestMySQLEndsATransactionThatStandsIdle(t *testing.T) {
	d := openMySQL(t)
	frozen := newNode(t, openDB(t, "mysql", d.dsn), sqlstore.Config{Dialect: sqlstore.MySQL, IdleLimit: time.Second})
	s := d.open(t, d.dsn, deduptest.Options{Wait: 2 * time.Minute})
	claim(t, s, record("warm"))
	var err error
	ran := false
	for attempt := 0; !ran && attempt < 100; attempt++ { // so short a limit may strike before the handler
		began := time.Now()
		err = frozen.InTx(t.Context(), []dedup.Record{record("k")}, func(*sql.Tx, []dedup.Claim) error {
			ran = true
			if c := claim(t, s, record("k")); c[0].Verdict != dedup.First {
				t.Errorf("verdict %v", c[0].Verdict)
			}
			if waited := time.Since(began); waited < 500*time.Millisecond {
				t.Errorf("free after %v", waited)
			}
			return nil
		})
	}
	if err == nil || !frozen.Retryable(err) {
		t.Errorf("the frozen one: %v, want a Retryable error", err)
	}
}

// Where a replica may not have a commit that others see already, a duplicate makes its own COMMIT wait for it.
func TestMySQLDuplicateWritesForReplicas(t *testing.T) {
	for _, point := range []string{"AFTER_COMMIT", "AFTER_SYNC"} {
		d := openMySQL(t)
		s := d.open(t, d.dsn, deduptest.Options{})
		s.Pretend("rpl_semi_sync_master_enabled", "ON", "rpl_semi_sync_master_wait_point", point)
		claim(t, s, record("k"), record("l"))
		tokens := func() string {
			return strings.Join(stringsOf(t, d.db, "SELECT HEX(token) FROM processed_messages WHERE id IN ('k', 'l') ORDER BY id"), " ")
		}
		before := tokens()
		claim(t, s, record("k"), record("l"), record("m"))
		if wrote := tokens() != before; wrote != (point == "AFTER_COMMIT") {
			t.Errorf("%s: a duplicate wrote: %v", point, wrote)
		}
	}
}

// The server ends the connection that sends too much, which would look like an outage, for ever.
func TestMySQLRefusesWhatDoesNotFitAPacket(t *testing.T) {
	d := openMySQL(t)
	s := d.open(t, d.dsn, deduptest.Options{})
	claim(t, s, record("k"))
	var most int
	if err := d.db.QueryRow(`SELECT @@max_allowed_packet`).Scan(&most); err != nil {
		t.Fatal(err)
	}
	err := s.InTx(t.Context(), nil, func(tx *sql.Tx, _ []dedup.Claim) error {
		return s.SaveResult(t.Context(), tx, record("k").Key, make([]byte, most))
	})
	if err == nil || !strings.Contains(err.Error(), "max_allowed_packet") || s.Retryable(err) {
		t.Errorf("SaveResult of %d bytes: %v", most, err)
	}
	err = s.InTx(t.Context(), nil, func(tx *sql.Tx, _ []dedup.Claim) error {
		return s.Park(t.Context(), tx, consumer.DeadLetter{Record: record("k"), Message: consumer.Message{Topic: "t", Payload: make([]byte, most)}})
	})
	if err == nil || !strings.Contains(err.Error(), "max_allowed_packet") || s.Retryable(err) {
		t.Errorf("Park of %d bytes: %v", most, err)
	}
}

// More rows than one statement takes.
func TestMySQLClaimsABatchOfManyStatements(t *testing.T) {
	d := openMySQL(t)
	s := d.open(t, d.dsn, deduptest.Options{})
	var recs []dedup.Record
	for i := range 2500 {
		recs = append(recs, record(fmt.Sprint(i)))
	}
	for _, want := range []dedup.Verdict{dedup.First, dedup.Duplicate} {
		for i, c := range claim(t, s, recs...) {
			if c.Verdict != want {
				t.Fatalf("record %d: %v, want %v", i, c.Verdict, want)
			}
		}
	}
}

// Tables in another database than the DSN's.
func TestMySQLSchema(t *testing.T) {
	d, other := openMySQL(t), testdb.MySQL(t)
	name := other[strings.LastIndex(other, "/")+1:]
	if err := migrations.Apply(t.Context(), d.db, "mysql", name); err != nil {
		t.Fatal(err)
	}
	exec(t, d.db, `DROP TABLE processed_messages`)
	s := newNode(t, openDB(t, "mysql", d.dsn), sqlstore.Config{Dialect: sqlstore.MySQL, Schema: name})
	if err := s.Register(t.Context(), "billing", 0); err != nil {
		t.Fatal(err)
	}
	for _, want := range []dedup.Verdict{dedup.First, dedup.Duplicate} {
		if c := claim(t, s, record("k"), record("l")); c[0].Verdict != want {
			t.Errorf("%v, want %v", c[0].Verdict, want)
		}
	}
}

// MySQL's wait for a lock is one of whole seconds, for each lock anew. A batch has a limit in all.
func TestMySQLCountsWaitsInSeconds(t *testing.T) {
	t.Parallel() // it waits
	d := openMySQL(t)
	d.asMySQL = true
	holder, s := d.open(t, d.dsn, deduptest.Options{Wait: time.Minute}), d.open(t, d.dsn, deduptest.Options{Wait: 200 * time.Millisecond})
	warm(t, s)
	for keys, why := range map[int]string{1: "one key", 4: "a batch whose keys are freed one after the other"} {
		for round := 0; ; round++ { // on a busy machine a claim comes late or waits longer, but not each time
			took, err := claimWhatIsFreed(t, holder, s, round, keys)
			if errors.Is(err, dedup.ErrInFlight) && took <= 1900*time.Millisecond {
				break
			}
			if round == 9 || err != nil && !errors.Is(err, dedup.ErrInFlight) && !s.Retryable(err) {
				t.Errorf("%s: %v after %v, want ErrInFlight after about a second", why, err, took)
				break
			}
		}
	}
}

// claimWhatIsFreed claims keys that are held, and freed one after the other: each wait alone is short enough, if there are
// several.
func claimWhatIsFreed(t *testing.T, holder, s *node, round, keys int) (took time.Duration, err error) {
	t.Helper()
	var recs []dedup.Record
	for i := range keys {
		recs = append(recs, record(fmt.Sprintf("%d of %d/%d", i, keys, round)))
	}
	slices.SortFunc(recs, func(a, b dedup.Record) int { return a.Key.Derive().Compare(b.Key.Derive()) })
	var held, done sync.WaitGroup
	free := make(chan struct{})
	for i, r := range recs {
		held.Add(1)
		hold := sync.OnceFunc(held.Done)
		done.Go(func() {
			defer hold()
			err := holder.InTx(context.Background(), []dedup.Record{r}, func(*sql.Tx, []dedup.Claim) error {
				hold()
				<-free
				<-time.After(time.Duration(i) * 700 * time.Millisecond)
				return errUndo
			})
			if !errors.Is(err, errUndo) {
				t.Error(err)
			}
		})
	}
	held.Wait()
	if keys > 1 {
		time.AfterFunc(700*time.Millisecond, func() { close(free) })
	}
	began := time.Now()
	err = s.InTx(t.Context(), recs, func(*sql.Tx, []dedup.Claim) error { return nil })
	took = time.Since(began)
	if keys == 1 {
		close(free)
	}
	done.Wait()
	if err == nil {
		return took, nil
	}
	for _, c := range claim(t, holder, recs...) {
		if c.Verdict != dedup.First {
			t.Errorf("%v in the end", c.Verdict)
		}
	}
	return took, err
}

// A transaction of the caller's may be above the Store's own level, and see the time before a sweep.
func TestMySQLClaimInASnapshotOlderThanASweep(t *testing.T) {
	d := openMySQL(t)
	s := d.open(t, d.dsn, deduptest.Options{}) // READ COMMITTED
	old := record("k")
	old.Time, old.Window = time.Now().Add(-2*time.Hour), 3*time.Hour
	claim(t, s, old)
	err := inTx(t.Context(), d.db, &sql.TxOptions{Isolation: sql.LevelRepeatableRead}, func(tx *sql.Tx) error {
		var before sql.NullInt64
		if err := tx.QueryRow(`SELECT forgotten_until FROM txonce_sweep`).Scan(&before); err != nil {
			return err
		}
		d.age(t, 4*time.Hour)
		old.Time = old.Time.Add(-4 * time.Hour)
		if swept, err := s.Purge(t.Context(), dedup.Sweep{Owner: "me", Lease: time.Second, Limit: 10}); err != nil || swept.Keys != 1 {
			t.Fatalf("Purge = %+v, %v", swept, err)
		}
		answers, err := s.Claim(t.Context(), tx, []dedup.Record{old})
		if err == nil && answers[0].Verdict != dedup.Unprovable {
			t.Errorf("verdict %v, want unprovable", answers[0].Verdict)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
