package outboxtest

import (
	"testing"
	"time"

	"github.com/txonce/txonce/internal/test/leaktest"
)

func TestMain(m *testing.M) {
	limit = time.Minute // of the fake clock, on which no machine is slow; what is broken is looked at that long
	leaktest.Main(m)
}
