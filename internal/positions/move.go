package positions

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"slices"

	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/operator"
)

// move is a PositionMove as the statements read it.
type move struct {
	Number    int    `json:"i"` // in the list
	Consumer  string `json:"c"`
	Source    string `json:"s"`
	Partition int32  `json:"p"`
	Epoch     int64  `json:"e"`
	From      int64  `json:"f"`
	Next      int64  `json:"n"`
	Close     int    `json:"x"`

	place int // in the argument of MovePositions
}

// MovePositions implements driver.Positions.
func (k *Keeper) MovePositions(ctx context.Context, history int64, moves []driver.PositionMove) (
	left map[int]*driver.Position, err error,
) {
	if err := driver.ValidateMoves(moves); err != nil {
		return nil, err
	}
	// All claims that the caller relies on are noted by now.
	number, server := k.Seen.Last()
	if number == 0 || number != history {
		return nil, driver.ErrHistoryChanged
	}
	if len(moves) == 0 {
		return nil, nil
	}
	st, err := k.DB.Statements(ctx)
	if err != nil {
		return nil, err
	}
	ordered := order(moves, st.Positions.Hex)
	text, err := json.Marshal(ordered)
	if err != nil {
		return nil, err
	}
	changed := false
	err = k.DB.Single(ctx, "move positions", func(ctx context.Context, q operator.Queryer) error {
		left, changed = nil, false
		done, err := q.ExecContext(ctx, st.Positions.Move, string(text), server)
		if err != nil {
			return err
		}
		if n, err := done.RowsAffected(); err != nil || n == int64(len(moves)) {
			return err
		}
		left = map[int]*driver.Position{}
		err = k.each(ctx, q, st.Positions.Left, []any{string(text)}, func(p *driver.Position, place int) {
			m := &ordered[place]
			switch {
			case p == nil || p.Epoch != m.Epoch || p.Next < m.From || p.Next > m.Next:
				left[m.place] = p
			case p.Next != m.Next || p.Open && m.Close == 1: // nothing but another history keeps it from being moved
				changed = true
			}
		})
		now, _ := k.Seen.Last()
		changed = changed || now != history
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case changed:
		return nil, driver.ErrHistoryChanged
	}
	return left, nil
}

// order returns the moves in the order of their rows, so that two callers lock rows in one order.
func order(moves []driver.PositionMove, inHex bool) []move {
	ordered := make([]move, len(moves))
	for i, m := range moves {
		ordered[i] = move{
			Consumer: m.Consumer, Source: m.Source, Partition: m.Partition, Epoch: m.Epoch, From: m.From, Next: m.Next,
			Close: flag(m.Close), place: i,
		}
	}
	slices.SortFunc(ordered, func(a, b move) int {
		return cmp.Or(cmp.Compare(a.Consumer, b.Consumer), cmp.Compare(a.Source, b.Source),
			cmp.Compare(a.Partition, b.Partition))
	})
	for i := range ordered {
		ordered[i].Number = i
		if inHex {
			ordered[i].Consumer = hex.EncodeToString([]byte(ordered[i].Consumer))
			ordered[i].Source = hex.EncodeToString([]byte(ordered[i].Source))
		}
	}
	return ordered
}
