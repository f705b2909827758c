package ops_test

import (
	"math"
	"strings"
	"testing"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/ops"
)

// A rate that no database can keep would stop all requests of its consumer.
func TestRequestRates(t *testing.T) {
	for rate, valid := range map[float64]bool{
		0: true, 10: true, 1e9: true, 1.0 / 86400: true, -1: false, math.NaN(): false, math.Inf(1): false,
		math.Inf(-1): false, 1e-9: false, 1e-300: false,
	} {
		r := ops.Request{
			Kind: ops.Replay, Who: "ann", Reason: "test",
			Filter: consumer.DeadLetterFilter{Consumer: "billing"}, Rate: rate, Expect: -1,
		}
		if err := r.Validate(); (err == nil) != valid {
			t.Errorf("rate %v: %v", rate, err)
		}
	}
}

// A key that no message can have is refused at once, and not when a worker uses it.
func TestRequestKeys(t *testing.T) {
	for _, kind := range []ops.Kind{ops.Replay, ops.Repair} {
		for key, valid := range map[string]bool{"order-1b": true, "bad\xff": false, strings.Repeat("k", 2000): false} {
			filter := consumer.DeadLetterFilter{ID: consumer.DeadLetterID{1}, Consumer: "billing"}
			r := ops.Request{Kind: kind, Who: "ann", Reason: "test", Filter: filter, Key: key, Expect: -1}
			if err := r.Validate(); (err == nil) != valid {
				t.Errorf("%s, key %.10q: %v", kind, key, err)
			}
		}
	}
}
