package migrations_test

import (
	"testing"

	"github.com/txonce/txonce/migrations"
)

// Releases that compute the name in Go and those that let the server do it wait for each other.
func TestMySQLLockNameIsThatOfTheServersSHA1(t *testing.T) {
	const want = "txonce.a94a8fe5ccb19ba61c4c0873d391e987982fbbd3" // CONCAT('txonce.', SHA1('test'))
	if got := migrations.MySQLLockName("test"); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
