package sqlstore_test

import (
	"os"
	"testing"

	"github.com/txonce/txonce/internal/test/parallel"
)

// Most tests wait for disks and locks.
func TestMain(m *testing.M) {
	parallel.Tests(6)
	registerSQLiteCancel() // before any connection is opened
	os.Exit(m.Run())
}
