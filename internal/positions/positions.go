// Package positions implements driver.Positions for all stores that have SQL. A store adds its connections, and notes
// in the History which server each claim has met.
package positions

import (
	"context"
	"database/sql"
	"errors"

	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/claims"
	"github.com/txonce/txonce/internal/dialect"
	"github.com/txonce/txonce/internal/operator"
	"github.com/txonce/txonce/internal/sqlrows"
)

// Database runs functions for a Keeper, and classifies their errors, of the work that what names.
type Database interface {
	// Statements returns the statements, after the tables were found.
	Statements(ctx context.Context) (*dialect.Operator, error)
	// Write runs f in a transaction at READ COMMITTED, which may be rolled back and run again.
	Write(ctx context.Context, what string, f func(ctx context.Context, q operator.Queryer) error) error
	// Single runs f on one connection, where each statement commits by itself. f may run again.
	Single(ctx context.Context, what string, f func(ctx context.Context, q operator.Queryer) error) error
}

// Keeper is the driver.Positions of a Store.
type Keeper struct {
	DB   Database
	Seen *claims.History // the Store notes each claim there
}

var _ driver.Positions = (*Keeper)(nil)

// History implements driver.Positions.
func (k *Keeper) History() int64 {
	number, _ := k.Seen.Last()
	return number
}

var (
	errNothing = errors.New("nothing is written")
	errAgain   = errors.New("other sessions insert and delete the row again and again")
)

// attempts limits how often ChangePosition finds no row, and then one that another session has inserted meanwhile.
const attempts = 5

// ChangePosition implements driver.Positions.
func (k *Keeper) ChangePosition(ctx context.Context, id driver.PositionID,
	change func(now *driver.Position) (*driver.Position, error),
) (history int64, err error) {
	if err := id.Validate(); err != nil {
		return 0, err
	}
	st, err := k.DB.Statements(ctx)
	if err != nil {
		return 0, err
	}
	var refused error
	for range attempts {
		err = k.DB.Write(ctx, "change a position", func(ctx context.Context, q operator.Queryer) error {
			now, err := lock(ctx, q, &st.Positions, id)
			if err != nil {
				return err
			}
			var server string
			if err := q.QueryRowContext(ctx, st.Positions.History).Scan(&server); err != nil {
				return err
			}
			history = k.Seen.Saw(server)
			var next *driver.Position
			if next, refused = change(clone(now)); refused == nil && next != nil {
				next = clone(next)
				next.PositionID = id
				refused = next.Validate()
			}
			if refused != nil || next == nil {
				return errNothing
			}
			return write(ctx, q, &st.Positions, id, now, next)
		})
		if !errors.Is(err, errAgain) {
			break
		}
	}
	if errors.Is(err, errNothing) {
		err = refused
	}
	return history, err
}

func clone(p *driver.Position) *driver.Position {
	if p == nil {
		return nil
	}
	c := *p
	return &c
}

// lock reads a row and locks it; nil: there is none.
func lock(ctx context.Context, q operator.Queryer, st *dialect.Positions, id driver.PositionID) (
	now *driver.Position, err error,
) {
	err = sqlrows.Each(ctx, q, st.Lock, []any{id.Consumer, id.Source, id.Partition}, func(rows *sql.Rows) error {
		var r row
		err := rows.Scan(r.dest()...)
		now = r.position()
		return err
	})
	return now, err
}

// What becomes of the columns of a rewind.
const (
	noRewind = iota
	sameRewind
	newRewind
)

func write(ctx context.Context, q operator.Queryer, st *dialect.Positions, id driver.PositionID,
	now, next *driver.Position,
) error {
	rewind, from, lost, to := noRewind, any(nil), any(nil), any(nil)
	if next.Rewind != (driver.Rewind{}) {
		rewind, from, lost, to = newRewind, next.Rewind.From, next.Rewind.Lost, next.Rewind.To
		if now != nil && same(now.Rewind, next.Rewind) {
			rewind = sameRewind
		}
	}
	statement := st.Rewrite
	if now == nil {
		statement = st.Write
	}
	done, err := q.ExecContext(ctx, statement, next.Log, next.Next, next.Epoch, flag(next.Open), next.Suspect, next.Tries,
		rewind, from, lost, to, id.Consumer, id.Source, id.Partition)
	if err != nil || now != nil {
		return err
	}
	if n, err := done.RowsAffected(); err != nil || n == 1 {
		return err
	}
	return errAgain
}

func same(a, b driver.Rewind) bool {
	return a.At.Equal(b.At) && a.From == b.From && a.Lost == b.Lost && a.To == b.To
}

func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}

// ListPositions implements driver.Positions.
func (k *Keeper) ListPositions(ctx context.Context, consumer string) (found []driver.Position, err error) {
	st, err := k.DB.Statements(ctx)
	if err != nil {
		return nil, err
	}
	err = k.DB.Single(ctx, "list positions", func(ctx context.Context, q operator.Queryer) error {
		found = nil
		return k.each(ctx, q, st.Positions.List, []any{consumer}, func(p *driver.Position, _ int) {
			if p != nil {
				found = append(found, *p)
			}
		})
	})
	return found, err
}

// errReadOnly keeps a caller from taking what a standby has not got yet for lost.
var errReadOnly = errors.New("the server accepts no writes, as a standby, and may lack the latest positions: connect to the primary")

// each notes the server, and calls f for each row of List or Left.
func (k *Keeper) each(ctx context.Context, q operator.Queryer, query string, args []any,
	f func(p *driver.Position, place int),
) error {
	return sqlrows.Each(ctx, q, query, args, func(rows *sql.Rows) error {
		var server string
		var readOnly bool
		var place int
		var r row
		if err := rows.Scan(append([]any{&server, &readOnly, &place}, r.dest()...)...); err != nil {
			return err
		}
		if readOnly {
			return errReadOnly
		}
		k.Seen.Saw(server)
		f(r.position(), place)
		return nil
	})
}
