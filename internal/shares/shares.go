// Package shares decides how many of an outbox's shards a session takes or gives back when it renews its hold. All
// stores use it, so sessions of different stores on one database agree.
//
// Sessions know about each other only what the database shows: which sessions are alive, and until when. So a crashed
// session counts as alive until its hold expires. Two rules keep it from costing the others their shards in the
// meantime:
//
//   - A session gives up shards only for sessions that have asked twice, that is, whose hold was extended after it was
//     first seen. A program that crashes right after its start has asked once.
//   - A session takes the shards that stayed free between two of its Renews, even beyond its fair share. The session
//     that they were meant for must then ask twice again.
//
// If the shards cannot be divided evenly, the sessions with the smallest identifiers hold one more than the others. All
// sessions agree about that, so their shares add up to the number of shards, and no session waits for shards that no
// other session will give up.
package shares

// View is what a session reads from the database in Renew.
type View struct {
	Of   int    // number of shards
	Self string // this session's identifier, such as those in Others
	Mine int    // shards of this session
	Free []int  // shards that no living session holds
	// for each other living session a number that changes with each Renew, such as when its hold expires
	Others map[string]int64
}

// Ledger is what a session remembers between Renews. The zero value is for a new session. It is not safe for concurrent
// use.
type Ledger struct {
	asks map[string]asked
	free map[int]bool
}

// asked counts how often a session was seen with another value in View.Others.
type asked struct {
	until int64
	times int
}

// Change returns how many shards the session must take now. A negative number is how many it must give back.
func (l *Ledger) Change(v View) int {
	l.count(v.Others)
	due := v.fair(func(session string) bool { return l.asks[session].times >= 2 })
	take := min(v.fair(func(string) bool { return true })-v.Mine, len(v.Free))
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

// fair returns how many shards this session holds when all shards are divided equally. counts reports whether another
// session gets a share.
func (v *View) fair(counts func(session string) bool) int {
	sessions, before := 1, 0
	for session := range v.Others {
		if counts(session) {
			if sessions++; session < v.Self {
				before++
			}
		}
	}
	share := v.Of / sessions
	if before < v.Of%sessions {
		share++
	}
	return share
}

// count records how often each living session has asked.
func (l *Ledger) count(others map[string]int64) {
	asks := make(map[string]asked, len(others))
	for session, until := range others {
		a := l.asks[session]
		if a.times == 0 || a.until != until {
			a = asked{until, a.times + 1}
		}
		asks[session] = a
	}
	l.asks = asks
}

// stayedFree records the free shards, and returns how many of them were free at the previous Renew too.
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
