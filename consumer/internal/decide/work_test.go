package decide_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/txonce/txonce/consumer/internal/decide"
)

func places(n int) []int {
	todo := make([]int, n)
	for i := range todo {
		todo[i] = i
	}
	return todo
}

// transactions tries n messages, of which those in bad fail. known says that each failure names its message.
func transactions(n, most int, known bool, bad ...int) (tried []string, decided []int) {
	w := decide.NewWork(places(n), most)
	for part := w.Next(0); len(part) > 0; part = w.Next(0) {
		tried = append(tried, fmt.Sprint(part))
		at := slices.IndexFunc(part, func(i int) bool { return slices.Contains(bad, i) })
		switch {
		case at < 0:
			w.Committed()
			decided = append(decided, part...)
		case len(part) == 1:
			w.Deferred()
			decided = append(decided, part...)
		case known:
			w.Around(part, []int{at})
		default:
			w.Halve(part)
		}
	}
	return tried, decided
}

func TestWork(t *testing.T) {
	for _, tc := range []struct {
		name  string
		n     int
		most  int
		known bool
		bad   []int
		want  []string
	}{
		{"all at once", 4, 0, true, nil, []string{"[0 1 2 3]"}},
		{"two in a transaction", 5, 2, true, nil, []string{"[0 1]", "[2 3]", "[4]"}},
		{"the culprit is known", 5, 0, true, []int{2}, []string{"[0 1 2 3 4]", "[0 1]", "[2]", "[3 4]"}},
		{"the first is the culprit", 3, 0, true, []int{0}, []string{"[0 1 2]", "[0]", "[1 2]"}},
		{"the culprit is unknown", 4, 0, false, []int{2}, []string{"[0 1 2 3]", "[0 1]", "[2 3]", "[2]", "[3]"}},
		{"failures in a row", 8, 0, true, []int{0, 1, 2, 3}, []string{
			"[0 1 2 3 4 5 6 7]", "[0]", "[1 2 3 4 5 6 7]", "[1]", "[2 3 4]", "[2]", "[3]", "[4]", "[5 6]", "[7]",
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got, _ := transactions(tc.n, tc.most, tc.known, tc.bad...); !slices.Equal(got, tc.want) {
				t.Errorf("transactions %v\nwant         %v", got, tc.want)
			}
		})
	}
}

func TestWorkTriesSeveralCulpritsAlone(t *testing.T) {
	w := decide.NewWork(places(6), 0)
	var got []string
	w.Around(w.Next(0), []int{1, 4})
	for part := w.Next(0); len(part) > 0; part = w.Next(0) {
		got = append(got, fmt.Sprint(part, w.Before()))
		w.Committed()
	}
	if want := []string{"[0] 0", "[1] 0", "[2 3] 0", "[4] 0", "[5] 0"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestWorkCountsTheCulpritsThatFollow(t *testing.T) {
	w := decide.NewWork(places(9), 0)
	w.Around(w.Next(0), []int{6})
	if w.Next(0); w.Before() != 1 {
		t.Errorf("%d culprits come after the first part", w.Before())
	}
	w.Around(w.Next(0), []int{3})
	if part := w.Next(0); len(part) != 3 || w.Before() != 2 {
		t.Errorf("%d culprits come after %v", w.Before(), part)
	}
	w.Halve(w.Next(0))
	if part := w.Next(0); len(part) != 1 || w.Before() != 2 {
		t.Errorf("%d culprits come after %v", w.Before(), part)
	}
}

func TestWorkKeepsToTheLimit(t *testing.T) {
	w := decide.NewWork(places(5), 0)
	if part := w.Next(2); !slices.Equal(part, []int{0, 1}) {
		t.Errorf("%v, want two", part)
	}
	w.Committed()
	if part := w.Next(0); !slices.Equal(part, []int{2, 3, 4}) {
		t.Errorf("%v, want the rest", part)
	}
}

// Every message is decided once, in order within each transaction, whatever fails, and the work ends.
func TestWorkLosesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 40).Draw(t, "messages")
		bad := rapid.SliceOfDistinct(rapid.IntRange(0, 40), rapid.ID).Draw(t, "bad")
		tried, decided := transactions(n, rapid.IntRange(0, 7).Draw(t, "most"), rapid.Bool().Draw(t, "known"), bad...)
		if len(tried) > 4*n+4 {
			t.Fatalf("%d transactions for %d messages", len(tried), n)
		}
		slices.Sort(decided)
		if !slices.Equal(decided, places(n)) {
			t.Fatalf("decided %v of %d", decided, n)
		}
	})
}
