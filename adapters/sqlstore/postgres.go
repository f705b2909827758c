package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/claims"
	"github.com/txonce/txonce/internal/debounce"
	"github.com/txonce/txonce/internal/dialect"
)

// postgres is the database of dialect.Postgres.
type postgres struct {
	sql      dialect.Postgres
	box      postgresOutbox
	shared   statements
	cfg      Config
	wait     string       // InFlightWait as lock_timeout
	flush    atomic.Bool  // a duplicate must write WAL, see dialect.Postgres.FlushDuplicate
	shards   atomic.Int64 // see shardsIn; 0: not known yet
	notifier debounce.Caller
	spare    spare

	poolerWithin time.Duration // see there
}

func newPostgres(cfg Config) (database, error) {
	q := dialect.NewPostgres(cfg.Schema)
	d := &postgres{sql: q, box: newPostgresOutbox(cfg.Schema), cfg: cfg, poolerWithin: poolerWithin, wait: fmt.Sprintf("%dms", cfg.InFlightWait.Milliseconds()), shared: statements{
		Existing: q.Existing, Forgotten: q.Forgotten, Windows: q.Windows, Forget: q.Forget, SaveResult: q.SaveResult, Lookup: q.Lookup,
		UseWindow: q.UseWindow, SchemaVersion: q.SchemaVersion, Park: q.Park, Take: q.Take, Letters: q.Letters,
	}}
	var err error
	d.spare, err = newSpare(cfg)
	return d, err
}

func (d *postgres) statements() *statements { return &d.shared }

func (d *postgres) enter(ctx context.Context) (func(), error) { return d.spare.enter(ctx) }

func (d *postgres) begin(_, end context.Context, conn *sql.Conn, level sql.IsolationLevel) (*sql.Tx, error) {
	if level == sql.LevelDefault {
		level = sql.LevelReadCommitted
	}
	return conn.BeginTx(end, &sql.TxOptions{Isolation: level})
}

func (d *postgres) commit(_ context.Context, tx *sql.Tx) error { return tx.Commit() }

func (d *postgres) restore(context.Context, *sql.Conn, bool) {} // what is set ends with the transaction

func (d *postgres) patiently(_ context.Context, f func() error) error { return f() }

// claim sends a claim and what follows every claim. lock_timeout counts per lock, so a batch has a limit for them all.
func (d *postgres) claim(ctx context.Context, c *claim, rows []claims.Row) error {
	err := d.insert(ctx, c, rows)
	if err != nil {
		return err
	}
	var restored, isolation string
	if err := c.readForgotten(c.tx.QueryRowContext(ctx, d.sql.AfterClaim), &restored, &c.xid, &isolation); err != nil {
		return err
	}
	c.snapshot = isolation != "read committed" && isolation != "read uncommitted"
	return nil
}

func (d *postgres) insert(ctx context.Context, c *claim, rows []claims.Row) error {
	if len(rows) == 1 {
		results, err := c.tx.QueryContext(ctx, d.sql.ClaimOne, d.row(rows[0], c.idleLimit)...)
		return c.readInserted(results, err)
	}
	limited, cancel := context.WithTimeout(ctx, d.cfg.InFlightWait+max(d.cfg.InFlightWait/4, 250*time.Millisecond))
	defer cancel()
	results, err := c.tx.QueryContext(limited, d.sql.Claim, d.columns(rows, c.idleLimit)...)
	err = c.readInserted(results, err)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return waited(ctx, d.cfg, err, len(rows))
	}
	return err
}

// settle makes duplicates as durable as the commits that they report.
func (d *postgres) settle(ctx context.Context, c *claim, duplicates bool) error {
	if !duplicates || !d.flush.Load() {
		return nil
	}
	_, err := c.tx.ExecContext(ctx, d.sql.FlushDuplicate)
	return err
}

// The proof of a transaction is its id where it has one by then, and else a setting that ends with it.
const (
	xidProof     = `SELECT coalesce(pg_current_xact_id_if_assigned()::text, '')`
	setMark      = `SELECT set_config('txonce.transaction', clock_timestamp()::text, true)`
	settingProof = `SELECT coalesce(current_setting('txonce.transaction', true), '')`
	settingSays  = "setting "
)

func (d *postgres) mark(ctx context.Context, tx *sql.Tx, xid string) (proof string, err error) {
	if xid != "" {
		return xid, nil
	}
	err = tx.QueryRowContext(ctx, setMark).Scan(&proof)
	return settingSays + proof, err
}

func (d *postgres) prove(ctx context.Context, tx *sql.Tx, proof string) error {
	query := xidProof
	want, bySetting := strings.CutPrefix(proof, settingSays)
	if bySetting {
		query = settingProof
	}
	var got string
	err := tx.QueryRowContext(ctx, query).Scan(&got)
	switch {
	case d.aborted(err):
		return errAborted
	case err != nil:
		return err
	case got != want:
		return fmt.Errorf("%w: it is not the transaction that claimed; return nil to commit, an error to roll back", dedup.ErrTxEnded)
	}
	return nil
}

// useWindowsWithin registers on another connection, because a registration must not roll back with tx.
func (d *postgres) useWindowsWithin(ctx context.Context, s *Store, _ *sql.Tx, due []claims.Window) (map[claims.Window]time.Time, error) {
	return nil, s.useElsewhere(ctx, due)
}

func (d *postgres) useWindow(ctx context.Context, db queryer, w claims.Window) (time.Time, error) {
	return useWindow(ctx, db, d.sql.UseWindow, w)
}

func (d *postgres) saveResult(ctx context.Context, tx *sql.Tx, k [16]byte, result []byte) (bool, error) {
	return changed(tx.ExecContext(ctx, d.sql.SaveResult, d.key(k), result))
}

func (d *postgres) fits(int) error { return nil } // a value that is too long is refused by itself

func (d *postgres) inFlight(err error) bool { return sqlState(err) == "55P03" }

func (d *postgres) aborted(err error) bool { return sqlState(err) == "25P02" }

func (d *postgres) undefined(err error) bool {
	switch sqlState(err) {
	case "42P01", "42703", "3F000":
		return true
	}
	return false
}

// constraint: whatever a deferred constraint or trigger says at COMMIT is definite, and the handler's doing. What is
// retryable, and what no server said, leaves the outcome open.
func (d *postgres) constraint(err error) bool {
	state := sqlState(err)
	return state != "" && !dialect.RetryablePostgres(state)
}

func (d *postgres) retryable(err error) bool { return dialect.RetryablePostgres(sqlState(err)) }

func (d *postgres) refused(err error) bool { return dialect.RefusedPostgres(sqlState(err)) }

// sqlState finds the SQLSTATE in err, in the way that pgx and lib/pq tell it; empty: there is none.
func sqlState(err error) string {
	var e interface{ SQLState() string }
	if !errors.As(err, &e) {
		return ""
	}
	return e.SQLState()
}
