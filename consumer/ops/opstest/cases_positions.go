package opstest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/txonce/txonce/consumer/ops"
	dedupdriver "github.com/txonce/txonce/dedup/driver"
)

func positionCases[TTx any]() []testCase[TTx] {
	return []testCase[TTx]{
		{"positions of sources", testPositions[TTx]},
		{"commits that are lost of a source that cannot be read again", testLostPositions[TTx]},
		{"positions of many partitions", testManyPositions[TTx]},
	}
}

// The consumers of these cases: one of a case before that was not closed may still write rows of its own.
const (
	located, located2 = "located", "located too"
	losing            = "losing"
)

const ordersSource = "kafka C1, group billing, topic orders"

func testPositions[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	begun := positionsStatus(t, s.Operator()).Now
	set := func(consumer, source string, partition int32, p dedupdriver.Position) {
		t.Helper()
		setPosition(t, s, dedupdriver.PositionID{Consumer: consumer, Source: source, Partition: partition}, p)
	}
	went := func(from, lost, to int64) dedupdriver.Rewind {
		return dedupdriver.Rewind{At: time.Unix(1, 0), From: from, Lost: lost, To: to}
	}
	set(located, ordersSource, 0, dedupdriver.Position{Next: 90, Epoch: 3, Rewind: went(120, 80, 90)})
	pastMilliseconds(t, s) // the latest rewind is known on SQLite too
	set(located, ordersSource, 1, dedupdriver.Position{Next: 10, Epoch: 2, Suspect: 11, Tries: 2})
	set(located, ordersSource, 2, dedupdriver.Position{Next: 70, Epoch: 5, Rewind: went(100, 70, 70), Suspect: 70, Tries: 3})
	set(located, ordersSource, 3, dedupdriver.Position{Next: 7, Epoch: 1, Suspect: 7, Tries: 1}) // killed once says nothing
	set(located, "kafka C1, group billing, topic refunds", 0, dedupdriver.Position{Next: 5, Epoch: 1})
	set(located2, ordersSource, 4, dedupdriver.Position{Epoch: 1, Rewind: went(40, 50, 60)}) // all up to 60 were deleted

	status := positionsStatus(t, s.Operator())
	got := positionsOf(t, status, located)
	if len(got) != 2 {
		t.Fatalf("positions %+v", got)
	}
	orders, refunds := got[0], got[1]
	if orders.Source != ordersSource || orders.Partitions != 4 || orders.Suspects != 2 || orders.Rewound != 2 ||
		orders.Again != 60 || orders.Missing != 10 {
		t.Errorf("orders %+v", orders)
	}
	if orders.Oldest.Before(begun) || orders.Oldest.After(status.Now) {
		t.Errorf("oldest change %v, not between %v and %v", orders.Oldest, begun, status.Now)
	}
	if r := orders.Rewind; r == nil || r.Partition != 2 || r.From != 100 || r.Lost != 70 || r.To != 70 ||
		r.At.Before(begun) || r.At.After(status.Now) || r.Again() != 30 || r.Missing() != 0 {
		t.Errorf("the latest rewind is %+v", r)
	}
	if got := orders.Suspect; got == nil || *got != (ops.Suspect{Partition: 2, Offset: 70, Tries: 3}) {
		t.Errorf("suspect %+v", got)
	}
	if refunds.Partitions != 1 || refunds.Suspects+refunds.Rewound != 0 || refunds.Rewind != nil || refunds.Suspect != nil {
		t.Errorf("refunds %+v", refunds)
	}
	other := positionsOf(t, status, located2)
	if len(other) != 1 || other[0].Again != 0 || other[0].Missing != 10 || other[0].Rewind == nil {
		t.Errorf("another %+v", other)
	}
}

func testLostPositions[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	id := dedupdriver.PositionID{Consumer: losing, Source: dedupdriver.SourceAcknowledged}
	setPosition(t, s, id, dedupdriver.Position{Next: 12, Epoch: 1})
	id.Partition = 1
	setPosition(t, s, id, dedupdriver.Position{
		Next: 30, Epoch: 2, Log: "2026-11-29T08:00:01.500Z/2026-11-29T08:00:04.000Z",
		Rewind: dedupdriver.Rewind{At: time.Unix(1, 0), From: 30, Lost: 25, To: 30},
	})
	found := positionsOf(t, positionsStatus(t, s.Operator()), losing)
	if len(found) != 1 || found[0].Partitions != 2 || found[0].Rewound != 1 || found[0].Again != 0 ||
		found[0].Missing != 5 || found[0].Rewind == nil {
		t.Fatalf("%+v", found)
	}
	from := time.Date(2026, 11, 29, 8, 0, 1, 500_000_000, time.UTC)
	if r := found[0].Rewind; !r.LostFrom.Equal(from) || !r.LostUntil.Equal(from.Add(2500*time.Millisecond)) {
		t.Errorf("lost from %v to %v", r.LostFrom, r.LostUntil)
	}
}

func testManyPositions[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	const partitions = 200
	for i := range int32(partitions) {
		id := dedupdriver.PositionID{Consumer: located, Source: fmt.Sprint("topic ", i%4), Partition: i}
		setPosition(t, s, id, dedupdriver.Position{Next: int64(i), Epoch: 1, Suspect: int64(i), Tries: int(i)})
	}
	found := positionsOf(t, positionsStatus(t, s.Operator()), located)
	if len(found) != 4 {
		t.Fatalf("%d sources", len(found))
	}
	for i, p := range found {
		last := int32(partitions - 4 + i)
		if p.Partitions != partitions/4 || p.Suspect == nil || p.Suspect.Partition != last {
			t.Errorf("%+v, suspect %+v; want partition %d", p, p.Suspect, last)
		}
	}
}

func setPosition[TTx any](t *testing.T, s store[TTx], id dedupdriver.PositionID, p dedupdriver.Position) {
	t.Helper()
	positions, ok := s.Store.(dedupdriver.Positions)
	if !ok {
		t.Fatalf("%T is no driver.Positions", s.Store)
	}
	if _, err := positions.ChangePosition(bounded(t), id, func(*dedupdriver.Position) (*dedupdriver.Position, error) {
		return &p, nil
	}); err != nil {
		t.Fatal(err)
	}
}

// pastMilliseconds returns when the database's clock shows a later time: SQLite counts milliseconds.
func pastMilliseconds[TTx any](t *testing.T, s store[TTx]) {
	t.Helper()
	began := positionsStatus(t, s.Operator()).Now
	for !positionsStatus(t, s.Operator()).Now.After(began) {
	}
}

func positionsStatus(t *testing.T, s ops.Store) ops.Status {
	t.Helper()
	status, err := s.Status(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	return status
}

// positionsOf returns what the status says of one consumer.
func positionsOf(t *testing.T, status ops.Status, consumer string) []ops.SourcePositions {
	t.Helper()
	i := slices.IndexFunc(status.Consumers, func(c ops.ConsumerStatus) bool { return c.Name == consumer })
	if i < 0 {
		t.Fatalf("%s is missing: %+v", consumer, status.Consumers)
	}
	return status.Consumers[i].Positions
}
