package days

import (
	"testing"
	"time"
)

func TestText(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", day: "24h0m0s", 2 * day: "2 days", 15 * day: "15 days", 15*day + time.Second: "360h0m1s",
		-2 * day: "-48h0m0s",
	} {
		if got := Text(d); got != want {
			t.Errorf("%d: %s, want %s", d, got, want)
		}
	}
}
