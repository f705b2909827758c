package matrix_test

import (
	"fmt"
	"testing"

	"github.com/txonce/txonce/internal/test/matrix"
)

var levels = matrix.Levels{"default", "second", "third"}

// Each case meets each configuration's share and each level, whatever the case is called.
func TestEveryCaseRuns(t *testing.T) {
	t.Setenv("TXONCE_TEST_ALL", "")
	shares := map[int]int{}
	for n := range 300 {
		name := fmt.Sprint("case ", n)
		dealt := 0
		for i := range 3 {
			if matrix.Dealt(name, i, 3) {
				dealt++
				shares[i]++
			}
		}
		if dealt != 1 {
			t.Errorf("%d of three configurations run %q", dealt, name)
		}
		for i, level := range levels {
			ran := 0
			for _, selected := range []func(name, level string) bool{levels.Default, levels.Others(0), levels.Others(1)} {
				if !selected(name, "") {
					t.Errorf("a selection leaves out %q, which has no level", name)
				}
				if selected(name, level) {
					ran++
				}
			}
			if ran != 1 {
				t.Errorf("%q runs %d times at level %d", name, ran, i)
			}
		}
	}
	for i, n := range shares {
		if n < 60 {
			t.Errorf("configuration %d has %d cases of 300", i, n)
		}
	}
}

func TestAll(t *testing.T) {
	t.Setenv("TXONCE_TEST_ALL", "1")
	for i := range 3 {
		if !matrix.Dealt("case", i, 3) || !levels.Default("case", levels[i]) || !levels.Others(0)("case", levels[i]) || !levels.Others(1)("case", levels[i]) {
			t.Errorf("configuration %d is left out", i)
		}
	}
}
