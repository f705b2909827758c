package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
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
	plain    postgresSQL // without the schema that locate finds, which may be finding it: only what names no table is sent from here
	sql      postgresSQL
	box      postgresOutbox
	shared   statements
	cfg      Config
	wait     string       // InFlightWait as lock_timeout
	shards   atomic.Int64 // see shardsIn; 0: not known yet
	notifier debounce.Caller
	spare    spare

	poolerWithin time.Duration // see there
}

type postgresSQL struct {
	dialect.Postgres
	dialect.PostgresSession
}

func newPostgres(cfg Config) (database, error) {
	d := &postgres{cfg: cfg, plain: postgresSQL{dialect.NewPostgres(""), dialect.NewPostgresSession()}, poolerWithin: poolerWithin, wait: fmt.Sprintf("%dms", cfg.InFlightWait.Milliseconds())}
	d.name(cfg.Schema)
	var err error
	d.spare, err = newSpare(cfg)
	return d, err
}

func (d *postgres) locate(ctx context.Context, q queryer) (schema string, err error) {
	err = q.QueryRowContext(ctx, d.plain.Locate).Scan(&schema)
	return schema, err
}

func (d *postgres) name(schema string) {
	q := dialect.NewPostgres(schema)
	d.sql, d.box = postgresSQL{q, dialect.NewPostgresSession()}, newPostgresOutbox(schema)
	d.shared = statements{
		Existing: q.Existing, Forgotten: q.Forgotten, Windows: q.Windows, Forget: q.Forget, SaveResult: q.SaveResult, Lookup: q.Lookup,
		LockSources: q.LockSources, Sources: q.Sources, AddSource: q.AddSource,
		UseWindow: q.UseWindow, SchemaVersion: q.SchemaVersion, SchemaTables: q.SchemaTables, Park: q.Park, Take: q.Take, Letters: q.Letters,
	}
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

// restore asks for the settings where prove saw others than the claim did, for the handler may have set them for its transaction
// alone. A rollback undoes all that is set.
func (d *postgres) restore(ctx context.Context, t *session) {
	if t.changed && !t.spoilt {
		var settings string
		err := t.conn.QueryRowContext(ctx, d.sql.SessionSettings).Scan(&settings)
		t.spoilt = err != nil || settings != t.claim.settings
	}
	if t.spoilt {
		discard(t.conn)
	}
}

func (d *postgres) patiently(_ context.Context, f func() error) error { return f() }

// claim sends a claim and what follows every claim. lock_timeout counts per lock, so a batch has a limit for them all.
func (d *postgres) claim(ctx context.Context, c *claim, rows []claims.Row) error {
	err := d.insert(ctx, c, rows)
	if err != nil {
		return err
	}
	var restored, isolation string
	err = c.readForgotten(c.tx.QueryRowContext(ctx, d.sql.AfterClaim), &restored, &c.xid, &isolation, &c.standbys, &c.settings)
	if err != nil {
		return err
	}
	c.snapshot = isolation != "read committed" && isolation != "read uncommitted"
	if sync := d.synchronous(c.settings); !d.cfg.AllowAsyncCommit && (sync == "off" || sync == "local" && c.standbys) {
		return errAsync(sync)
	}
	return nil
}

func (d *postgres) insert(ctx context.Context, c *claim, rows []claims.Row) error {
	wait := d.wait
	if short, is := dedup.ClaimWait(ctx, d.cfg.InFlightWait); is {
		wait = fmt.Sprintf("%dms", max(short.Milliseconds(), 1))
	}
	if len(rows) == 1 {
		results, err := c.tx.QueryContext(ctx, d.sql.ClaimOne, d.row(rows[0], c.idleLimit, wait)...)
		return d.held(ctx, c.readInserted(results, err))
	}
	limited, cancel := context.WithTimeout(ctx, d.cfg.InFlightWait+max(d.cfg.InFlightWait/4, 250*time.Millisecond))
	defer cancel()
	results, err := c.tx.QueryContext(limited, d.sql.Claim, d.columns(rows, c.idleLimit, wait)...)
	err = c.readInserted(results, err)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return waited(ctx, d.cfg, err, len(rows))
	}
	return d.held(ctx, err)
}

// held makes an error of a claim an ErrInFlight when a limit of the session for statements or transactions, shorter than
// InFlightWait, has ended the claim. A claim takes that long only when it waits for a key.
func (d *postgres) held(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}
	switch sqlState(err) {
	case "57014":
		return fmt.Errorf("%w: the session's statement_timeout ended the wait: %w", dedup.ErrInFlight, err)
	case "25P04":
		return fmt.Errorf("%w: the session's transaction_timeout ended the wait: %w", dedup.ErrInFlight, err)
	}
	return err
}

