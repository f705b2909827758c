package idtime

import (
	"fmt"
	"time"
)

// units says what a sender probably does when its number is so many times too large or too small.
var units = []struct {
	times           int64
	larger, smaller string
}{
	{
		1e3, "milliseconds in place of seconds, or microseconds in place of milliseconds",
		"seconds in place of milliseconds",
	},
	{
		1e6, "microseconds in place of seconds, or nanoseconds in place of milliseconds",
		"seconds in place of microseconds",
	},
	{1e9, "nanoseconds in place of seconds", "seconds in place of nanoseconds"},
}

// UnitHint says in which unit the number behind t was probably written, if t is of the far future or of the years
// around 1970 because the number was read in another one. It is empty if no unit fits.
func UnitHint(t time.Time) string {
	seconds := t.Unix()
	for _, unit := range units {
		fits := time.Unix(seconds/unit.times, seconds%unit.times*(1e9/unit.times)).UTC()
		if year := fits.Year(); year >= 2000 && year < 2100 {
			return fmt.Sprintf("; with a number %d times smaller it would be %s: does the sender use %s?", unit.times,
				fits.Format(time.RFC3339), unit.larger)
		}
	}
	if seconds < 0 || seconds >= 1<<32 { // later times need no larger number, and do not fit into since
		return ""
	}
	since := t.Sub(time.Unix(0, 0)).Nanoseconds()
	for _, unit := range units {
		fits := time.Unix(since/(1e9/unit.times), 0).UTC()
		if year := fits.Year(); year >= 2000 && year < 2100 {
			return fmt.Sprintf("; with a number %d times larger it would be %s: does the sender use %s?", unit.times,
				fits.Format(time.RFC3339), unit.smaller)
		}
	}
	return ""
}
