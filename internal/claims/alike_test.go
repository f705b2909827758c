package claims_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/claims"
)

func TestAlike(t *testing.T) {
	row := func(consumer, id string, window time.Duration) claims.Row {
		return claims.Row{Record: dedup.Record{Key: dedup.Key{Consumer: consumer, ID: id}, Window: window}}
	}
	day := 24 * time.Hour
	a1, a2, a3, b1, b2 := row("a", "1", day), row("a", "2", day), row("a", "3", 2*day), row("b", "1", day),
		row("b", "2", day)
	for _, tt := range []struct {
		name string
		rows []claims.Row
		want [][]claims.Row
	}{
		{"none", nil, nil},
		{"one", []claims.Row{a1}, [][]claims.Row{{a1}}},
		{"alike", []claims.Row{a2, a1}, [][]claims.Row{{a2, a1}}},
		{
			"the default window and the same one said",
			[]claims.Row{row("a", "1", 0), row("a", "2", dedup.DefaultWindow)},
			[][]claims.Row{{row("a", "1", 0), row("a", "2", dedup.DefaultWindow)}},
		},
		{"consumers and windows", []claims.Row{b2, a3, a2, b1, a1}, [][]claims.Row{{a2, a1}, {a3}, {b2, b1}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, claims.Alike(tt.rows)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
