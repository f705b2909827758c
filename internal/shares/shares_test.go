package shares_test

import (
	"testing"

	"github.com/txonce/txonce/internal/shares"
)

// others maps living sessions to when their holds expire.
type others = map[string]int64

// numbers returns a to b-1.
func numbers(a, b int) (list []int) {
	for ; a < b; a++ {
		list = append(list, a)
	}
	return list
}

func TestChange(t *testing.T) {
	type step struct {
		mine   int
		free   []int
		others others
		want   int
	}
	for _, test := range []struct {
		name  string
		steps []step
		self  string
	}{
		{name: "alone it takes all", steps: []step{{0, numbers(0, 64), nil, 64}, {64, nil, nil, 0}}},
		{
			name:  "beside others it takes its share of what is free",
			steps: []step{{0, numbers(0, 64), others{"a": 1}, 32}, {32, nil, others{"a": 2}, 0}},
		},
		{
			name: "an odd share of the first session is rounded up", self: "a",
			steps: []step{{0, numbers(0, 64), others{"b": 1, "c": 1}, 22}},
		},
		{
			name: "an odd share of the second is rounded down", self: "b",
			steps: []step{{0, numbers(0, 64), others{"a": 1, "c": 1}, 21}},
		},
		{name: "the second gives up one shard more than the first", self: "b", steps: []step{
			{32, nil, others{"a": 1}, 0},
			{32, nil, others{"a": 2, "c": 1}, 0},
			{32, nil, others{"a": 3, "c": 2}, -11},
			{21, nil, others{"a": 4, "c": 3}, 0},
		}},
		{name: "a session that asked once gets nothing", steps: []step{{64, nil, others{"a": 1}, 0}, {64, nil, others{"a": 1}, 0}, {64, nil, others{"a": 1}, 0}}},
		{name: "a session that asks again gets its share", steps: []step{{64, nil, others{"a": 1}, 0}, {64, nil, others{"a": 2}, -32}, {32, nil, others{"a": 3}, 0}}},
		{name: "new ones each time get nothing", steps: []step{{64, nil, others{"a": 1}, 0}, {64, nil, others{"a": 1, "b": 2}, 0}, {64, nil, others{"b": 2, "c": 3}, 0}}},
		{name: "what becomes free is left to others for one Renew", steps: []step{
			{64, nil, others{"a": 1}, 0},
			{64, nil, others{"a": 2}, -32},
			{32, numbers(0, 32), others{"a": 3}, 0}, // given back in the meantime
			{32, nil, others{"a": 4}, 0},            // taken
		}},
		{name: "what stays free is taken, and not given up for the same two asks", steps: []step{
			{64, nil, others{"a": 1}, 0},
			{64, nil, others{"a": 2}, -32},
			{32, numbers(0, 32), others{"a": 2}, 0},
			{32, numbers(0, 32), others{"a": 2}, 32},
			{64, nil, others{"a": 2}, 0},
			{64, nil, others{"a": 2}, 0},
			{64, nil, others{"a": 3}, -32},
		}},
		{name: "one that is short takes what becomes free at once", steps: []step{
			{0, nil, others{"a": 1}, 0}, {0, numbers(0, 32), others{"a": 2}, 32},
		}},
		{name: "one that stays free is taken by one that is short, too", steps: []step{
			{10, numbers(0, 40), others{"a": 1}, 22}, {32, numbers(20, 38), others{"a": 1}, 18},
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var l shares.Ledger
			for i, s := range test.steps {
				if got := l.Change(shares.View{
					Of: 64, Self: test.self, Mine: s.mine, Free: s.free,
					Others: s.others,
				}); got != s.want {
					t.Errorf("Renew %d changes %d, want %d", i+1, got, s.want)
				}
			}
		})
	}
}

// Sessions that renew in turn reach even shares in three rounds, and afterwards no shard changes its owner.
func TestSharesComeToRest(t *testing.T) {
	const of = 64
	for n := 2; n <= 9; n++ {
		ledgers, until, owner := make([]shares.Ledger, n), make([]int64, n), make([]int, of) // owned by session 0
		changed := 0
		for round := range 12 {
			if round == 4 {
				changed = 0
			}
			for i := n - 1; i >= 0; i-- {
				until[i]++
				v := shares.View{Of: of, Self: string(rune('a' + i)), Others: others{}}
				for shard, o := range owner {
					switch o {
					case i:
						v.Mine++
					case -1:
						v.Free = append(v.Free, shard)
					}
				}
				for other, u := range until {
					if other != i && u > 0 {
						v.Others[string(rune('a'+other))] = u
					}
				}
				for change := ledgers[i].Change(v); change != 0; changed++ {
					from, to, step := -1, i, -1
					if change < 0 {
						from, to, step = i, -1, +1
					}
					for shard, o := range owner {
						if o == from {
							owner[shard] = to
							break
						}
					}
					change += step
				}
			}
		}
		held := make([]int, n)
		for _, o := range owner {
			if o < 0 {
				t.Fatalf("%d sessions leave a shard free", n)
			}
			held[o]++
		}
		for _, h := range held {
			if h < of/n || h > (of+n-1)/n {
				t.Errorf("%d sessions hold %v", n, held)
			}
		}
		if changed > 0 {
			t.Errorf("%d sessions: %d shards changed hands after four rounds", n, changed)
		}
	}
}
