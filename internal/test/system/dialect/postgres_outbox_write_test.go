package dialect_test

import (
	"slices"
	"testing"

	"github.com/txonce/txonce/internal/dialect"
)

// A notification that cannot name its shards, or that comes from another version, is about any shard.
func TestNotifiedShards(t *testing.T) {
	many := make([]int16, 17)
	for payload, want := range map[string][]int16{
		dialect.NotifyShards(nil):                  nil,
		dialect.NotifyShards(many):                 nil,
		dialect.NotifyShards([]int16{0}):           {0},
		dialect.NotifyShards([]int16{63, 5, 1000}): {63, 5, 1000},
		"1,2,": nil, "1, 2": nil, "70000": nil, "end": nil,
	} {
		if got := dialect.NotifiedShards(payload); !slices.Equal(got, want) || (got == nil) != (want == nil) {
			t.Errorf("payload %q: shards %v, want %v", payload, got, want)
		}
	}
}