func (d *postgres) flush(ctx context.Context, c *claim) error {
	if !c.standbys {
		return nil
	}
	_, err := c.tx.ExecContext(ctx, d.sql.FlushDuplicate)
	return err
}

// The proof of a transaction is its id where it has one by then, and else a setting that ends with it.
const settingSays = "setting "

func (d *postgres) mark(ctx context.Context, t *session) error {
	if t.claim.xid != "" {
		t.proof = t.claim.xid
		return nil
	}
	err := t.tx.QueryRowContext(ctx, d.sql.Mark).Scan(&t.proof, &t.claim.settings)
	t.proof = settingSays + t.proof
	return err
}

// prove also has the transaction commit as durably as it began, and notes whether the session's settings are as they were.
func (d *postgres) prove(ctx context.Context, t *session) error {
	query := d.sql.ProofByID
	want, bySetting := strings.CutPrefix(t.proof, settingSays)
	if bySetting {
		query = d.sql.ProofByMark
	}
	var got, settings string
	err := t.tx.QueryRowContext(ctx, query).Scan(&got, &settings)
	switch {
	case d.aborted(err):
		return errSwallowed
	case err != nil:
		return err
	case got != want:
		return fmt.Errorf("%w: it is not the transaction that claimed; return nil to commit, an error to roll back", dedup.ErrTxEnded)
	}
	t.changed = settings != t.claim.settings
	if sync := d.synchronous(t.claim.settings); t.changed && d.synchronous(settings) != sync {
		_, err = t.tx.ExecContext(ctx, d.sql.Synchronous, sync)
	}
	return err
}

func (d *postgres) verify(ctx context.Context, t *session) error { return d.prove(ctx, t) }

// synchronous returns synchronous_commit, with which the settings of a session begin.
func (d *postgres) synchronous(settings string) string {
	sync, _, _ := strings.Cut(settings, " ")
	return sync
}

func (d *postgres) stands(ctx context.Context, q queryer, c *claim) (stands bool, err error) {
	err = q.QueryRowContext(ctx, d.sql.Committed, c.xid).Scan(&stands)
	return stands, err
}

func (d *postgres) committed(ctx context.Context, tx *sql.Tx, c *claim) (bool, error) {
	return d.stands(ctx, tx, c)
}

func (d *postgres) writesEnd(context.Context, *session) bool { return false } // each statement is then committed by itself

func (d *postgres) inProgress(ctx context.Context, c *claim) (running bool, err error) {
	err = d.cfg.DB.QueryRowContext(ctx, d.sql.InProgress, c.xid).Scan(&running)
	return running, err
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

// constraint: whatever a deferred constraint or trigger says at COMMIT is definite, and the handler's doing, under whatever
// SQLSTATE. What the server says of itself, and what no server said, leaves the outcome open.
func (d *postgres) constraint(err error) bool {
	state := sqlState(err)
	if len(state) != 5 {
		return false
	}
	switch state[:2] {
	case "08", "40", "53", "57", "58", "XX":
		return false
	}
	return state != "55P03"
}

func (d *postgres) retryable(err error) bool {
	return dialect.RetryablePostgres(sqlState(err)) || stalePlan(err) || sqlState(err) == "3F000" // a schema is missing
}

// elsewhere: a statement that fails breaks its transaction, which only a savepoint heals.
func (d *postgres) elsewhere(err error) bool { return sqlState(err) != "" }

func (d *postgres) mayEnd(error) bool { return false } // nothing ends a transaction but COMMIT and ROLLBACK

func (d *postgres) idled(err error) bool {
	state := sqlState(err)
	return state == "25P03" || state == "25P04" // of a transaction; the latter is transaction_timeout
}

// ambiguous: a deployment may have forgotten a table or a GRANT, or one branch of a handler may be wrong.
func (d *postgres) ambiguous(err error) bool {
	state := sqlState(err)
	return strings.HasPrefix(state, "42") || state == "3F000"
}

func (d *postgres) refused(err error) bool { return dialect.RefusedPostgres(sqlState(err)) }

// sqlState finds the SQLSTATE in err, in the way that pgx and lib/pq tell it; empty: there is none.
func sqlState(err error) string {
	var e interface{ SQLState() string }
	if !errors.As(err, &e) {
		return ""
	}
	return e.SQLState()
}

// stalePlan reports that a statement was prepared before a migration, and that its result has changed since. Drivers prepare it
// anew after this error. The SQLSTATE alone is also that of what PostgreSQL cannot do; the text is in the server's language.
func stalePlan(err error) bool {
	return sqlState(err) == "0A000" && walkErrors(err, func(err error) bool {
		v := reflect.Indirect(reflect.ValueOf(err))
		if v.Kind() != reflect.Struct {
			return false
		}
		routine := v.FieldByName("Routine")
		return routine.IsValid() && routine.Kind() == reflect.String && routine.String() == "RevalidateCachedQuery"
	})
}
