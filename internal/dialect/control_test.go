package dialect_test

import (
	"testing"

	"github.com/txonce/txonce/internal/dialect"
)

func TestOutboxRelevantStatements(t *testing.T) {
	for _, tt := range []struct {
		sql                  string
		ends, moves, several bool
	}{
		{sql: "SELECT 1"},
		{sql: "SELECT 1;"},
		{sql: "SELECT 1; -- done\n /* really */ ;"},
		{sql: "INSERT INTO t VALUES ('savepoint')"},
		{sql: "RELEASE SAVEPOINT x"},
		{sql: "RELEASE x"},
		{sql: "COMMIT", ends: true, moves: true}, // one word may be a name, for all that MovesSavepoint knows
		{sql: "ROLLBACK", ends: true},
		{sql: "ROLLBACK AND CHAIN", ends: true},
		{sql: "SAVEPOINT x", moves: true},
		{sql: "savepoint\tx", moves: true},
		{sql: "SAVEPOINT/**/x", moves: true},
		{sql: "; -- a\n/* b /* c */ */ Savepoint x", moves: true, several: true},
		{sql: "ROLLBACK TO x", moves: true},
		{sql: "ROLLBACK WORK TO SAVEPOINT x", moves: true},
		{sql: "rollback transaction to x", moves: true},
		{sql: "name_of_a_statement", moves: true},
		{sql: "SELECT 1; SAVEPOINT x", several: true},
		{sql: "SELECT 1;;COMMIT", several: true},
		{sql: "SELECT ';' AS on_the_side_of_yes", several: true},
	} {
		if ends, moves, several := dialect.EndsTransaction(tt.sql), dialect.MovesSavepoint(tt.sql), dialect.Several(tt.sql); ends != tt.ends || moves != tt.moves || several != tt.several {
			t.Errorf("%q: ends %v, moves %v, several %v; want %v, %v, %v", tt.sql, ends, moves, several, tt.ends, tt.moves, tt.several)
		}
	}
}
