package pgxstore_test

import (
	"os"
	"testing"

	"github.com/txonce/txonce/internal/test/parallel"
)

// Most tests wait for disks and locks.
func TestMain(m *testing.M) {
	parallel.Tests(6)
	os.Exit(m.Run())
}
