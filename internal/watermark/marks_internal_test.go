package watermark

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// The watermark is valid for one server since its start, and while the sequence only grows.
func TestSequenceIsOutdated(t *testing.T) {
	for _, test := range []struct {
		name         string
		server, last int64
		want         bool
	}{
		{"nothing happened", 1, 100, false},
		{"more was enqueued", 1, 300, false},
		{"the sequence has stepped back", 1, 99, true},
		{"another server, and the sequence above the watermark", 2, 300, true},
	} {
		var s sequence
		if s.outdated(1, 7) {
			t.Error("a new watermark is outdated")
		}
		s.move(1, 100, []string{"writer"})
		if got := s.outdated(test.server, test.last); got != test.want {
			t.Errorf("%s: outdated = %v", test.name, got)
		}
	}
}

// The watermark waits for each transaction that was writing when the sequence was read, and for no later one.
func TestSequenceWaitsForWriters(t *testing.T) {
	var s sequence
	for i, step := range []struct {
		last    int64
		writers []string
		passed  int64
		behind  bool
	}{
		{10, nil, 10, false},
		{20, []string{"a", "b"}, 10, true},
		{30, []string{"b", "c"}, 10, true}, // b has been writing since 20
		{40, []string{"c"}, 20, true},      // c may write up to 40
		{50, []string{"d"}, 40, true},
		{60, nil, 60, false},
	} {
		s.move(1, step.last, step.writers)
		if s.passed != step.passed || s.behind() != step.behind {
			t.Errorf("step %d: passed %d, behind %v, want %d, %v", i, s.passed, s.behind(), step.passed, step.behind)
		}
	}
}

// shard is the one shard of most tests, and its token.
const shard, token = 3, 7

func begin(m *Marks) *Poll { return m.Begin([]int16{shard}, []int64{token}) }

// at returns a session whose low is low, above all of which the watermark is at passed.
func at(low, passed int64) *Marks {
	m := &Marks{}
	m.Move(context.Background(), 1, low-1, nil)
	m.End(begin(m), true)
	m.Move(context.Background(), 1, passed, nil)
	return m
}

func TestMarksOfAPoll(t *testing.T) {
	ctx := t.Context()
	for _, tt := range []struct {
		name string
		poll func(m *Marks, p *Poll) // of a shard whose low is 50, while the watermark is 100
		all  bool
		want int64
	}{
		{"the shard is empty", func(*Marks, *Poll) {}, true, 101},
		{"the shard was read and is empty", func(_ *Marks, p *Poll) { p.seen[shard] = nothing(0, false) }, false, 101},
		{"a limit may have cut off its first row", func(*Marks, *Poll) {}, false, 50},
		{"only a later row was read", func(_ *Marks, p *Poll) { p.Row(Row{Shard: shard, Seq: 80, N: 2}) }, true, 50},
		{"its first row is below the watermark", func(_ *Marks, p *Poll) { p.Row(Row{Shard: shard, Seq: 70, N: 1, Returned: 0}) }, false, 70},
		{"and a later row", func(_ *Marks, p *Poll) {
			p.Row(Row{Shard: shard, Seq: 70, N: 1, Returned: 0})
			p.Row(Row{Shard: shard, Seq: 80, N: 2})
		}, false, 70},
		{"its first row is above the watermark", func(_ *Marks, p *Poll) { p.Row(Row{Shard: shard, Seq: 170, N: 1, Returned: 0}) }, false, 101},
		{
			"messages have returned", func(_ *Marks, p *Poll) { p.Row(Row{Shard: shard, Seq: 70, N: 1, Returned: 1}) },
			true, 0,
		},
		{"messages have returned and are gone", func(_ *Marks, p *Poll) { p.seen[shard] = nothing(1, false) }, true, 0},
		{"another poll has noticed that messages have returned", func(m *Marks, _ *Poll) {
			other := begin(m)
			other.Row(Row{Shard: shard, Seq: 20, N: 1, Returned: 1})
			m.End(other, true)
		}, true, 0},
		{
			"the session has a new token since", func(m *Marks, _ *Poll) { m.Begin([]int16{shard}, []int64{token + 1}) },
			true, 0,
		},
		{"the session has learned of a new token since", func(m *Marks, _ *Poll) { m.Hold(map[int]int64{shard: token + 1}, nil) }, true, 0},
		{"Renew has found that messages have returned", func(m *Marks, _ *Poll) { m.Hold(map[int]int64{shard: token}, map[int]int64{shard: 1}) }, true, 0},
		{
			"Renew has found nothing new", func(m *Marks, _ *Poll) { m.Hold(map[int]int64{shard: token}, nil) },
			true, 101,
		},
		{"the session has lost the shard", func(m *Marks, _ *Poll) { m.Hold(nil, nil) }, true, 0},
		{
			"the watermark has moved since the poll began", func(m *Marks, _ *Poll) { m.Move(ctx, 1, 200, nil) },
			true, 101,
		},
		{"the server was restarted", func(m *Marks, _ *Poll) { m.Notice(ctx, 2, 300) }, true, 0},
		{"the sequence was set back", func(m *Marks, _ *Poll) { m.Notice(ctx, 1, 99) }, true, 0},
	} {
		m := at(50, 100)
		p := begin(m)
		if p.Lows[0] != 50 {
			t.Fatalf("the low is %d", p.Lows[0])
		}
		tt.poll(m, p)
		m.End(p, tt.all)
		if got := m.lows[shard].seq; got != tt.want {
			t.Errorf("%s: the low is %d, want %d", tt.name, got, tt.want)
		}
	}
}

