package verdicts_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/faults"
	"github.com/txonce/txonce/internal/test/matrix"
	"github.com/txonce/txonce/internal/test/testdb"
)

// walked is a database with the means to make its operations fail.
type walked struct {
	*database
	kind   faults.Database
	codes  map[faults.Class][]string
	refuse func(table, event, code string) (make, drop []string) // a trigger that fails with code
	raise  func(code string) []string                            // statements of a handler, of which the last one fails
	reset  []string                                              // what the handler sends after raise
	// makes COMMIT fail for the effect 'bad'; nil: the database checks nothing at COMMIT
	late func(code string) []string
}

// notRaised are the classes that no statement can raise, and why.
var notRaised = map[faults.Database]map[faults.Class]string{
	faults.MySQL: {
		driver.FaultConnection: "a session that goes on after such an error got it from another server; the stores' suite has the real one, after KILL",
		driver.FaultAccess:     "a session that is open was let in: the error comes from another server",
	},
	faults.SQLite: {
		driver.FaultAccess:     "it is found when the file is opened; see the tests of Register",
		driver.FaultPermission: "only an authorizer of the driver raises it",
		driver.FaultContention: "the Store's transaction is the only one that writes; TestAHotRowParksNothing has claims that wait",
		driver.FaultStorage:    "it needs a broken disk",
		driver.FaultSession:    "it needs ctx to end, which is a shutdown, or a schema that changes again and again",
	},
}

