package sqlstore_test

import (
	"database/sql"
	"testing"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
)

// A message without a key is claimed by nothing, and its dead letter can be lost as well.
func TestAMessageWithoutAKeyNotesItsServer(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db fixture) {
		if db.dialect == "sqlite" { // a file has no server
			return
		}
		s := db.open(deduptest.Options{})
		if err := s.InTx(t.Context(), nil, func(*sql.Tx, []dedup.Claim) error {
			if s.History() != 1 {
				t.Errorf("History is %d when the handler runs, want 1", s.History())
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	})
}
