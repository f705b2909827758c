package deduptest

import (
	"strings"
	"testing"

	"github.com/txonce/txonce/dedup/driver"
)

// positionCases are about how far the messages of a source are handled. A store without driver.Positions fails them.

func positionsMany[TTx any](t *testing.T, e *env[TTx]) {
	p := positionsOf(t, e.node(t))
	const n = 1100
	var history int64
	moves := make([]driver.PositionMove, n)
	for i := range moves {
		id := partition(int32(n - i)) //nolint:gosec // small
		history = p.set(t, id, driver.Position{Epoch: 1})
		moves[i] = driver.PositionMove{PositionID: id, Epoch: 1, Next: int64(i)}
	}
	moves[7].Epoch, moves[n-1].Partition = 2, n+1
	left := p.move(t, history, moves...)
	if missing, isLeft := left[n-1]; len(left) != 2 || left[7] == nil || left[7].Partition != n-7 || !isLeft || missing != nil {
		t.Errorf("left %v, want the moves 7 and %d", left, n-1)
	}
	rows := p.list(t, consumer)
	if len(rows) != n {
		t.Fatalf("%d positions, want %d", len(rows), n)
	}
	for i, row := range rows {
		want := int64(n - i - 1)
		if want == 7 || want == n-1 {
			want = 0
		}
		if row.Partition != int32(i)+1 || row.Next != want { //nolint:gosec // small
			t.Fatalf("row %d is partition %d at %d, want them in order, and %d", i, row.Partition, row.Next, want)
		}
	}
}

func positionNames[TTx any](t *testing.T, e *env[TTx]) {
	p := positionsOf(t, e.node(t))
	odd := []string{
		"a", "A", "a ", " a", "ä", "a\u0308", "'", `"`, "`", `\`, "%", "_", "$1", "?", ":x", "@a", "a\n", "\t", "{a}", "<&>",
		"日本", "🙂", "\u2028", "\ufeff", "null", "0", "0x41", "--", "/*", strings.Repeat("ü", 127),
	}
	long := strings.Repeat("🙂", 256)
	ids := []driver.PositionID{{Consumer: strings.Repeat("c", 255), Source: long, Partition: 1<<31 - 1}}
	for _, name := range odd {
		ids = append(ids, driver.PositionID{Consumer: name, Source: "s"}, driver.PositionID{Consumer: "c", Source: name},
			driver.PositionID{Consumer: "c", Source: name, Partition: -1})
	}
	var history int64
	moves := make([]driver.PositionMove, len(ids))
	for i, id := range ids {
		history = p.change(t, id, func(now *driver.Position) (*driver.Position, error) {
			if now != nil {
				t.Errorf("%q has the row of %q", id, now.PositionID)
			}
			return &driver.Position{Log: strings.Repeat("l", 255), Epoch: 1}, nil
		})
		moves[i] = driver.PositionMove{PositionID: id, Epoch: 1, Next: int64(i)}
	}
	if left := p.move(t, history, moves...); len(left) != 0 {
		t.Errorf("left %+v, want none", left)
	}
	for i := range moves {
		moves[i].Epoch = 2
	}
	for i, row := range p.move(t, history, moves...) {
		if row == nil || row.PositionID != ids[i] || row.Next != int64(i) {
			t.Errorf("%q is at %+v, want %d", ids[i], row, i)
		}
	}
	if rows := p.list(t, ""); len(rows) != len(ids) {
		t.Errorf("%d positions, want %d", len(rows), len(ids))
	}
	for _, name := range odd {
		for _, row := range p.list(t, name) {
			if row.Consumer != name {
				t.Errorf("the positions of %q contain that of %q", name, row.Consumer)
			}
		}
	}
}

func positionNamesRefused[TTx any](t *testing.T, e *env[TTx]) {
	p := positionsOf(t, e.node(t))
	history := p.set(t, partition(0), driver.Position{})
	for what, id := range map[string]driver.PositionID{
		"consumer has 0 bytes":           {Source: "s"},
		"consumer has 256 bytes":         {Consumer: strings.Repeat("c", 256), Source: "s"},
		"source has 0 bytes":             {Consumer: "c"},
		"source has 1025 bytes":          {Consumer: "c", Source: strings.Repeat("s", 1025)},
		"source is not valid UTF-8":      {Consumer: "c", Source: "\xff"},
		"source contains a NUL byte":     {Consumer: "c", Source: "a\x00"},
		"consumer contains a NUL byte":   {Consumer: "\x00", Source: "s"},
		"consumer is not valid UTF-8":    {Consumer: "c\xc3", Source: "s"},
		"identity of the log has 256 by": {Consumer: "c", Source: "log"},
	} {
		_, err := p.ChangePosition(bounded(t), id, func(*driver.Position) (*driver.Position, error) {
			return &driver.Position{Log: strings.Repeat("l", 256)}, nil
		})
		refused(t, p, what, err)
		if id.Source == "log" {
			continue
		}
		_, err = p.MovePositions(bounded(t), history, []driver.PositionMove{{PositionID: id}})
		refused(t, p, what, err)
	}
	if rows := p.list(t, ""); len(rows) != 1 {
		t.Errorf("positions %v, want one", rows)
	}
}

func refused[TTx any](t *testing.T, p sourcePositions[TTx], what string, err error) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), what) || p.store.Retryable(err) {
		t.Errorf("%s: %v", what, err)
	}
}
