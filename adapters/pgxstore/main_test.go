package pgxstore_test

import (
	"os"
	"testing"

	"github.com/txonce/txonce/internal/test/parallel"
)

// Most tests wait for disks and locks, so more of them run in parallel than there are processors.
func TestMain(m *testing.M) {
	parallel.Tests(6)
	os.Exit(m.Run())
}
