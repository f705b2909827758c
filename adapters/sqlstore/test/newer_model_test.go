package sqlstore_test

import (
	"database/sql"
	"maps"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/txonce/txonce/dedup/deduptest"
)

// Newer answers as a map of the highest versions does, whatever the versions are, also after a rollback of the transaction
// or of a part of it.
func TestNewerAgainstAModel(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db fixture) {
		s := db.open(deduptest.Options{})
		versions := []int64{math.MinInt64, math.MinInt64 + 1, -1, 0, 1, 2, 1 << 40, math.MaxInt64 - 1, math.MaxInt64}
		objects := []string{"a", "A", "a ", "ä", "a\u0308"} // no two are the same, whatever the collation
		highest := map[string]int64{}
		for range 40 {
			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			now := maps.Clone(highest)
			var saved map[string]int64
			for range 8 {
				switch o, v := objects[rand.IntN(len(objects))], versions[rand.IntN(len(versions))]; rand.IntN(6) {
				case 0:
					statement(t, tx, `SAVEPOINT part`)
					saved = maps.Clone(now)
				case 1:
					if saved != nil {
						statement(t, tx, `ROLLBACK TO SAVEPOINT part`)
						now = maps.Clone(saved)
					}
				default:
					before, known := now[o]
					want := !known || v > before
					if newer, err := s.Newer(t.Context(), tx, o, v); err != nil || newer != want {
						t.Errorf("Newer(%q, %d) = %v, %v; the highest was %d (known: %v)", o, v, newer, err, before, known)
					}
					if want {
						now[o] = v
					}
				}
			}
			if rand.IntN(2) == 0 {
				err = tx.Rollback()
			} else if err = tx.Commit(); err == nil {
				highest = now
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	})
}

func statement(t *testing.T, tx *sql.Tx, query string) {
	t.Helper()
	if _, err := tx.ExecContext(t.Context(), query); err != nil {
		t.Fatal(err)
	}
}
