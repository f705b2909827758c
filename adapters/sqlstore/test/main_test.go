package sqlstore_test

import (
	"os"
	"testing"

	"github.com/txonce/txonce/internal/test/parallel"
)

// TestMain runs many tests in parallel, because most tests wait for disks and locks.
func TestMain(m *testing.M) {
	parallel.Tests(6)
	registerSQLiteCancel() // register the function before opening connections
	os.Exit(m.Run())
}
