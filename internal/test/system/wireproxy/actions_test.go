package wireproxy_test

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/internal/test/wireproxy"
)

// plan decides about one frame after Arm, and keeps all of them.
type plan struct {
	mu     sync.Mutex
	at     func(wireproxy.Frame) bool
	does   wireproxy.Action
	frames []wireproxy.Frame
	done   atomic.Int64
}

func (p *plan) decide(f wireproxy.Frame) wireproxy.Action {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frames = append(p.frames, f)
	if p.at == nil || !p.at(f) || !f.Allows(p.does.Kind) {
		return wireproxy.Action{}
	}
	p.at = nil
	return p.does
}

func (p *plan) next(does wireproxy.Action, at func(wireproxy.Frame) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at, p.does, p.frames = at, does, nil
	p.does.Done = func() { p.done.Add(1) }
}

// eventually waits until the proxy has reported so many actions.
func (p *plan) eventually(t *testing.T, want int64) {
	t.Helper()
	for began := time.Now(); p.done.Load() != want; <-time.After(time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatalf("%d actions are done, want %d", p.done.Load(), want)
		}
	}
}

func (p *plan) fired() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.at == nil
}

func commits(f wireproxy.Frame) bool  { return f.Commit && !f.FromServer }
func answers(f wireproxy.Frame) bool  { return f.Commit && f.FromServer }
func inserts(f wireproxy.Frame) bool  { return f.Statement == insert && !f.FromServer }
func inserted(f wireproxy.Frame) bool { return f.Statement == insert && f.FromServer }

func init() { _ = mysql.SetLogger(new(mysql.NopLogger)) } // which would print each connection that is cut

const insert = `INSERT INTO effects VALUES (1)`

// modes are the ways to send a statement.
var modes = map[string]func(context.Context, *pgconn.PgConn, string) error{
	"simple": func(ctx context.Context, conn *pgconn.PgConn, sql string) error {
		_, err := conn.Exec(ctx, sql).ReadAll()
		return err
	},
	"extended": func(ctx context.Context, conn *pgconn.PgConn, sql string) error {
		return conn.ExecParams(ctx, sql, nil, nil, nil, nil).Read().Err
	},
}

func TestActions(t *testing.T) {
	const long = 300 * time.Millisecond
	for _, test := range []struct {
		name   string
		does   wireproxy.Action
		at     func(wireproxy.Frame) bool
		code   string        // of the error; empty: the connection is cut, unless there is none
		ok     bool          // no error
		slow   time.Duration // it takes at least as long
		rows   int
		usable bool // the connection, afterwards
	}{
		{"statement lost", wireproxy.Action{Kind: wireproxy.CutBefore}, inserts, "", false, 0, 0, false},
		{"statement arrives, answer lost", wireproxy.Action{Kind: wireproxy.CutAfter}, inserts, "", false, 0, 0, false},
		{"answer to a statement lost", wireproxy.Action{Kind: wireproxy.CutBefore}, inserted, "", false, 0, 0, false},
		{"COMMIT lost", wireproxy.Action{Kind: wireproxy.CutBefore}, commits, "", false, 0, 0, false},
		{"answer to COMMIT lost", wireproxy.Action{Kind: wireproxy.CutBefore}, answers, "", false, 0, 1, false},
		{"stall", wireproxy.Action{Kind: wireproxy.Stall, For: long}, inserts, "", true, long, 1, true},
		{"answer stalls", wireproxy.Action{Kind: wireproxy.Stall, For: long}, answers, "", true, long, 1, true},
		{"statement fails", wireproxy.Action{Kind: wireproxy.Answer, Code: "40001"}, inserts, "40001", false, 0, 0, true},
		{"COMMIT fails", wireproxy.Action{Kind: wireproxy.Answer, Code: "40P01"}, commits, "40P01", false, 0, 0, true},
	} {
		for name, send := range modes {
			t.Run("postgres/"+name+"/"+test.name, func(t *testing.T) {
				dsn := testdb.Schema(t, testdb.Postgres(t))
				direct := connect(t, dsn)
				exec(t, direct, `CREATE TABLE effects (n int)`)
				p := &plan{}
				through, _ := wireproxy.ThroughPostgres(t, dsn, wireproxy.Config{Decide: p.decide, Recycle: 50})
				conn := connect(t, through)
				write := func() error {
					for _, q := range []string{"BEGIN", insert, "COMMIT"} {
						if err := send(t.Context(), conn.PgConn(), q); err != nil {
							_, _ = conn.Exec(t.Context(), "ROLLBACK")
							return err
						}
					}
					return nil
				}
				exec(t, conn, `SELECT 1`)
				p.next(test.does, test.at)
				began := time.Now()
				err := write()
				pg, _ := errors.AsType[*pgconn.PgError](err)
				switch {
				case !p.fired():
					t.Fatal("the action was not reached")
				case (err == nil) != test.ok, test.code != "" && (pg == nil || pg.Code != test.code):
					t.Errorf("the error is %v", err)
				case time.Since(began) < test.slow:
					t.Errorf("it took %v", time.Since(began))
				case rows(t, direct) != test.rows:
					t.Errorf("%d rows, want %d", rows(t, direct), test.rows)
				case conn.IsClosed() == test.usable:
					t.Errorf("the connection is closed: %v", conn.IsClosed())
				}
				p.eventually(t, 1)
				if !test.usable {
					return
				}
				if err := write(); err != nil {
					t.Errorf("afterwards: %v", err)
				}
				if got := rows(t, direct); got != test.rows+1 {
					t.Errorf("%d rows afterwards, want %d", got, test.rows+1)
				}
			})
		}
		t.Run("mariadb/"+test.name, func(t *testing.T) { mysqlAction(t, test.does, test.at, test.code, test.ok, test.rows) })
		t.Run("mysql/"+test.name, func(t *testing.T) { mysqlAction(t, test.does, test.at, test.code, test.ok, test.rows) })
	}
}

