package outboxtest

import (
	"testing"
	"time"

	"github.com/txonce/txonce/internal/test/leaktest"
)

func TestMain(m *testing.M) {
	// of the fake clock, which a slow machine does not affect; a case waits that long for a broken outbox
	limit = time.Minute
	leaktest.Main(m)
}
