package watermark

import (
	"testing"
	"testing/synctest"
	"time"
)

// skipping returns a session whose low is 50. Below its skip of 80 all messages wait until 1000. The watermark is 100.
func skipping() *Marks {
	m := at(50, 100)
	p := begin(m)
	p.Row(Row{Shard: shard, Seq: 50, N: 1})
	p.Row(Row{Shard: shard, Seq: 80, N: 9, Until: 1000})
	m.End(p, false)
	return m
}

// A poll of a shard may begin behind messages that wait, until the first of them stops waiting.
func TestSkipOfAPoll(t *testing.T) {
	first := Row{Shard: shard, Seq: 50, N: 1}
	for _, tt := range []struct {
		name                      string
		poll                      func(m *Marks, p *Poll)
		all                       bool
		wantLow, wantSkip, wantTo int64
	}{
		{"it finds nothing behind the skip", func(*Marks, *Poll) {}, true, 50, 101, 1000},
		{"a limit may have cut off what is behind the skip", func(*Marks, *Poll) {}, false, 50, 80, 1000},
		{
			"it has read nothing behind the skip", func(_ *Marks, p *Poll) { p.seen[shard] = nothing(0, true) }, false, 50,
			101, 1000,
		},
		{"it has read the first row behind the skip", func(_ *Marks, p *Poll) {
			p.Row(Row{Shard: shard, Seq: 90, N: 1, Skipped: true})
		}, false, 50, 90, 1000},
		{"the first row behind the skip is above the watermark", func(_ *Marks, p *Poll) {
			p.Row(Row{Shard: shard, Seq: 190, N: 1, Skipped: true})
		}, false, 50, 101, 1000},
		{"more messages wait, for longer", func(_ *Marks, p *Poll) {
			p.Row(Row{Shard: shard, Seq: 80, N: 1, Skipped: true})
			p.Row(Row{Shard: shard, Seq: 90, N: 3, Skipped: true, Until: 2000})
		}, false, 50, 90, 1000},
		{"more messages wait, for less long", func(_ *Marks, p *Poll) {
			p.Row(Row{Shard: shard, Seq: 80, N: 1, Skipped: true})
			p.Row(Row{Shard: shard, Seq: 90, N: 3, Skipped: true, Until: 500})
		}, false, 50, 90, 500},
		{"a message before the last row does not wait", func(_ *Marks, p *Poll) {
			p.Row(Row{Shard: shard, Seq: 80, N: 1, Skipped: true})
			p.Row(Row{Shard: shard, Seq: 90, N: 3, Skipped: true})
		}, false, 50, 80, 1000},
		{"the time is over, and the first message waits again", func(_ *Marks, p *Poll) {
			p.Row(first)
			p.Row(Row{Shard: shard, Seq: 70, N: 5, Until: 3000})
		}, false, 50, 70, 3000},
		{"the time is over, and the first message does not wait", func(_ *Marks, p *Poll) {
			p.Row(first)
			p.Row(Row{Shard: shard, Seq: 70, N: 5})
		}, false, 50, 0, 0},
		{"the time is over, and the first messages are gone", func(_ *Marks, p *Poll) {
			p.Row(Row{Shard: shard, Seq: 90, N: 1})
		}, false, 90, 0, 0},
		{
			"the time is over, and all messages are gone", func(_ *Marks, p *Poll) { p.seen[shard] = nothing(0, false) },
			false, 101, 0, 0,
		},
		{"messages above the watermark wait", func(_ *Marks, p *Poll) {
			p.Row(first)
			p.Row(Row{Shard: shard, Seq: 170, N: 5, Until: 3000})
		}, false, 50, 101, 3000},
		{"messages have returned", func(_ *Marks, p *Poll) {
			p.Row(Row{Shard: shard, Seq: 50, N: 1, Returned: 1})
			p.Row(Row{Shard: shard, Seq: 70, N: 5, Returned: 1, Until: 3000})
		}, false, 0, 0, 0},
		{"Renew has found that messages have returned", func(m *Marks, p *Poll) {
			p.seen[shard] = nothing(0, true)
			m.Hold(map[int]int64{shard: token}, map[int]int64{shard: 1})
		}, false, 0, 0, 0},
		{"another relay had the shard", func(m *Marks, p *Poll) {
			p.seen[shard] = nothing(0, true)
			m.Hold(map[int]int64{shard: token + 1}, nil)
		}, false, 0, 0, 0},
		{"the sequence was set back", func(m *Marks, p *Poll) {
			p.seen[shard] = nothing(0, true)
			m.Notice(t.Context(), 1, 99)
		}, false, 0, 0, 0},
		{"another poll found a later time", func(m *Marks, p *Poll) {
			other := begin(m)
			other.Row(first)
			other.Row(Row{Shard: shard, Seq: 70, N: 5, Until: 3000})
			m.End(other, false)
			p.Row(Row{Shard: shard, Seq: 90, N: 1, Skipped: true})
		}, false, 50, 70, 3000},
	} {
		m := skipping()
		p := begin(m)
		if p.Lows[0] != 50 || p.Skips[0] != 80 || p.Untils[0] != 1000 {
			t.Fatalf("the poll begins at %d, or at %d until %d", p.Lows[0], p.Skips[0], p.Untils[0])
		}
		tt.poll(m, p)
		m.End(p, tt.all)
		tokens := []int64{m.lows[shard].token}
		if p = m.Begin([]int16{shard}, tokens); p.Lows[0] != tt.wantLow || p.Skips[0] != tt.wantSkip ||
			p.Untils[0] != tt.wantTo {
			t.Errorf("%s: the next poll begins at %d, or at %d until %d; want %d, %d, %d", tt.name, p.Lows[0],
				p.Skips[0], p.Untils[0], tt.wantLow, tt.wantSkip, tt.wantTo)
		}
	}
}

// A poll begins at the low after a minute, whatever the server's clock says.
func TestSkipIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := skipping()
		<-time.After(skipLimit - 1)
		p := begin(m)
		p.Row(Row{Shard: shard, Seq: 90, N: 1, Skipped: true})
		if m.End(p, false); p.Skips[0] != 80 {
			t.Errorf("before %v the skip is %d", skipLimit, p.Skips[0])
		}
		<-time.After(1)
		if p := begin(m); p.Skips[0] != 0 {
			t.Errorf("after %v the skip is %d", skipLimit, p.Skips[0])
		}
	})
}
