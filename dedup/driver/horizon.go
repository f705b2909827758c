package driver

import (
	"time"

	"github.com/txonce/txonce/dedup"
)

// WindowUse is one window that a consumer has run with. A store records it before the first claim with that window.
// Both times are of the database's clock.
type WindowUse struct {
	Window    time.Duration
	FirstRun  time.Time // there are no claims with the window before this time
	UsedUntil time.Time // there are no claims with the window after this time, unless the store moves it first
}

// UseFor is how far into the future a store moves UsedUntil when a claim comes near it.
const UseFor = 24 * time.Hour

// Horizon returns the latest time of messages whose keys a consumer may have forgotten. forgotten is the latest expiry
// time of all rows that were deleted so far. The zero time means that none of the consumer's keys can have been
// forgotten.
//
// A row that was claimed at time c for a message of time m under window w expires at max(c, m) + w. If it was deleted,
// three conditions hold: m <= forgotten-w; m <= c+dedup.MaxAhead <= UsedUntil+dedup.MaxAhead; and forgotten >=
// FirstRun+w. A message is certainly new if one of the conditions is false for each window. Because of the second
// condition, a short window stops moving the horizon after it went out of use.
func Horizon(forgotten time.Time, uses []WindowUse) (horizon time.Time) {
	for _, u := range uses {
		if forgotten.Before(u.FirstRun.Add(u.Window)) {
			continue
		}
		h := forgotten.Add(-u.Window)
		if last := u.UsedUntil.Add(dedup.MaxAhead); last.Before(h) {
			h = last
		}
		if h.After(horizon) {
			horizon = h
		}
	}
	return horizon
}

// Provable reports whether the absence of a row proves that a message of time t is new. A message without a time always
// counts as new; see dedup.Record.Time.
func Provable(t, horizon time.Time) bool {
	return t.IsZero() || horizon.IsZero() || t.After(horizon)
}
