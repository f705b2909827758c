package idtime_test

import (
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/internal/idtime"
)

// A time of a far year says which unit its number has.
func TestUnitHint(t *testing.T) {
	at := time.Date(2026, 11, 28, 17, 0, 0, 0, time.UTC)
	for number, want := range map[int64]string{
		at.Unix(): "", at.UnixMilli(): "milliseconds", at.UnixMicro(): "microseconds", at.UnixNano(): "nanoseconds", 0: "", -1: "",
	} {
		got := idtime.UnitHint(time.Unix(number, 0))
		if (want == "") != (got == "") || !strings.Contains(got, want) || want != "" && !strings.Contains(got, "2026-11-28T17:00:00Z") {
			t.Errorf("%d: %q, want %q", number, got, want)
		}
	}
}