func walkedDatabases() map[string]func(t *testing.T) *walked {
	postgres := func(open func(t *testing.T, server string) *database) func(t *testing.T) *walked {
		return func(t *testing.T) *walked {
			return &walked{
				database: open(t, testdb.Postgres18(t)), kind: faults.Postgres,
				codes: map[faults.Class][]string{
					driver.FaultConnection: {"08006", "57P01", "40003"}, driver.FaultServer: {"25006"},
					driver.FaultAccess:     {"28000", "3D000"},
					driver.FaultPermission: {"42501"}, driver.FaultDeployment: {"42P01", "42703", "42883", "3F000"},
					driver.FaultContention: {"40001", "40P01", "55P03"}, driver.FaultTimeLimit: {"57014", "25P04"},
					driver.FaultIdleLimit: {"25P03"},
					driver.FaultLimit:     {"53400"}, driver.FaultResources: {"53100", "53200", "53300"},
					driver.FaultStorage:  {"58030"},
					driver.FaultInternal: {"XX000", "58P01"}, driver.FaultSession: {"26000"},
					driver.FaultTransaction: {"25001"},
					driver.FaultData:        {"22001", "22P02", "23505", "P0001", "0A000"}, driver.FaultAborted: {"25P02"},
				},
				refuse: func(table, event, code string) (create, drop []string) {
					return []string{
						fmt.Sprintf(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION USING ERRCODE = ''%s''; END'`, code),
						fmt.Sprintf(`CREATE TRIGGER refuse BEFORE %s ON %s FOR EACH ROW EXECUTE FUNCTION refuse()`,
							event, table),
					}, []string{`DROP FUNCTION refuse CASCADE`}
				},
				raise: func(code string) []string {
					return []string{fmt.Sprintf(`DO 'BEGIN RAISE EXCEPTION USING ERRCODE = ''%s''; END'`, code)}
				},
				late: func(code string) []string {
					return []string{
						fmt.Sprintf(`CREATE FUNCTION late() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION USING ERRCODE = ''%s''; END'`, code),
						`CREATE CONSTRAINT TRIGGER late AFTER INSERT ON effects DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.name = 'bad') EXECUTE FUNCTION late()`,
					}
				},
			}
		}
	}
	mysql := func(t *testing.T) *walked {
		return &walked{
			database: mysqlOn(t), kind: faults.MySQL,
			codes: map[faults.Class][]string{
				driver.FaultServer: {"1290", "1792"}, driver.FaultPermission: {"1142"},
				driver.FaultDeployment: {"1146", "1054", "1305"},
				driver.FaultContention: {"1205", "1020", "3572"}, driver.FaultTimeLimit: {"1969", "3024", "1317"},
				driver.FaultIdleLimit: {"4031"},
				driver.FaultResources: {"1114", "1021"}, driver.FaultStorage: {"1030", "1180"},
				driver.FaultSession: {"1412", "1615"},
				driver.FaultData:    {"1062", "1406", "1644"},
			},
			refuse: func(table, event, code string) (create, drop []string) {
				return []string{fmt.Sprintf(`CREATE TRIGGER refuse BEFORE %s ON %s FOR EACH ROW SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = %s`, event, table, code)},
					[]string{`DROP TRIGGER refuse`}
			},
			raise: func(code string) []string { return []string{`SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = ` + code} },
		}
	}
	return map[string]func(t *testing.T) *walked{
		"pgxstore": postgres(pgxOn),
		"postgres": postgres(postgresOn),
		"mariadb":  mysql,
		"mysql":    mysql,
		"sqlite": func(t *testing.T) *walked {
			statements := map[string][]string{
				"missing table": {`INSERT INTO missing VALUES (1)`},
				"read-only":     {`PRAGMA query_only = 1`, `INSERT INTO effects (name) VALUES ('x')`},
				"full":          {`PRAGMA max_page_count = 1`, `CREATE TABLE big AS SELECT randomblob(100000) AS b`},
				"not null":      {`INSERT INTO effects (name) VALUES (NULL)`},
			}
			return &walked{
				database: sqlite(t), kind: faults.SQLite,
				codes: map[faults.Class][]string{
					driver.FaultServer: {"read-only"}, driver.FaultDeployment: {"missing table"},
					driver.FaultResources: {"full"}, driver.FaultData: {"not null"},
				},
				refuse: func(table, event, _ string) (create, drop []string) {
					return []string{fmt.Sprintf(`CREATE TRIGGER refuse BEFORE %s ON %s BEGIN SELECT raise(ABORT, 'refused'); END`, event, table)}, []string{`DROP TRIGGER refuse`}
				},
				raise: func(code string) []string { return statements[code] },
				reset: []string{`PRAGMA query_only = 0`, `PRAGMA max_page_count = 1073741823`},
			}
		},
	}
}

// each runs f for each class, with a code or, with TXONCE_TEST_ALL, each code that the walk can raise, and fails for a
// class without a code and without a reason.
func (d *walked) each(t *testing.T, f func(t *testing.T, c faults.Class, code string)) {
	for _, c := range faults.Classes() {
		codes, reason := d.codes[c], notRaised[d.kind][c]
		if none := faults.Codes(d.kind, c); reason == "" && (strings.HasPrefix(none, "none") || none == "no code") {
			reason = none
		}
		if len(codes) == 0 && reason == "" {
			t.Errorf("%s: class %q has codes, and the walk raises none of them", d.name, c)
		}
		if len(codes) == 0 {
			t.Logf("%s: %q does not exist here: %s", d.name, c, reason)
		}
		if !matrix.All() {
			codes = codes[:min(1, len(codes))] // the stores' suites test the class of each code
		}
		for _, code := range codes {
			f(t, c, code)
		}
	}
}

// noTrigger says why no trigger can raise class c in a statement of txonce's own.
func (d *walked) noTrigger(c faults.Class) string {
	switch {
	case d.kind == faults.SQLite && c != driver.FaultData:
		return "SQLite's triggers raise nothing else than a failed constraint"
	case c == driver.FaultAborted:
		return "no statement of the transaction has failed before"
	}
	return ""
}

// undefined are the codes of a missing table or column. In Enqueue it is one of txonce's own, for all handlers that
// enqueue.
var undefined = []string{"42P01", "42703", "3F000", "1146", "1054"}

// runsMost is how often the walk delivers a message before it takes it for one that is never parked.
const runsMost = 40

// wantRuns returns how often a message runs until it is parked; 0: it never is.
func wantRuns(v faults.Verdict, beside bool) int {
	from := v.Alone
	if beside {
		from = v.Beside
		if from == 0 || v.Alone > 0 && v.Alone < from {
			from = max(from, v.Alone)
		}
	}
	switch {
	case v.Do == faults.Count:
		return 3
	case from == 0:
		return 0
	}
	return from - 1 + 3
}

// runs delivers the message bad until it is parked, and returns how often that was. beside delivers another message in
// between, which must be committed each time.
func runs(t *testing.T, d *walked, w worker, what string, beside bool) int {
	bad := message("bad")
	defer func() {
		for id := range letters(t, w) {
			mustExec(t, d.admin, `DELETE FROM dead_letters WHERE message_id = '`+id+`'`)
		}
	}()
	for n := 1; n <= runsMost; n++ {
		err := w.ProcessBatch(t.Context(), []*consumer.Message{bad})[0]
		if err == nil {
			if letters(t, w)["bad"] == "" {
				t.Errorf("%s: run %d is committed", what, n)
			}
			return n
		}
		retry, ok := errors.AsType[*consumer.RetryError](err)
		if !ok {
			t.Errorf("%s: run %d: %v", what, n, err)
			return n
		}
		if !retry.Held {
			bad.Attempt = max(bad.Attempt, 1) + 1
		}
		if beside {
			good := message(fmt.Sprint(what, n))
			if err := w.ProcessBatch(t.Context(), []*consumer.Message{good})[0]; err != nil {
				t.Errorf("%s: a stranger after run %d: %v", what, n, err)
				return n
			}
		}
	}
	return 0
}

// TestWalkHandlers raises each code in the handler's statement, in Enqueue and in COMMIT, of one message, alone and
// beside others.
func TestWalkHandlers(t *testing.T) {
	for name, open := range walkedDatabases() {
		for _, operation := range []faults.Operation{faults.Handler, faults.Enqueue, faults.Commit} {
			t.Run(name+"/"+string(operation), func(t *testing.T) {
				t.Parallel()
				d := open(t)
				if operation == faults.Commit && d.late == nil {
					t.Logf("no cells: %s checks nothing at COMMIT", d.kind)
					return
				}
				d.each(t, func(t *testing.T, c faults.Class, code string) {
					if reason := d.noTrigger(c); reason != "" && operation == faults.Enqueue {
						t.Logf("%s: %q: %s", d.name, c, reason)
						return
					}
					var drop []string
					switch operation {
					case faults.Commit:
						mustExec(t, d.admin, d.late(code)...)
						drop = []string{`DROP FUNCTION late CASCADE`}
					case faults.Enqueue:
						var create []string
						create, drop = d.refuse("outbox_messages", "INSERT", code)
						mustExec(t, d.admin, create...)
					default: // the handler's own statement fails
					}
					defer mustExec(t, d.admin, drop...)
					for _, beside := range []bool{false, true} {
						w := d.start(t, func(ctx context.Context, run exec, m *consumer.Message) error {
							if m.ID != "bad" {
								return run(`INSERT INTO effects (name) VALUES (`+d.mark(1)+`)`, m.ID)
							}
							switch operation {
							case faults.Commit:
								if c == driver.FaultTimeLimit {
									_ = pause(ctx, 100*time.Millisecond)
								}
								return run(`INSERT INTO effects (name) VALUES ('bad')`)
							case faults.Enqueue:
								if c == driver.FaultTimeLimit {
									_ = pause(ctx, 100*time.Millisecond)
								}
								return enqueue(ctx, m.ID)
							default: // the statement below fails
							}
							if c == driver.FaultTimeLimit { // such an error comes when time has passed
								if err := pause(ctx, 100*time.Millisecond); err != nil {
									return err
								}
							}
							var err error
							for _, q := range d.raise(code) {
								if err = run(q); err != nil {
									break
								}
							}
							for _, q := range d.reset {
								_ = run(q)
							}
							return err
						}, settings{})
						what := fmt.Sprintf("%s %s %s, beside others: %v", operation, c, code, beside)
						verdict := d.kind.After(c, operation)
						if operation == faults.Enqueue && slices.Contains(undefined, code) {
							verdict = d.kind.After(driver.FaultConnection, operation)
						}
						want := wantRuns(verdict, beside)
						got := runs(t, d, w, what, beside)
						if c == driver.FaultTimeLimit && !beside && got > want {
							// a claim that the busy machine made slow proves nothing
							got = want
						}
						if got != want {
							t.Errorf("%s: parked after %d runs, want %d (%s)", what, got, want,
								d.kind.After(c, operation))
						}
					}
				})
			})
		}
	}
}

// TestWalkOwnStatements raises each code in the statements of txonce's own: the claim, parking and a replay. Nothing is
// counted, lost or parked, and everything goes on afterwards.
func TestWalkOwnStatements(t *testing.T) {
	for name, open := range walkedDatabases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t)
			fails := true
			w := d.start(t, func(_ context.Context, run exec, m *consumer.Message) error {
				if fails && strings.HasPrefix(m.ID, "bad") {
					return consumer.Permanent(errors.New("no"))
				}
				return run(`INSERT INTO effects (name) VALUES (`+d.mark(1)+`)`, m.ID)
			}, settings{})
			if err := w.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			process := func(m *consumer.Message) error { return w.ProcessBatch(t.Context(), []*consumer.Message{m})[0] }
			d.each(t, func(t *testing.T, c faults.Class, code string) {
				if reason := d.noTrigger(c); reason != "" {
					t.Logf("%s: %q: %s", d.name, c, reason)
					return
				}
				m, bad := message(fmt.Sprint("claim ", c, code)), message(fmt.Sprint("bad ", c, code))
				create, drop := d.refuse("processed_messages", "INSERT", code)
				mustExec(t, d.admin, create...)
				for n := range 5 {
					if retry, ok := errors.AsType[*consumer.RetryError](process(m)); !ok || !retry.Held {
						t.Errorf("claim, %s %s, run %d: %v, want a retry that does not count", c, code, n, retry)
					}
				}
				mustExec(t, d.admin, drop...)
				if err := process(m); err != nil || d.effects(t, m.ID) != 1 {
					t.Errorf("claim, %s %s, afterwards: %v, %d effects", c, code, err, d.effects(t, m.ID))
				}

				create, drop = d.refuse("dead_letters", "INSERT", code)
				mustExec(t, d.admin, create...)
				fails = true
				want := faults.Pause
				if c == driver.FaultData {
					want = faults.SetAside
				}
				if do := d.kind.After(c, faults.Park).Do; do != want {
					t.Errorf("park, %s %s: the table says %s", c, code, do)
				}
				for n := range 5 {
					if retry, ok := errors.AsType[*consumer.RetryError](process(bad)); !ok || !retry.Held {
						t.Errorf("park, %s %s, run %d: %v, want a retry that does not count", c, code, n, retry)
					}
					if err := process(message(fmt.Sprint("beside ", c, code, n))); err != nil {
						t.Errorf("park, %s %s, run %d: a stranger: %v", c, code, n, err)
					}
				}
				mustExec(t, d.admin, drop...)
				if err := process(bad); err != nil || letters(t, w)[bad.ID] == "" {
					t.Errorf("park, %s %s, afterwards: %v, letters %v", c, code, err, letters(t, w))
				}

				fails = false
				create, drop = d.refuse("effects", "INSERT", code)
				mustExec(t, d.admin, create...)
				if ran, err := replay(t, w, bad.ID); err == nil || ran || letters(t, w)[bad.ID] == "" {
					t.Errorf("replay, %s %s: %v, %v, letters %v; want an error and the letter", c, code, ran, err,
						letters(t, w))
				}
				mustExec(t, d.admin, drop...)
				if ran, err := replay(t, w, bad.ID); err != nil || !ran || letters(t, w)[bad.ID] != "" ||
					d.effects(t, bad.ID) != 1 {
					t.Errorf("replay, %s %s, afterwards: %v, %v, letters %v, %d effects", c, code, ran, err,
						letters(t, w), d.effects(t, bad.ID))
				}
			})
		})
	}
}

func replay(t *testing.T, w worker, id string) (ran bool, err error) {
	found, err := w.DeadLetters(t.Context(), consumer.DeadLetterFilter{Consumer: "billing", MessageID: id})
	if err != nil || len(found) != 1 {
		t.Fatalf("%d letters of %s: %v", len(found), id, err)
	}
	return w.Replay(t.Context(), found[0], consumer.Replay{})
}