// A check finds a message below the low of each shard within 30 calls. What it finds drops all lows, unless they were
// dropped since.
func TestMarksAreChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		warned := 0
		m := at(50, 100)
		m.Warn = func(context.Context, ...any) { warned++ }
		shards, tokens := []int16{1, 2, shard}, []int64{token, token, token}
		next := func() (c Check) {
			for range checkCalls {
				if c = m.NextCheck(shards, tokens); len(c.Shards) > 0 {
					break
				}
			}
			return c
		}
		c := next()
		if !slices.Equal(c.Shards, []int16{shard}) || c.Lows[0] != 50 {
			t.Fatalf("the check is of %v below %v", c.Shards, c.Lows)
		}
		<-time.After(time.Second)
		m.Checked(t.Context(), c, nil)
		if m.lows[shard].seq != 50 || warned > 0 {
			t.Errorf("a check without result has set the low to %d", m.lows[shard].seq)
		}
		if c := next(); len(c.Shards) > 0 {
			t.Error("after a slow check the next one comes at once")
		}
		<-time.After(checkCooldown * time.Second)
		c = next()
		m.Notice(t.Context(), 2, 300)
		m.Move(t.Context(), 2, 300, nil)
		m.End(begin(m), true)
		m.Checked(t.Context(), c, []int16{shard})
		if m.lows[shard].seq != 301 {
			t.Errorf("the check of another state has set the low to %d", m.lows[shard].seq)
		}
		m.Checked(t.Context(), next(), []int16{shard})
		if m.lows[shard].seq != 0 || warned != 1 {
			t.Errorf("the low is %d after a row below it was found, with %d warnings", m.lows[shard].seq, warned)
		}
	})
}

// The watermark is moved when many messages were leased, or none for some time.
func TestMarksAreDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := at(50, 100)
		m.Moving()
		m.Leased(manyLeased)
		if m.Due() {
			t.Error("due again at once")
		}
		<-time.After(manyLeasedPer)
		if !m.Due() || !m.Behind() {
			t.Error("not due after many messages")
		}
		m.Moving()
		<-time.After(time.Minute)
		if m.Due() || m.Behind() {
			t.Error("due without messages")
		}
		m.Leased(1)
		if m.Due() || !m.Behind() {
			t.Error("one message is never passed")
		}
	})
}
