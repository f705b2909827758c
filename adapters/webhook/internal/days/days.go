// Package days writes long durations for people: "15 days" in place of "360h0m0s".
package days

import (
	"strconv"
	"time"
)

const day = 24 * time.Hour

// Text is d in days if it is a whole number of them, two or more, and otherwise as time.Duration writes it.
func Text(d time.Duration) string {
	if d < 2*day || d%day != 0 {
		return d.String()
	}
	return strconv.Itoa(int(d/day)) + " days"
}
