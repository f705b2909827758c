package aliases_test

import (
	"slices"
	"testing"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/aliases"
)

// Whatever bytes two aliases have: if both can be claimed, they come back as they were.
func FuzzSplit(f *testing.F) {
	f.Add("body:00ff", "object:cs_1")
	f.Add(`a","b`, "a,b\n \u2028\"")
	f.Add("\\", "\x01")
	f.Fuzz(func(t *testing.T, a, b string) {
		var valid []string
		for _, id := range []string{a, b} {
			if (dedup.Key{Consumer: "c", ID: id}).Validate() == nil {
				valid = append(valid, id)
			}
		}
		if got, err := aliases.Split(aliases.Join(valid)); err != nil || !slices.Equal(got, valid) {
			t.Errorf("%q became %q, %v", valid, got, err)
		}
	})
}
