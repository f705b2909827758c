package sqlstore_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
)

// Every database has its keys in the order of the times in their IDs. Otherwise claims in a large table touch pages all
// over its index.
func TestKeysAreStoredInTheOrderOfTheirTimes(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db fixture) {
		s := db.open(deduptest.Options{})
		var want []string
		for i := range 40 {
			want = append(want, fmt.Sprintf("%08x-%04x-7000-8000-%012x", i*0x01000000/7, rand.Uint32N(1<<16),
				rand.Uint64N(1<<48)))
		}
		want = want[1:] // 1970
		for _, i := range rand.Perm(len(want)) {
			claim(t, s, dedup.Record{Key: dedup.Key{Consumer: fmt.Sprint("c", i%3), ID: want[i]}})
		}
		key := `"key"`
		if db.dialect == "mysql" {
			key = "`key`"
		}
		rows, err := db.QueryContext(t.Context(), `SELECT id FROM processed_messages ORDER BY `+key)
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		var got []string
		for rows.Next() {
			var id string
			if err := rows.Scan(&id); err != nil {
				t.Fatal(err)
			}
			got = append(got, id)
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}
