package deduptest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
)

// positionCases are about how far the messages of a source are handled. A store without driver.Positions fails them.
func positionCases[TTx any]() []testCase[TTx] {
	return []testCase[TTx]{
		{name: "a position is written and read as a whole", run: positionWritten[TTx]},
		{name: "a change of a position that fails writes nothing", run: positionUnchanged[TTx]},
		{name: "sessions that begin at once get different epochs", run: positionEpochs[TTx]},
		{name: "a position moves within the bounds of its session", run: positionMoves[TTx]},
		{name: "a move is not made after the history has changed", run: positionHistory[TTx]},
		{name: "each way to claim meets the server", run: positionHistoryOfClaims[TTx]},
		{name: "thousands of partitions move in one call", run: positionsMany[TTx]},
		{name: "positions of different names are different", run: positionNames[TTx]},
		{name: "a name that a database cannot store is refused", run: positionNamesRefused[TTx]},
		{name: "positions move while messages are handled", perIsolation: true, run: positionsBusy[TTx]},
	}
}

func positionWritten[TTx any](t *testing.T, e *env[TTx]) {
	a, b := positionsOf(t, e.node(t)), positionsOf(t, e.node(t))
	id := partition(3)
	if rows := a.list(t, ""); len(rows) != 0 {
		t.Fatalf("an empty database has positions: %v", rows)
	}
	first := driver.Position{Log: "topic-id", Next: 1 << 40, Epoch: 1, Open: true}
	history := a.change(t, id, func(now *driver.Position) (*driver.Position, error) {
		if now != nil {
			t.Errorf("a partition without a row has %+v", now)
		}
		return &first, nil
	})
	if history == 0 || history != a.History() {
		t.Errorf("ChangePosition has met history %d, and History is %d", history, a.History())
	}
	row := b.want(t, id, first)
	if row.Updated.IsZero() || !row.Rewind.At.IsZero() {
		t.Fatalf("times of the first row: updated %v, rewind %v", row.Updated, row.Rewind.At)
	}
	rewound := first
	rewound.Epoch, rewound.Suspect, rewound.Tries = 2, 77, 3
	rewound.Rewind = driver.Rewind{From: 9, Lost: 5, To: 6, At: time.Unix(1, 0)}
	b.change(t, id, func(now *driver.Position) (*driver.Position, error) {
		if now == nil || *now != row {
			t.Errorf("the row is %+v in the transaction, and was read as %+v", now, row)
		}
		return &rewound, nil
	})
	row = a.want(t, id, rewound)
	if since := row.Updated.Sub(row.Rewind.At); since < 0 || since > time.Second {
		t.Errorf("the rewind is of %v, want the time of the row, %v", row.Rewind.At, row.Updated)
	}
	at := row.Rewind.At
	a.change(t, id, func(now *driver.Position) (*driver.Position, error) {
		now.Open, now.Log = false, ""
		return now, nil
	})
	rewound.Open, rewound.Log = false, ""
	if row = b.want(t, id, rewound); !row.Rewind.At.Equal(at) {
		t.Errorf("a change of something else has moved the time of the rewind from %v to %v", at, row.Rewind.At)
	}
	b.change(t, id, func(now *driver.Position) (*driver.Position, error) {
		now.Rewind = driver.Rewind{}
		return now, nil
	})
	rewound.Rewind = driver.Rewind{}
	if row = a.want(t, id, rewound); !row.Rewind.At.IsZero() {
		t.Errorf("a rewind that was removed has the time %v", row.Rewind.At)
	}
}

func positionUnchanged[TTx any](t *testing.T, e *env[TTx]) {
	p := positionsOf(t, e.node(t))
	there, missing := partition(0), partition(1)
	p.set(t, there, driver.Position{Next: 10, Epoch: 1})
	refused := errors.New("refused")
	for _, id := range []driver.PositionID{there, missing} {
		if _, err := p.ChangePosition(bounded(t), id, func(now *driver.Position) (*driver.Position, error) {
			if now != nil {
				now.Next = 99
			}
			return &driver.Position{Next: 99}, refused
		}); !errors.Is(err, refused) || p.store.Retryable(err) {
			t.Errorf("ChangePosition = %v, want the error of change", err)
		}
		if history := p.change(t, id, func(now *driver.Position) (*driver.Position, error) {
			if now != nil {
				now.Next = 99
			}
			return nil, nil
		}); history != p.History() {
			t.Errorf("a change of nothing has met history %d, want %d", history, p.History())
		}
		func() {
			defer func() { _ = recover() }()
			_, _ = p.ChangePosition(bounded(t), id, func(*driver.Position) (*driver.Position, error) { panic("change") })
		}()
	}
	p.want(t, there, driver.Position{Next: 10, Epoch: 1})
	if rows := p.list(t, ""); len(rows) != 1 {
		t.Errorf("positions: %v, want one", rows)
	}
	p.set(t, missing, driver.Position{Next: 1}) // nothing is locked
}

