package sqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/internal/test/testdb"
)

// A program may claim without calling Register. The claim itself must then detect that autocommit is off.
func TestMySQLClaimWithoutAutocommit(t *testing.T) {
	t.Parallel()
	d := openMySQL(t)
	s := d.open(t, testdb.WithMySQL(t, d.dsn, "autocommit=0"), deduptest.Options{})
	err := s.InTx(t.Context(), []dedup.Record{record("k")}, func(*sql.Tx, []dedup.Claim) error {
		t.Error("the handler ran")
		return nil
	})
	if err == nil || !s.Retryable(err) || !strings.Contains(err.Error(), "autocommit is off") {
		t.Errorf("InTx = %v, want an error that names autocommit", err)
	}
}

// The Store resets the session of the application's connections.
func TestMySQLGivesConnectionsBackAsTheyWere(t *testing.T) {
	d := openMySQL(t)
	s := d.open(t, testdb.WithMySQL(t, d.dsn, "innodb_lock_wait_timeout=17&wait_timeout=1234"), deduptest.Options{})
	s.db.SetMaxOpenConns(1)
	state := func() (all string) {
		differs := `@@tx_isolation, @@in_transaction`
		if d.isMySQL {
			differs = `@@transaction_isolation`
		}
		err := s.db.QueryRow(`SELECT CONCAT_WS(' ', CONNECTION_ID(), @@autocommit, @@wait_timeout, @@innodb_lock_wait_timeout, ` + differs + `)`).Scan(&all)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	before := state()
	claim(t, s, record("k"))
	claim(t, s, record("k"), record("l"))
	if err := s.InTx(t.Context(), []dedup.Record{record("m")},
		func(*sql.Tx, []dedup.Claim) error { return errUndo }); !errors.Is(err, errUndo) {
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

// A process that freezes while it holds a claim must not hold it forever.
func TestMySQLEndsATransactionThatStandsIdle(t *testing.T) {
	d := openMySQL(t)
	frozen := newNode(t, openDB(t, "mysql", d.dsn),
		sqlstore.Config{Dialect: sqlstore.MySQL, IdleInTxTimeout: time.Second})
	s := d.open(t, d.dsn, deduptest.Options{Wait: 2 * time.Minute})
	claim(t, s, record("warm"))
	var err error
	ran := false
	for attempt := 0; !ran && attempt < 100; attempt++ {
		// such a short limit may end the transaction before the handler runs
		began := time.Now()
		err = frozen.InTx(t.Context(), []dedup.Record{record("k")}, func(*sql.Tx, []dedup.Claim) error {
			ran = true
			if c := claim(t, s, record("k")); c[0].Verdict != dedup.First {
				t.Errorf("verdict %v", c[0].Verdict)
			}
			if waited := time.Since(began); waited < 500*time.Millisecond {
				t.Errorf("the key was free after %v", waited)
			}
			return nil
		})
	}
	if err == nil || !frozen.Ambiguous(err) || !strings.Contains(err.Error(), "Config.IdleInTxTimeout") {
		t.Errorf("the frozen node: InTx = %v, want an ambiguous error that names the limit", err)
	}
}

// If other sessions see a commit before a replica has it, the COMMIT of a duplicate must wait for the replica too.
func TestMySQLDuplicateWritesForReplicas(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		server, enabled, point string
		want                   bool
	}{
		{"master", "ON", "AFTER_COMMIT", true},
		{"master", "ON", "AFTER_SYNC", false},
		{"master", "OFF", "AFTER_COMMIT", false},
		{"source", "ON", "AFTER_COMMIT", true}, // MySQL's newer name
		{"source", "ON", "AFTER_SYNC", false},
		{"source", "OFF", "AFTER_COMMIT", false},
	} {
		d := openMySQL(t)
		s := d.open(t, d.dsn, deduptest.Options{})
		s.Pretend("rpl_semi_sync_"+tt.server+"_enabled", tt.enabled, "rpl_semi_sync_"+tt.server+"_wait_point", tt.point)
		claim(t, s, record("k"), record("l"))
		tokens := func() string {
			return strings.Join(stringsOf(t, d.db, "SELECT HEX(token) FROM processed_messages WHERE id IN ('k', 'l') ORDER BY id"), " ")
		}
		before := tokens()
		claim(t, s, record("k"), record("l"), record("m"))
		if wrote := tokens() != before; wrote != tt.want {
			t.Errorf("%+v: a duplicate wrote: %v", tt, wrote)
		}
	}
}

// The server closes a connection that sends too large a packet. This would look like an outage that never ends.
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

// A batch may have more rows than one statement can claim.
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

// MySQL limits lock waits in whole seconds, separately for each lock. The Store limits a whole batch.
func TestMySQLCountsWaitsInSeconds(t *testing.T) {
	t.Parallel() // this test mostly waits
	t.Run("mysql", countsWaitsInSeconds)
}

func countsWaitsInSeconds(t *testing.T) {
	d := openMySQL(t)
	holder, s := d.open(t, d.dsn, deduptest.Options{Wait: time.Minute}),
		d.open(t, d.dsn, deduptest.Options{Wait: 200 * time.Millisecond})
	warm(t, s)
	for keys, why := range map[int]string{1: "one key", 4: "a batch whose keys are freed one after the other"} {
		for round := 0; ; round++ { // on a busy machine some claims start late or wait longer, but not all of them
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

// MySQL cannot read its tables of sessions in information_schema while one of them runs a statement with bytes that are
// not UTF-8, as an INSERT of a payload by interpolateParams has.
func TestMySQLTellsTheHolderBesideBytes(t *testing.T) {
	t.Parallel() // this test mostly waits
	for _, name := range []string{"mysql", "mariadb"} {
		t.Run(name, func(t *testing.T) {
			d := openMySQL(t)
			s := d.open(t, d.dsn, deduptest.Options{})
			err := s.InTx(t.Context(), []dedup.Record{record("k")}, func(tx *sql.Tx, _ []dedup.Claim) error {
				beside, stop := context.WithCancel(t.Context())
				defer stop()
				begun := make(chan struct{})
				ended := make(chan error, 1)
				go func() {
					ended <- inTx(beside, d.db, nil, func(tx *sql.Tx) error {
						_, err := tx.Exec(`INSERT INTO effects (name) VALUES ('beside')`)
						close(begun)
						if err == nil {
							_, err = tx.ExecContext(beside, "SELECT SLEEP(60), _binary'\x89\xd2p\xca'")
						}
						return err
					})
				}()
				<-begun
				for !running(t, d.db) {
					<-time.After(10 * time.Millisecond)
				}
				p, err := s.Operator().Probe(t.Context(), record("k"))
				if err != nil || !p.InFlight || p.Holder == nil || p.Holder.PID == 0 {
					t.Errorf("%+v, %v; want the holder of the key", p, err)
				}
				stop()
				<-ended
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// running reports whether a session of the test's database sleeps in a statement.
func running(t *testing.T, db *sql.DB) (yes bool) {
	t.Helper()
	if err := db.QueryRow(`SELECT count(*) > 0 FROM ` + testdb.MySQLSessions(t) +
		` WHERE db = DATABASE() AND info LIKE 'SELECT SLEEP%'`).Scan(&yes); err != nil {
		t.Fatal(err)
	}
	return yes
}
