package idtime

import (
	"fmt"
	"time"
)

// UnitHint says which unit the number behind t probably has, if t is a time of the far future because the number was read in seconds. It is
// empty if no unit fits.
func UnitHint(t time.Time) string {
	n := t.Unix()
	for _, unit := range []struct {
		name string
		time time.Time
	}{{"milliseconds", time.UnixMilli(n)}, {"microseconds", time.UnixMicro(n)}, {"nanoseconds", time.Unix(0, n)}} {
		if year := unit.time.UTC().Year(); year >= 2000 && year < 2100 {
			return fmt.Sprintf("; read as %s, the number %d would be %s: does the sender use another unit than seconds?", unit.name, n, unit.time.UTC().Format(time.RFC3339))
		}
	}
	return ""
}
