package soak

import (
	"fmt"
	"math/rand/v2"
)

// kind is what a message's handler does beside its effect.
type kind string

const (
	well       kind = "well"        // writes its effect and returns nil
	transient  kind = "transient"   // fails once, then does well
	permanent  kind = "permanent"   // always fails
	panics     kind = "panics"      // always
	hangs      kind = "hangs"       // waits for its context, which HandlerTimeout ends
	swallows   kind = "swallows"    // ignores the error of a statement, and returns nil
	leavesRows kind = "leaves rows" // does not close the rows of a query
	session    kind = "session"     // changes the settings of its session, each time other ones
	commits    kind = "commits"     // ends its transaction by the driver's Commit
	commitText kind = "commit text" // sends COMMIT as text, behind another statement where the driver allows it
	rollsBack  kind = "rolls back"  // sends ROLLBACK as text, writes its effect then, and returns nil
	cuts       kind = "cuts"        // has the server end its own connection, once
)

// misdeeds are all kinds but well.
var misdeeds = []kind{transient, permanent, panics, hangs, swallows, leavesRows, session, commits, commitText, rollsBack, cuts}

// letter is what the cause of this kind's dead letter must say; empty: it has no letter by itself.
func (k kind) letter() string {
	switch k {
	case permanent:
		return "permanent fault"
	case panics:
		return "panic"
	case hangs:
		return "HandlerTimeout"
	default:
		return ""
	}
}

// plan draws what the handler of each message does; about one in ten misbehaves. Every kind occurs.
func plan(rng *rand.Rand, n int) map[string]kind {
	kinds := make(map[string]kind, n)
	for i := range n {
		k := well
		if i < len(misdeeds) {
			k = misdeeds[i]
		} else if rng.IntN(10) == 0 {
			k = misdeeds[rng.IntN(len(misdeeds))]
			if k == hangs && rng.IntN(4) > 0 { // each one costs MaxAttempts times HandlerTimeout
				k = permanent
			}
		}
		kinds[fmt.Sprintf("m-%d", i)] = k
	}
	return kinds
}
