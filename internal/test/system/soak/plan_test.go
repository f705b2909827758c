package soak

import (
	"fmt"
	"math/rand/v2"
)

// kind is how a message's handler misbehaves.
type kind string

const (
	well       kind = "well"        // writes its effect and returns nil
	transient  kind = "transient"   // fails once, then works
	permanent  kind = "permanent"   // always fails
	panics     kind = "panics"      // always
	hangs      kind = "hangs"       // waits for its context, which HandlerTimeout ends
	swallows   kind = "swallows"    // ignores the error of a statement, and returns nil
	leavesRows kind = "leaves rows" // does not close the rows of a query
	session    kind = "session"     // changes its session's settings, each time different ones
	commits    kind = "commits"     // ends its transaction by the driver's Commit
	commitText kind = "commit text" // sends COMMIT as text, after another statement if the driver allows it
	rollsBack  kind = "rolls back"  // sends ROLLBACK as text, then writes its effect, and returns nil
	cuts       kind = "cuts"        // makes the server end the handler's connection, once
)

// misdeeds are all kinds except well.
var misdeeds = []kind{
	transient, permanent, panics, hangs, swallows, leavesRows, session, commits, commitText,
	rollsBack, cuts,
}

// letter is what the error of this kind's dead letter must contain, or "" if the kind is not parked.
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

// plan chooses what each message's handler does: about n/every of them misbehave. Every kind occurs.
func plan(rng *rand.Rand, n, every int) map[string]kind {
	kinds := make(map[string]kind, n)
	for i := range n {
		k := well
		if i < len(misdeeds) {
			k = misdeeds[i]
		} else if rng.IntN(every) == 0 {
			k = misdeeds[rng.IntN(len(misdeeds))]
			if k == hangs && rng.IntN(4) > 0 { // each of these takes MaxAttempts times HandlerTimeout
				k = permanent
			}
		}
		kinds[fmt.Sprintf("m-%d", i)] = k
	}
	return kinds
}
