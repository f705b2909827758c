package deduptest

import (
	"slices"
	"testing"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
)

// positionCases are about how far the messages of a source are handled. A store without driver.Positions fails them.

// sourcePositions is the driver.Positions of a node, with retries of what is Retryable.
type sourcePositions[TTx any] struct {
	store dedup.Store[TTx]
	driver.Positions
}

func positionsOf[TTx any](t *testing.T, s dedup.Store[TTx]) sourcePositions[TTx] {
	t.Helper()
	p, ok := s.(driver.Positions)
	hook(t, "driver.Positions", !ok)
	return sourcePositions[TTx]{s, p}
}

func (p sourcePositions[TTx]) change(t *testing.T, id driver.PositionID,
	change func(now *driver.Position) (*driver.Position, error),
) (history int64) {
	t.Helper()
	ctx := bounded(t)
	if err := retry(ctx, p.store, func() (err error) {
		history, err = p.ChangePosition(ctx, id, change)
		return err
	}); err != nil {
		t.Fatalf("ChangePosition(%v): %v", id, err)
	}
	return history
}

// set writes a position, whatever is there.
func (p sourcePositions[TTx]) set(t *testing.T, id driver.PositionID, to driver.Position) (history int64) {
	t.Helper()
	return p.change(t, id, func(*driver.Position) (*driver.Position, error) { return &to, nil })
}

func (p sourcePositions[TTx]) move(t *testing.T, history int64, moves ...driver.PositionMove) (
	left map[int]*driver.Position,
) {
	t.Helper()
	ctx := bounded(t)
	if err := retry(ctx, p.store, func() (err error) {
		left, err = p.MovePositions(ctx, history, moves)
		return err
	}); err != nil {
		t.Fatalf("MovePositions(%d moves): %v", len(moves), err)
	}
	return left
}

// read returns the position of id; nil: there is none.
func (p sourcePositions[TTx]) read(t *testing.T, id driver.PositionID) *driver.Position {
	t.Helper()
	for _, row := range p.list(t, id.Consumer) {
		if row.PositionID == id {
			return &row
		}
	}
	return nil
}

// list returns the rows of consumer, or those of all. In a schema that an earlier test has used, a consumer of that test
// may still write rows of acknowledged messages: they are left out.
func (p sourcePositions[TTx]) list(t *testing.T, consumer string) (rows []driver.Position) {
	t.Helper()
	ctx := bounded(t)
	if err := retry(ctx, p.store, func() (err error) {
		rows, err = p.ListPositions(ctx, consumer)
		return err
	}); err != nil {
		t.Fatalf("ListPositions(%q): %v", consumer, err)
	}
	return slices.DeleteFunc(rows, func(row driver.Position) bool { return row.Source == driver.SourceAcknowledged })
}

// want fails t unless the position of id is want, whatever its times are.
func (p sourcePositions[TTx]) want(t *testing.T, id driver.PositionID, want driver.Position) driver.Position {
	t.Helper()
	got := p.read(t, id)
	if got == nil {
		t.Fatalf("%v has no position, want %+v", id, want)
	}
	row := *got
	want.PositionID, want.Updated, want.Rewind.At = id, row.Updated, row.Rewind.At
	if row != want {
		t.Fatalf("the position is %+v, want %+v", row, want)
	}
	return row
}

const positionSource = "kafka cluster group topic"

func partition(n int32) driver.PositionID {
	return driver.PositionID{Consumer: consumer, Source: positionSource, Partition: n}
}