func mysqlAction(t *testing.T, does wireproxy.Action, at func(wireproxy.Frame) bool, code string, ok bool, want int) {
	dsn := testdb.MySQL(t)
	direct := openMySQL(t, dsn)
	if _, err := direct.Exec(`CREATE TABLE effects (n INT)`); err != nil {
		t.Fatal(err)
	}
	p := &plan{}
	through, _ := wireproxy.ThroughMySQL(t, dsn, wireproxy.Config{Decide: p.decide, Recycle: 50})
	db := openMySQL(t, through)
	db.SetMaxOpenConns(1)
	write := func() error {
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if _, err := tx.Exec(insert); err != nil {
			return err
		}
		return tx.Commit()
	}
	if err := db.Ping(); err != nil {
		t.Fatal(err)
	}
	number := uint16(0)
	if code != "" {
		does.Code, number = "1205", 1205
	}
	p.next(does, at)
	err := write()
	my, _ := errors.AsType[*mysql.MySQLError](err)
	switch {
	case !p.fired():
		t.Fatal("the action was not reached")
	case (err == nil) != ok, number != 0 && (my == nil || my.Number != number):
		t.Errorf("the error is %v", err)
	case mysqlRows(t, direct) != want:
		t.Errorf("%d rows, want %d", mysqlRows(t, direct), want)
	}
	p.eventually(t, 1)
	if err := write(); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	if got := mysqlRows(t, direct); got != want+1 {
		t.Errorf("%d rows afterwards, want %d", got, want+1)
	}
}

// Frames are numbered in both directions, and belong to their statements.
func TestFrames(t *testing.T) {
	p := &plan{}
	through, proxy := wireproxy.ThroughPostgres(t, testdb.Postgres(t), wireproxy.Config{Decide: p.decide})
	conn := connect(t, through)
	proxy.Arm()
	p.next(wireproxy.Action{}, nil)
	exec(t, conn, "BEGIN")
	if err := modes["extended"](t.Context(), conn.PgConn(), "COMMIT"); err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	commits, answers := 0, 0
	for i, f := range p.frames {
		switch {
		case f.N != i+1:
			t.Errorf("frame %d has number %d", i+1, f.N)
		case f.Kind == "" || f.Statement == "":
			t.Errorf("%+v belongs to nothing", f)
		case f.Commit && f.FromServer:
			answers++
		case f.Commit:
			commits++
		}
	}
	if len(p.frames) < 10 || commits < 4 || answers < 4 {
		t.Errorf("%d frames, %d of COMMIT, %d answers to it: %v", len(p.frames), commits, answers, p.frames)
	}
}

