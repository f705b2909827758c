package storekit

import (
	"time"

	"github.com/txonce/txonce/dedup"
)

// WindowUse is one window that a consumer has run with, as recorded before the first claim under it.
// Both times are of the database's clock.
type WindowUse struct {
	Window    time.Duration
	FirstRun  time.Time // nothing was claimed under it before
	UsedUntil time.Time // nothing is claimed under it after, unless this is moved first
}

// UseFor is how far ahead a store moves UsedUntil whenever a claim comes near it.
const UseFor = 24 * time.Hour

// Horizon returns up to which message time a consumer's keys may have been forgotten, given that all rows forgotten so
// far had expired by forgotten. The zero time says that none of its keys can have been forgotten.
//
// A row claimed at c for a message of time m under window w expires at max(c, m) + w. So if it was forgotten, then
// m <= forgotten-w; also m <= c+MaxAhead <= UsedUntil+MaxAhead, which lets the horizon leave a short window behind
// once it is out of use; and forgotten >= FirstRun+w. A message is safe when it is younger than all of these say.
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

// Provable reports whether a message of time t without a row is shown to be new by horizon. A message without a time
// is always taken for new; see dedup.Record.Time.
func Provable(t, horizon time.Time) bool {
	return t.IsZero() || horizon.IsZero() || t.After(horizon)
}
