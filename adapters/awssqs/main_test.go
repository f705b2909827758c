package awssqs_test

import (
	"os"
	"testing"

	"github.com/txonce/txonce/internal/test/parallel"
)

// Most tests wait, for visibility timeouts.
func TestMain(m *testing.M) {
	parallel.Tests(16)
	os.Exit(m.Run())
}
