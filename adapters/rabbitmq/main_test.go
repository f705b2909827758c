package rabbitmq_test

import (
	"testing"

	"github.com/txonce/txonce/internal/test/leaktest"
	"github.com/txonce/txonce/internal/test/parallel"
)

// Most tests wait, for the server and for retry queues.
func TestMain(m *testing.M) {
	parallel.Tests(12)
	leaktest.Main(m)
}
