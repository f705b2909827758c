package ops_test

import (
	"math"
	"testing"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/ops"
)

// A rate that no database can keep would stop all requests of its consumer.
func TestRequestRates(t *testing.T) {
	for rate, valid := range map[float64]bool{
		0: true, 10: true, 1e9: true, 1.0 / 86400: true, -1: false, math.NaN(): false, math.Inf(1): false, math.Inf(-1): false, 1e-9: false, 1e-300: false,
	} {
		r := ops.Request{Kind: ops.Replay, Who: "ann", Reason: "test", Filter: consumer.DeadLetterFilter{Consumer: "billing"}, Rate: rate, Expect: -1}
		if err := r.Validate(); (err == nil) != valid {
			t.Errorf("rate %v: %v", rate, err)
		}
	}
}
