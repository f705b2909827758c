// Package shares decides how many of an outbox's shards a session takes and gives back when it renews its hold. All stores ask it, so
// that sessions of different stores on one database agree.
//
// Sessions know of each other what the database says: who is alive, and until when. So a session that died counts as alive until its
// hold has run out. Two rules keep it from costing the others their shards meanwhile:
//
//   - A session gives up shards only for sessions that have asked twice, which means that their hold was extended after it was first
//     seen. A program that dies right after its start has asked once.
//   - A session takes the shards that have stayed free between two of its Renews, even beyond its fair share. Whoever was meant to
//     take them has to ask twice again.
package shares

// View is what a session finds in the database in Renew.
type View struct {
	Of     int              // shards in all
	Mine   int              // shards of this session
	Free   []int            // shards that no living session holds
	Others map[string]int64 // other living sessions, and when their holds end or any other number that changes with each Renew
}

// Ledger is what a session remembers between two Renews. Its zero value is that of a new session. It is not safe for concurrent use.
type Ledger struct {
	asks map[string]asked
	free map[int]bool
}

// asked is how often a session was seen with another end of its hold.
type asked struct {
	until int64
	times int
}

// Change returns how many shards the session takes now, or, if it is negative, how many it gives back.
func (l *Ledger) Change(v View) int {
	due := fair(v.Of, 1+l.ask(v.Others))
	take := min(fair(v.Of, 1+len(v.Others))-v.Mine, len(v.Free))
	take = max(take, l.stayedFree(v.Free))
	if take <= 0 {
		return min(0, due-v.Mine)
	}
	if v.Mine+take > due {
		for session, a := range l.asks {
			l.asks[session] = asked{a.until, 1}
		}
	}
	return take
}

// fair is how many shards one of so many sessions holds at most.
func fair(of, sessions int) int { return (of + sessions - 1) / sessions }

// ask takes in that these sessions are alive, and returns how many of them have asked twice.
func (l *Ledger) ask(others map[string]int64) (twice int) {
	asks := make(map[string]asked, len(others))
	for session, until := range others {
		a := l.asks[session]
		if a.times == 0 || a.until != until {
			a = asked{until, a.times + 1}
		}
		if asks[session] = a; a.times >= 2 {
			twice++
		}
	}
	l.asks = asks
	return twice
}

// stayedFree takes in which shards are free, and returns how many of them were free the last time.
func (l *Ledger) stayedFree(free []int) (stayed int) {
	now := make(map[int]bool, len(free))
	for _, shard := range free {
		if now[shard] = true; l.free[shard] {
			stayed++
		}
	}
	l.free = now
	return stayed
}
