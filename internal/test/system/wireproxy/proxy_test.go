package wireproxy_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib" // registers "pgx", which testdb takes

	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/internal/test/wireproxy"
)

func TestPostgres(t *testing.T) {
	for _, server := range []struct {
		name string
		dsn  func(testing.TB) string
	}{{"15", testdb.Postgres}, {"18", testdb.Postgres18}} {
		for _, commit := range []struct {
			name string
			send func(ctx context.Context, conn *pgconn.PgConn) error
		}{
			{"simple query", func(ctx context.Context, conn *pgconn.PgConn) error {
				_, err := conn.Exec(ctx, " COMMIT;").ReadAll()
				return err
			}},
			{"extended query", func(ctx context.Context, conn *pgconn.PgConn) error {
				return conn.ExecParams(ctx, "commit", nil, nil, nil, nil).Read().Err
			}},
			{"prepared statement", func(ctx context.Context, conn *pgconn.PgConn) error {
				if _, err := conn.Prepare(ctx, "c", "Commit work", nil); err != nil {
					return err
				}
				return conn.ExecPrepared(ctx, "c", nil, nil, nil).Read().Err
			}},
			{"pipeline", func(ctx context.Context, conn *pgconn.PgConn) error {
				p := conn.StartPipeline(ctx)
				p.SendQueryParams("commit", nil, nil, nil, nil)
				if err := p.Sync(); err != nil {
					return err
				}
				_, err := p.GetResults()
				return errors.Join(err, p.Close())
			}},
		} {
			for _, test := range []struct {
				fault      deduptest.Fault
				now, later int // rows
			}{
				{deduptest.CommitLost, 0, 0},
				{deduptest.AnswerLost, 1, 1},
				{deduptest.CommitLate, 0, 1},
			} {
				t.Run(server.name+"/"+commit.name+"/"+test.fault.String(), func(t *testing.T) {
					dsn := testdb.Schema(t, server.dsn(t))
					direct := connect(t, dsn)
					exec(t, direct, `CREATE TABLE effects (n int)`)

					conn := connect(t, wireproxy.Postgres(t, dsn, test.fault))
					exec(t, conn, `SELECT 'commit'`) // not a COMMIT
					exec(t, conn, `BEGIN`)
					exec(t, conn, `INSERT INTO effects VALUES (1)`)
					began := time.Now()
					err := commit.send(t.Context(), conn.PgConn())
					if err == nil {
						t.Fatal("COMMIT was answered")
					}
					rowsAfter(t, began, test.now, test.later, func() int { return rows(t, direct) })
				})
			}
		}
	}
}

// rowsAfter checks the rows at once, and again after a COMMIT that is delayed by deduptest.LateBy. On a busy machine
// the first check may come after that COMMIT, so it then accepts its rows.
func rowsAfter(t *testing.T, sent time.Time, now, later int, rows func() int) {
	t.Helper()
	if n := rows(); n != now && (n != later || time.Since(sent) < deduptest.LateBy) {
		t.Errorf("%d rows after the cut, want %d", n, now)
	}
	if later == now {
		return
	}
	for began := time.Now(); rows() != later; <-time.After(20 * time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatalf("%d rows long after %v, want %d", rows(), deduptest.LateBy, later)
		}
	}
}

func TestPostgresLetsTheRestPass(t *testing.T) {
	dsn := testdb.Schema(t, testdb.Postgres(t))
	through := wireproxy.Postgres(t, dsn, deduptest.CommitLost)
	exec(t, connect(t, dsn), `CREATE TABLE effects (n int)`)
	first := connect(t, through)
	exec(t, first, `BEGIN`)
	if _, err := first.Exec(t.Context(), `COMMIT`); err == nil {
		t.Fatal("the first COMMIT was answered")
	}
	for range 3 {
		conn := connect(t, through)
		tx, err := conn.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.CopyFrom(t.Context(), pgx.Identifier{"effects"}, []string{"n"},
			pgx.CopyFromRows([][]any{{1}, {2}})); err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := rows(t, connect(t, dsn)); n != 6 {
		t.Errorf("%d rows, want 6", n)
	}
}

func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.PgConn().Close(t.Context()) })
	return conn
}

func exec(t *testing.T, conn *pgx.Conn, sql string) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func rows(t *testing.T, conn *pgx.Conn) (n int) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), `SELECT count(*) FROM effects`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
