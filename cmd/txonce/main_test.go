package main

import (
	"database/sql"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/internal/test/matrix"
	"github.com/txonce/txonce/internal/test/testdb"
)

func TestMain(m *testing.M) {
	childMain()
	os.Exit(m.Run())
}

// server is a kind of database.
type server struct {
	dialect sqlstore.Dialect
	driver  string
	// dsn returns those of the command line and of the driver.
	dsn func(t *testing.T, dir string) (line, driver string)
}

func servers() map[string]server {
	onMySQL := server{sqlstore.MySQL, "mysql", func(t *testing.T, _ string) (string, string) {
		dsn := testdb.MySQL(t)
		cfg, err := mysql.ParseDSN(dsn)
		if err != nil {
			t.Fatal(err)
		}
		u := url.URL{
			Scheme: "mysql", User: url.UserPassword(cfg.User, cfg.Passwd), Host: cfg.Addr,
			Path: "/" + cfg.DBName,
		}
		return u.String(), dsn
	}}
	return map[string]server{
		"postgres": {sqlstore.Postgres, "pgx", func(t *testing.T, _ string) (string, string) {
			dsn := testdb.Schema(t, testdb.Postgres(t))
			return dsn, dsn
		}},
		"mariadb": onMySQL,
		"mysql":   onMySQL,
		"sqlite": {sqlstore.SQLite, "sqlite", func(t *testing.T, dir string) (string, string) {
			path := filepath.Join(dir, "test.db")
			if err := os.WriteFile(path, nil, 0o600); err != nil { // an empty database, as on the servers
				t.Fatal(err)
			}
			return path, "file:" + path + "?_pragma=busy_timeout(5000)&_pragma=journal_mode(wal)"
		}},
	}
}

// TestScripts runs each file of testdata on each database. The scripts see an empty database; seed.go has the commands
// that fill it. UPDATE_SCRIPTS=1 writes what the commands print into the scripts.
func TestScripts(t *testing.T) {
	for name, s := range servers() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scripts, err := filepath.Glob("testdata/*.txtar")
			if err != nil || len(scripts) < 5 {
				t.Fatalf("%d scripts, %v", len(scripts), err)
			}
			for _, script := range scripts {
				if !matrix.RunsOn(name, filepath.Base(script)) {
					continue
				}
				t.Run(strings.TrimSuffix(filepath.Base(script), ".txtar"), func(t *testing.T) {
					t.Parallel()
					runScript(t, s, script)
				})
			}
		})
	}
}

type seedKey struct{}

func runScript(t *testing.T, s server, script string) {
	line, driver := s.dsn(t, t.TempDir())
	testscript.Run(t, testscript.Params{
		Files:         []string{script},
		UpdateScripts: os.Getenv("UPDATE_SCRIPTS") != "",
		Setup: func(env *testscript.Env) error {
			db, err := sql.Open(s.driver, driver)
			if err != nil {
				return err
			}
			env.Defer(func() { _ = db.Close() })
			env.Setenv("TXONCE_DSN", line)
			yesterday := time.Now().Add(-24 * time.Hour)
			for name, t := range map[string]time.Time{
				"BEFORE": yesterday.Add(-time.Hour), "YESTERDAY": yesterday,
				"AFTERWARDS": yesterday.Add(time.Hour),
			} {
				env.Setenv(name, t.UTC().Format(time.RFC3339))
			}
			env.Values[seedKey{}] = &seeds{t: t, db: db, dialect: s.dialect}
			return startShell(env, t.Errorf)
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"txonce": inShell("txonce"), "mounted": inShell("mounted"), "exits": exits,
			"park": park, "position": position, "process": process, "parkoutbox": parkOutbox, "worker": worker, "norm": norm, "query": query,
			"tenant": parkOfTenant, "oldletters": oldLetters, "letterid": letterID, "actionid": actionID,
			"after": after, "expire": expire,
			"ledger": ledger, "pay": pay, "paused": paused, "sql": statement,
			"enqueue": enqueue, "settle": settle, "hidden": hiddenKey, "rowkey": rowKey, "hold": holdKey,
			"api": startAPI, "request": request, "requesthash": requestHash, "hook": hook, "release": releaseKey, "inflight": inFlight, "handled": handled,
		},
	})
}

var volatile = []struct {
	pattern *regexp.Regexp
	text    string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ`), "0000-00-00 00:00:00Z"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`), "TIME"},
	{regexp.MustCompile(`\b[0-9a-f]{32}\b`), "ffffffffffffffffffffffffffffffff"},
	{regexp.MustCompile(`_seconds":[0-9.e-]+`), `_seconds":0`},
	{regexp.MustCompile(`"keys":-?\d+`), `"keys":0`},
	{regexp.MustCompile(`, about -?\d+ keys`), ""},
	{regexp.MustCompile(`\b\d+s\b`), "0s"},
	{regexp.MustCompile(`(^|"database":")(postgres|mysql|sqlite)\b`), "${1}DATABASE"},
}

// norm writes the output of the last command to the file out, without what differs from run to run and between
// databases.
func norm(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 0 {
		ts.Fatalf("usage: norm")
	}
	text := ts.ReadFile("stdout")
	for _, v := range volatile {
		text = v.pattern.ReplaceAllString(text, v.text)
	}
	ts.Check(os.WriteFile(ts.MkAbs("out"), []byte(text), 0o600))
}

// exits runs txonce and checks its exit code: exits CODE ARG...
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE ARG...")
	}
	if got := strconv.Itoa(runInShell(ts, "txonce", args[1:])); got != args[0] {
		ts.Fatalf("txonce exits with %s, want %s", got, args[0])
	}
}
