package outboxtest

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	limit = time.Minute // of the fake clock, on which no machine is slow; what is broken is looked at that long
	goleak.VerifyTestMain(m)
}
