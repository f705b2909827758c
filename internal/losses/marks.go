package losses

import (
	"slices"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/observe"
)

// mark is a claim that was committed.
type mark struct {
	key dedup.Key
	n   int64 // so many were committed with it and before it
	at  time.Time
}

const (
	mostRecent  = 64  // concurrent transactions are not acknowledged in the order of their commits
	mostSamples = 64  // they say when a loss began
	mostKept    = 256 // the recent ones before each change of the history
	firstSpace  = 100 * time.Millisecond
)

// marks remembers the latest claims, and some of the earlier ones. It needs as much memory however many there are.
type marks struct {
	n        int64
	reported int64 // so many are lost or not, and a person knows
	began    time.Time
	last     time.Time // when n grew
	history  int64
	recent   [mostRecent]mark
	next     int    // place in recent
	kept     []mark // those that were recent when the history changed
	samples  []mark
	space    time.Duration // between samples
}

// add notes that count claims, with key among them, were committed with history. It reports whether that history is
// another one than that of the claims before.
func (m *marks) add(history int64, key dedup.Key, count int, now time.Time) (changed bool) {
	changed = m.n > 0 && history != m.history
	if changed && len(m.kept) < mostKept {
		m.kept = append(m.kept, m.recent[:]...)
	}
	m.history = history
	m.move(count, now)
	k := mark{key, m.n, now}
	m.recent[m.next] = k
	m.next = (m.next + 1) % mostRecent
	if last := len(m.samples) - 1; last >= 0 && now.Sub(m.samples[last].at) < m.space {
		return changed
	}
	if len(m.samples) == mostSamples { // keep each second one
		for i := range mostSamples / 2 {
			m.samples[i] = m.samples[2*i]
		}
		m.samples = m.samples[:mostSamples/2]
		m.space *= 2
	}
	m.samples = append(m.samples, k)
	return changed
}

// move notes that count commits were made that have no key.
func (m *marks) move(count int, now time.Time) {
	if m.n == 0 {
		m.began = now
	}
	m.n += int64(count)
	m.last = now
}

// settled forgets what is of no use once the database has everything up to now.
func (m *marks) settled() {
	m.kept = nil
	m.space = firstSpace
	if n := len(m.samples); n > mostSamples/2 {
		m.samples = slices.Delete(m.samples, 0, n-mostSamples/2)
	}
}

// since returns the marks of claims after the first n that were committed after oldest, in their order.
func (m *marks) since(n int64, oldest time.Time) (found []mark) {
	for _, list := range [][]mark{m.samples, m.kept, m.recent[:]} {
		for _, k := range list {
			if k.n > max(n, m.reported) && k.at.After(oldest) {
				found = append(found, k)
			}
		}
	}
	slices.SortFunc(found, func(a, b mark) int { return int(a.n - b.n) })
	return slices.CompactFunc(found, func(a, b mark) bool { return a.n == b.n })
}

// beat is the row of this process as it was last written.
type beat struct {
	driver.PositionMove           // Next is what the row has
	n                   int64     // so many claims were committed before
	at                  time.Time // when it was written
	epoch               int64     // 0: there is no row yet
}

// intact reports whether the database has the row as b says, and so everything that was committed before it.
func (b *beat) intact(row *driver.Position) bool {
	return b.epoch > 0 && row != nil && row.Epoch == b.epoch && row.Next == b.Next
}

// lost returns what the database has lost; nil: nothing. found[i] says whether it has marks[i], row is what it has of b,
// began is when this process began, or when the database was last written before that, as far as it knows.
func lost(marks []mark, found []bool, b beat, row *driver.Position, began time.Time) *observe.Loss {
	behind := b.epoch > 0 && row != nil && row.Epoch == b.epoch && row.Next < b.Next
	first, final := slices.Index(found, false), -1
	if first < 0 {
		if !behind || len(marks) > 0 { // the claims say more than a row that somebody has changed
			return nil
		}
		return &observe.Loss{From: row.Updated, To: b.at, Messages: b.Next - row.Next}
	}
	for i := range found {
		if !found[i] {
			final = i
		}
	}
	l := &observe.Loss{From: began, To: marks[final].at, Messages: marks[final].n}
	if final+1 < len(marks) {
		l.To, l.Messages = marks[final+1].at, marks[final+1].n-1
	}
	switch {
	case first > 0:
		l.From, l.Messages = marks[first-1].at, l.Messages-marks[first-1].n
	case b.intact(row):
		l.From, l.Messages = b.at, l.Messages-b.n
	case behind:
		l.From, l.Messages = row.Updated, l.Messages-b.n+b.Next-row.Next
	}
	return l
}
