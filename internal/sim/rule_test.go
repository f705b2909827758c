package sim_test

import (
	"errors"
	"testing"

	"github.com/txonce/txonce/internal/sim"
)

func TestRule(t *testing.T) {
	for _, tc := range []struct {
		name, a, b string
		same       bool
	}{
		{"other names", "m1 has 2 effects", "m3 has 3 effects", true},
		{"lost and doubled", "m1 has 0 effects", "m1 has 2 effects", false},
		{"other processes", "relay 1 settles with an old token: m1 sent", "relay 12 settles with an old token: x", true},
		{"other rules", "m1 was discarded, and has 1 effects", "m1 has 1 effects", false},
		{"longer lists", "relay 1 publishes 7a0 8b1 too late", "relay 2 publishes 7a0 too late", true},
		{"a second rule", "m1 has 2 effects; m2 is lost", "m1 has 2 effects", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, b := sim.Rule(errors.New(tc.a)), sim.Rule(errors.New(tc.b))
			if (a == b) != tc.same {
				t.Errorf("%q and %q", a, b)
			}
		})
	}
	if got := sim.Rule(nil); got != "" {
		t.Errorf("no error: %q", got)
	}
}
