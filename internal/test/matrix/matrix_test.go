package matrix_test

import (
	"fmt"
	"testing"

	"github.com/txonce/txonce/internal/test/matrix"
)

var levels = matrix.Levels{"default", "second", "third"}

// Whatever a case is called, it runs in one of three configurations, at each level, and once in each store's two
// configurations.
func TestEveryCaseRuns(t *testing.T) {
	t.Setenv("TXONCE_TEST_ALL", "")
	shares := map[int]int{}
	for n := range 300 {
		name := fmt.Sprint("case ", n)
		for _, pair := range [][2]string{{"mariadb", "mysql"}, {"postgres15", "postgres18"}} {
			if matrix.RunsOn(pair[0], name) == matrix.RunsOn(pair[1], name) {
				t.Errorf("%q runs on both of %v, or on neither", name, pair)
			}
		}
		if !matrix.RunsOn("sqlite", name) {
			t.Errorf("%q does not run on SQLite", name)
		}
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
		for i := range 3 {
			if !levels.One(i)(name, "") || !levels.Rest(i)(name, "") {
				t.Errorf("%d leaves out %q, which has no level", i, name)
			}
			if levels.One(i)(name, levels[0]) == levels.Rest(i)(name, levels[0]) {
				t.Errorf("%d runs %q twice or never at the first level", i, name)
			}
		}
		for _, level := range levels {
			if ran := count(name, level, levels.One(0), levels.One(1), levels.One(2)); ran != 1 {
				t.Errorf("%q runs %d times at level %s", name, ran, level)
			}
			if ran := count(name, level, levels.Share(0, 2), levels.Share(1, 2), levels.Share(2, 2),
				levels.Share(3, 2)); ran == 0 {
				t.Errorf("%q does not run at level %s", name, level)
			}
		}
		for _, both := range [][2]int{{0, 1}, {2, 3}, {0, 3}, {1, 2}} {
			// the configurations of a store, and those of a version
			if ran := count(name, "", levels.Share(both[0], 2), levels.Share(both[1], 2)); ran != 1 {
				t.Errorf("%q runs %d times in the configurations %v", name, ran, both)
			}
		}
	}
	for i, n := range shares {
		if n < 60 {
			t.Errorf("configuration %d has %d cases of 300", i, n)
		}
	}
}

func count(name, level string, selections ...func(name, level string) bool) (n int) {
	for _, selected := range selections {
		if selected(name, level) {
			n++
		}
	}
	return n
}

func TestAll(t *testing.T) {
	t.Setenv("TXONCE_TEST_ALL", "1")
	for i := range 3 {
		if !matrix.RunsOn([]string{"mariadb", "mysql", "sqlite"}[i], "case") {
			t.Errorf("a database is left out")
		}
		if !matrix.Dealt("case", i, 3) || count("case", levels[i], levels.One(0), levels.Rest(0),
			levels.Share(0, 2)) != 3 || !levels.Share(i, 2)("case", "") {
			t.Errorf("configuration %d is left out", i)
		}
	}
}