func positionEpochs[TTx any](t *testing.T, e *env[TTx]) {
	nodes := []sourcePositions[TTx]{positionsOf(t, e.node(t)), positionsOf(t, e.node(t))}
	ctx := bounded(t)
	var mu sync.Mutex
	got := map[int64]bool{}
	const sessions = 12
	e.together(t, sessions, func(i int) error {
		node := nodes[i%2]
		var epoch int64
		err := retry(ctx, node.store, func() error {
			_, err := node.ChangePosition(ctx, partition(0), func(now *driver.Position) (*driver.Position, error) {
				epoch = 1
				if now != nil {
					epoch = now.Epoch + 1
				}
				return &driver.Position{Epoch: epoch, Open: true}, nil
			})
			return err
		})
		mu.Lock()
		defer mu.Unlock()
		got[epoch] = true
		return err
	})
	if len(got) != sessions || !got[1] || !got[sessions] {
		t.Errorf("%d sessions have the epochs %v", sessions, got)
	}
}

func positionMoves[TTx any](t *testing.T, e *env[TTx]) {
	p := positionsOf(t, e.node(t))
	now := driver.Position{Log: "log", Next: 10, Epoch: 3, Open: true, Suspect: 4, Tries: 1}
	history := p.set(t, partition(0), now)
	for _, step := range []struct {
		what string
		move driver.PositionMove
		left bool
		next int64
		open bool
	}{
		{"forward", driver.PositionMove{Epoch: 3, From: 10, Next: 15}, false, 15, true},
		{"again, as after a lost answer", driver.PositionMove{Epoch: 3, From: 10, Next: 15}, false, 15, true},
		{"nowhere", driver.PositionMove{Epoch: 3, From: 15, Next: 15}, false, 15, true},
		{"from more than the row has", driver.PositionMove{Epoch: 3, From: 16, Next: 20}, true, 15, true},
		{"to less than the row has", driver.PositionMove{Epoch: 3, From: 10, Next: 14}, true, 15, true},
		{"with an older epoch", driver.PositionMove{Epoch: 2, From: 15, Next: 20}, true, 15, true},
		{"with a newer epoch", driver.PositionMove{Epoch: 4, From: 15, Next: 20}, true, 15, true},
		{"at the end of another session", driver.PositionMove{Epoch: 2, From: 15, Next: 15, Close: true}, true, 15, true},
		{"at the end", driver.PositionMove{Epoch: 3, From: 15, Next: 21, Close: true}, false, 21, false},
		{"after the end", driver.PositionMove{Epoch: 3, From: 21, Next: 22}, false, 22, false},
	} {
		before := p.read(t, partition(0)).Updated
		step.move.PositionID = partition(0)
		left := p.move(t, history, step.move)
		now.Next, now.Open = step.next, step.open
		row := p.want(t, partition(0), now)
		if row.Updated.Before(before) {
			t.Errorf("%s: updated %v, before it %v", step.what, row.Updated, before)
		}
		reason, isLeft := left[0]
		if isLeft != step.left || isLeft && (reason == nil || *reason != row) {
			t.Errorf("%s: left %+v, want left: %v, with the row as it is: %+v", step.what, reason, step.left, row)
		}
	}
	p.set(t, partition(2), driver.Position{Next: 5, Epoch: 1})
	left := p.move(t, history,
		driver.PositionMove{PositionID: partition(2), Epoch: 1, From: 5, Next: 6},
		driver.PositionMove{PositionID: partition(1), Epoch: 1, Next: 6, Close: true},
		driver.PositionMove{PositionID: partition(0), Epoch: 2, From: 22, Next: 23},
	)
	if row, isLeft := left[1]; len(left) != 2 || !isLeft || row != nil || left[2] == nil || left[2].Next != 22 {
		t.Errorf("left %v, want the second without a row, and the third with its row", left)
	}
	if rows := p.list(t, ""); len(rows) != 2 || rows[1].Next != 6 {
		t.Errorf("positions %+v, want two: a row that is missing stays missing, and the others move", rows)
	}
	if left := p.move(t, history); len(left) != 0 {
		t.Errorf("no move, and %v left", left)
	}
	for what, moves := range map[string][]driver.PositionMove{
		"backward": {{PositionID: partition(0), Epoch: 3, From: 22, Next: 21}},
		"twice": {
			{PositionID: partition(0), Epoch: 3, From: 22, Next: 23}, {PositionID: partition(0), Epoch: 3, From: 22, Next: 24},
		},
	} {
		if _, err := p.MovePositions(bounded(t), history, moves); err == nil || p.store.Retryable(err) {
			t.Errorf("a move %s: %v, want an error that says so", what, err)
		}
	}
}

