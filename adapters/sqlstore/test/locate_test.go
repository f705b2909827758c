package sqlstore_test

import (
	"errors"
	"testing"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/internal/test/testdb"
)

// The application has changed the search_path of a connection before the Store looks for its tables. The Store takes
// those of a new session. If the other schema has tables too, other processes may claim there: then it takes neither.
func TestAChangedSessionDoesNotLeadToOtherTables(t *testing.T) {
	t.Parallel()
	d := openPostgres(t, testdb.Postgres(t))
	other := stringsOf(t, openPostgres(t, testdb.Postgres(t)).db, `SELECT current_schema()`)[0]
	for path, refused := range map[string]bool{"pg_catalog": false, other: true} {
		s := d.open(t, d.dsn, deduptest.Options{})
		s.db.SetMaxOpenConns(1)
		exec(t, s.db, `SET search_path = `+path)
		err := s.Register(t.Context(), "billing", time.Hour)
		if refused && !errors.Is(err, dedup.ErrSchema) || !refused && err != nil {
			t.Errorf("with search_path = %s, Register = %v; want ErrSchema: %v", path, err, refused)
		}
	}
}
