package sqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"modernc.org/sqlite"

	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/dedup"
)

// openAttaching returns a store whose connections each run statements after they were opened, like those of a program
// with a hook of the driver. main are the pragmas of the claims' file.
func openAttaching(t *testing.T, main string, cfg sqlstore.Config, statements func() []string) *node {
	t.Helper()
	d := openSQLite(t)
	exec(t, d.db, `PRAGMA journal_mode = delete`)
	d.db.Close()
	d.own.Close()
	driver := &sqlite.Driver{}
	driver.RegisterConnectionHook(func(conn sqlite.ExecQuerierContext, _ string) error {
		for _, q := range statements() {
			if _, err := conn.ExecContext(context.Background(), q, nil); err != nil {
				return err
			}
		}
		return nil
	})
	name := fmt.Sprintf("sqlite attaching %d", len(sql.Drivers()))
	sql.Register(name, driver)
	file, _, _ := strings.Cut(d.dsn, "?")
	cfg.Dialect = sqlstore.SQLite
	s := newNode(t, openDB(t, name, file+"?"+main), cfg)
	s.db.SetMaxOpenConns(1)
	return s
}

// Without a rollback journal on disk for both files, SQLite commits the claims in one file first. The effects in the
// other one are lost if its disk is full then, or if the process dies.
func TestSQLiteRefusesFilesThatAreNotCommittedTogether(t *testing.T) {
	const wal, truncate = "_pragma=journal_mode(wal)", "_pragma=journal_mode(truncate)"
	for _, test := range []struct {
		name, main string
		app        []string // of the attached database
		file       string   // empty: app.db
		refused    bool
	}{
		{name: "claims in WAL mode", main: wal, refused: true},
		{
			name: "effects in WAL mode", main: truncate, app: []string{`PRAGMA "app's".journal_mode = wal`},
			refused: true,
		},
		{
			name: "effects without a journal", main: truncate, app: []string{`PRAGMA "app's".journal_mode = off`},
			refused: true,
		},
		{
			name: "effects with a journal in memory", main: truncate,
			app: []string{`PRAGMA "app's".journal_mode = memory`}, refused: true,
		},
		{
			name: "effects that are not synced", main: truncate, app: []string{`PRAGMA "app's".synchronous = off`},
			refused: true,
		},
		{name: "rollback journals", main: truncate},
		{name: "deleted journals", main: "_pragma=synchronous(extra)"},
		{name: "a database in memory", main: wal, file: ":memory:"},
	} {
		t.Run(test.name, func(t *testing.T) {
			file := test.file
			if file == "" {
				file = filepath.Join(t.TempDir(), "app.db")
			}
			hook := append([]string{`ATTACH '` + file + `' AS "app's"`, `CREATE TABLE IF NOT EXISTS "app's".ledger (name TEXT)`}, test.app...)
			attach := false
			s := openAttaching(t, test.main, sqlstore.Config{AllowAsyncCommit: true}, func() []string {
				if attach {
					return hook
				}
				return nil
			})
			if err := s.Register(t.Context(), "billing", 0); err != nil {
				t.Fatal(err)
			}
			write := func(id string) error {
				return s.InTx(t.Context(), []dedup.Record{record(id)}, func(tx *sql.Tx, _ []dedup.Claim) error {
					_, err := tx.ExecContext(t.Context(), `INSERT INTO "app's".ledger (name) VALUES (?)`, id)
					return err
				})
			}
			attach = true
			closeIdle(s)
			for what, err := range map[string]error{
				"Register": s.Register(t.Context(), "shipping", 0),
				"InTx":     write("k"), // Register may have seen other connections
				"Claim": inTx(t.Context(), s.db, nil, func(tx *sql.Tx) error {
					_, err := s.Claim(t.Context(), tx, []dedup.Record{record("l")})
					return err
				}),
			} {
				if !test.refused && err != nil {
					t.Errorf("%s = %v", what, err)
				}
				if test.refused && (!errors.Is(err, dedup.ErrNotDurable) || !strings.Contains(err.Error(), file) ||
					what == "InTx" && !s.Retryable(err)) {
					t.Errorf("%s = %v, want ErrNotDurable that names %s", what, err, file)
				}
			}
			attach = false
			closeIdle(s)
			if c := claim(t, s, record("k")); test.refused != (c[0].Verdict == dedup.First) {
				t.Errorf("verdict %v", c[0].Verdict)
			}
		})
	}
}

// closeIdle closes the pool's connections.
func closeIdle(s *node) {
	s.db.SetMaxIdleConns(0)
	s.db.SetMaxIdleConns(1)
}

// A handler that attaches a file commits nothing, and leaves the file on no connection.
func TestSQLiteHandlerThatAttachesAFile(t *testing.T) {
	for _, end := range []string{"the end", "VerifyTx", "an error", "a panic"} {
		t.Run(end, func(t *testing.T) {
			d := openSQLite(t)
			s := newNode(t, openDB(t, "sqlite", d.dsn), sqlstore.Config{Dialect: sqlstore.SQLite})
			s.db.SetMaxOpenConns(1)
			warm(t, s)
			file := filepath.Join(t.TempDir(), "app.db")
			err := func() (err error) {
				defer func() {
					if recover() != nil {
						err = errUndo
					}
				}()
				return s.InTx(t.Context(), []dedup.Record{record("k")}, func(tx *sql.Tx, _ []dedup.Claim) error {
					for _, q := range []string{
						`ATTACH '` + file + `' AS app`, `CREATE TABLE app.ledger (name TEXT)`,
						`INSERT INTO app.ledger VALUES ('k')`,
					} {
						if _, err := tx.ExecContext(t.Context(), q); err != nil {
							return err
						}
					}
					switch end {
					case "VerifyTx":
						return s.VerifyTx(t.Context(), tx)
					case "an error":
						return errUndo
					case "a panic":
						panic(errUndo)
					}
					return nil
				})
			}()
			if undone := end == "an error" || end == "a panic"; undone != errors.Is(err, errUndo) ||
				!undone && (!errors.Is(err, dedup.ErrNotDurable) || s.Retryable(err) ||
					errors.Is(err, dedup.ErrTxEnded) || !strings.Contains(err.Error(), file)) {
				t.Errorf("InTx = %v, want ErrNotDurable that names the file, or the handler's own error", err)
			}
			if _, found, err := s.Lookup(t.Context(), record("k").Key); found || err != nil {
				t.Errorf("the claim is there: %v, %v", found, err)
			}
			if n := stringsOf(t, openDB(t, "sqlite", "file:"+file), `SELECT name FROM sqlite_schema`); len(n) > 0 {
				t.Errorf("the attached file has %q", n)
			}
			if err := s.InTx(t.Context(), []dedup.Record{record("next")},
				func(*sql.Tx, []dedup.Claim) error { return nil }); err != nil {
				t.Errorf("the next message: %v", err)
			}
		})
	}
}