func positionHistory[TTx any](t *testing.T, e *env[TTx]) {
	p, other := positionsOf(t, e.node(t)), positionsOf(t, e.node(t))
	move := driver.PositionMove{PositionID: partition(0), Epoch: 1, Next: 5}
	if _, err := p.MovePositions(bounded(t), 0, []driver.PositionMove{move}); !errors.Is(err, driver.ErrHistoryChanged) {
		t.Errorf("a move of a Store that has met no server: %v, want ErrHistoryChanged", err)
	}
	history := p.set(t, partition(0), driver.Position{Epoch: 1})
	e.must(t, p.store, record("a"), dedup.First)
	if now := p.History(); now != history {
		t.Fatalf("History is %d after a claim on the same server, want %d", now, history)
	}
	for _, wrong := range []int64{0, history - 1, history + 1} {
		_, err := p.MovePositions(bounded(t), wrong, []driver.PositionMove{move})
		if !errors.Is(err, driver.ErrHistoryChanged) {
			t.Errorf("a move with history %d, and %d is met: %v, want ErrHistoryChanged", wrong, history, err)
		}
	}
	other.want(t, partition(0), driver.Position{Epoch: 1})
	p.move(t, history, move)
	other.want(t, partition(0), driver.Position{Epoch: 1, Next: 5})
}

// positionHistoryOfClaims: a node that has met no server has the history 0.
func positionHistoryOfClaims[TTx any](t *testing.T, e *env[TTx]) {
	first := e.node(t)
	var known []dedup.Record
	for _, id := range []string{"a", "b", "c"} {
		known = append(known, record(id))
		e.must(t, first, record(id), dedup.First)
	}
	again := slices.Clone(known)
	for i := range again {
		again[i].Redelivered = true
	}
	inTx := func(recs ...dedup.Record) func(ctx context.Context, s dedup.Store[TTx]) error {
		return func(ctx context.Context, s dedup.Store[TTx]) error {
			return s.InTx(ctx, recs, func(TTx, []dedup.Claim) error { return nil })
		}
	}
	for name, claim := range map[string]func(ctx context.Context, s dedup.Store[TTx]) error{
		"a new key":               inTx(record("new")),
		"new keys":                inTx(record("new 1"), record("new 2")),
		"a known key":             inTx(known[0]),
		"known keys":              inTx(known...),
		"a new key among known":   inTx(append(slices.Clone(known), record("new 3"))...),
		"a redelivered key":       inTx(again[0]),
		"redelivered keys":        inTx(again...),
		"a redelivered new key":   inTx(dedup.Record{Key: record("new 4").Key, Redelivered: true}),
		"in somebody's own":       e.claimIn(record("new 5")),
		"in somebody's own again": e.claimIn(known[0]),
	} {
		t.Run(name, func(t *testing.T) {
			p := positionsOf(t, e.node(t))
			if n := p.History(); n != 0 {
				t.Fatalf("History is %d before the first claim, want 0", n)
			}
			ctx := bounded(t)
			if err := retry(ctx, p.store, func() error { return claim(ctx, p.store) }); err != nil {
				t.Fatal(err)
			}
			if n := p.History(); n != 1 {
				t.Errorf("History is %d after a claim, want 1", n)
			}
		})
	}
}

// claimIn claims in a transaction that the store does not own.
func (e *env[TTx]) claimIn(r dedup.Record) func(ctx context.Context, s dedup.Store[TTx]) error {
	return func(ctx context.Context, s dedup.Store[TTx]) error {
		return e.Tx(ctx, e.options(), func(tx TTx) error {
			_, err := s.Claim(ctx, tx, []dedup.Record{r})
			return err
		})
	}
}
