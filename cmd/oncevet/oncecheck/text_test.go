package oncecheck_test

import (
	"testing"

	"github.com/txonce/txonce/cmd/oncevet/oncecheck"
)

func TestEndsTransaction(t *testing.T) {
	for text, want := range map[string]bool{
		"COMMIT": true, " commit ; ": true, "-- done\nCOMMIT": true, "/* x */ END": true, "ABORT": true,
		"ROLLBACK": true, "rollback work": true, "ROLLBACK AND CHAIN": true, "COMMIT AND NO CHAIN": true,
		"BEGIN": true, "begin isolation level serializable": true, "START TRANSACTION READ ONLY": true,
		"BEGIN IMMEDIATE": true, "PREPARE TRANSACTION 'a'": true, "COMMIT PREPARED 'a'": true,
		"INSERT INTO a VALUES (1); COMMIT": true, "INSERT INTO a VALUES (1); COMMIT;\nBEGIN": true,

		"ROLLBACK TO SAVEPOINT a": false, "rollback to a": false, "ROLLBACK WORK TO a": false, "SAVEPOINT a": false,
		"RELEASE a": false, "INSERT INTO commits VALUES (1)": false, "INSERT INTO a VALUES ('x; COMMIT')": false,
		"DO $$ BEGIN COMMIT; END $$": false, "SELECT CASE WHEN a THEN 1 END": false, "PREPARE p AS SELECT 1": false,
		"CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT 1; END": false, "": false, "-- COMMIT": false,
	} {
		if got := oncecheck.EndsTransaction(text); got != want {
			t.Errorf("%q ends a transaction: %v, want %v", text, got, want)
		}
	}
}
