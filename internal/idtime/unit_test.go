package idtime_test

import (
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/internal/idtime"
)

// A time of a far year, or of 1970, says which unit its number has.
func TestUnitHint(t *testing.T) {
	at := time.Date(2026, 11, 28, 17, 0, 0, 0, time.UTC)
	nanos := func(n int64) time.Time { return time.Unix(0, n) }
	for _, c := range []struct {
		t    time.Time
		want string // empty: no hint
	}{
		{at, ""},
		{time.Unix(0, 0), ""},
		{time.Unix(-1, 0), ""},
		{time.Time{}, ""},
		{time.Date(1979, 6, 1, 0, 0, 0, 0, time.UTC), ""},
		{time.Unix(at.UnixMilli(), 0), "milliseconds in place of seconds"},
		{time.Unix(at.UnixMicro(), 0), "microseconds in place of seconds"},
		{time.Unix(at.UnixNano(), 0), "nanoseconds in place of seconds"},
		{time.UnixMilli(at.UnixMicro()), "microseconds in place of milliseconds"},
		{time.UnixMilli(at.UnixNano()), "nanoseconds in place of milliseconds"},
		{time.UnixMilli(at.Unix()), "seconds in place of milliseconds"},
		{time.UnixMicro(at.Unix()), "seconds in place of microseconds"},
		{nanos(at.Unix()), "seconds in place of nanoseconds"},
	} {
		got := idtime.UnitHint(c.t)
		if (c.want == "") != (got == "") || !strings.Contains(got, c.want) || c.want != "" && !strings.Contains(got,
			"2026-11-28T17:00:00Z") {
			t.Errorf("%v: %q, want %q", c.t, got, c.want)
		}
	}
}