// The next client gets the session of the last one, and nothing that the last one has left.
func TestRecycle(t *testing.T) {
	dsn := testdb.Schema(t, testdb.Postgres(t))
	direct := connect(t, dsn)
	exec(t, direct, `CREATE TABLE effects (n int)`)
	through, _ := wireproxy.ThroughPostgres(t, dsn, wireproxy.Config{Recycle: 50})
	backend := func(conn *pgx.Conn) (pid int) {
		if err := conn.QueryRow(t.Context(), `SELECT pg_backend_pid()`).Scan(&pid); err != nil {
			t.Fatal(err)
		}
		if pid != int(conn.PgConn().PID()) {
			t.Errorf("the process is %d, and the client was told %d", pid, conn.PgConn().PID())
		}
		return pid
	}
	first, err := pgx.Connect(t.Context(), through)
	if err != nil {
		t.Fatal(err)
	}
	pid := backend(first)
	for _, q := range []string{
		"SET lock_timeout = 123", "CREATE TEMP TABLE effects (n int)", "SELECT pg_advisory_lock(1)", "BEGIN",
		"INSERT INTO effects VALUES (1)",
	} {
		exec(t, first, q)
	}
	stale := first.PgConn()
	if err := first.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	var next *pgx.Conn
	for began := time.Now(); next == nil; { // the proxy resets the session after the client is gone
		conn := connect(t, through)
		if backend(conn) == pid {
			next = conn
		} else if time.Since(began) > time.Minute {
			t.Fatal("no client got the session")
		}
	}
	var left string
	if err := next.QueryRow(t.Context(), `SELECT current_setting('lock_timeout') || ' ' || pg_my_temp_schema()::regnamespace::text
		|| ' ' || (SELECT count(*) FROM pg_class WHERE relnamespace = pg_my_temp_schema())
		|| ' ' || (SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory')`).Scan(&left); err != nil {
		t.Fatal(err)
	}
	if left[:2] != "0 " || left[len(left)-4:] != " 0 0" {
		t.Errorf("the last client left %q", left)
	}
	if err := stale.CancelRequest(t.Context()); err != nil {
		t.Logf("cancel: %v", err) // the proxy closes the connection
	}
	if _, err := next.Exec(t.Context(), `SELECT pg_sleep(0.3)`); err != nil {
		t.Errorf("the request of the last client cancelled the next one's statement: %v", err)
	}
}

// A client's own CancelRequest reaches its session.
func TestCancel(t *testing.T) {
	through, _ := wireproxy.ThroughPostgres(t, testdb.Postgres(t), wireproxy.Config{Recycle: 50})
	conn := connect(t, through)
	cancelled := make(chan error, 1)
	timer := time.AfterFunc(100*time.Millisecond, func() { cancelled <- conn.PgConn().CancelRequest(context.WithoutCancel(t.Context())) })
	defer timer.Stop()
	_, err := conn.Exec(t.Context(), `SELECT pg_sleep(60)`)
	if pg, ok := errors.AsType[*pgconn.PgError](err); !ok || pg.Code != "57014" {
		t.Errorf("the error is %v", err)
	}
	if err := <-cancelled; err != nil {
		t.Error(err)
	}
}

// MySQL's sessions are recycled too.
func TestRecycleMySQL(t *testing.T) {
	for _, name := range []string{"mariadb", "mysql"} {
		t.Run(name, func(t *testing.T) {
			through, _ := wireproxy.ThroughMySQL(t, testdb.MySQL(t), wireproxy.Config{Recycle: 50})
			session := func() (id int, variable sql.NullString) {
				db := openMySQL(t, through)
				defer db.Close()
				db.SetMaxOpenConns(1)
				if err := db.QueryRow(`SELECT CONNECTION_ID(), @left`).Scan(&id, &variable); err != nil {
					t.Fatal(err)
				}
				if _, err := db.Exec(`SET @left = 'something'`); err != nil {
					t.Fatal(err)
				}
				return id, variable
			}
			first, _ := session()
			for began := time.Now(); ; {
				next, left := session()
				if left.Valid {
					t.Errorf("the last client left %q", left.String)
				}
				if next == first {
					return
				}
				if time.Since(began) > time.Minute {
					t.Fatal("no client got the session")
				}
			}
		})
	}
}
