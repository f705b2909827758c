package consumer_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/consumer"
)

// A report that is not made under the lock of the state that it is about can come too late: a pause would be reported
// that is over, and the process would not be ready until the next one ends.
func TestPausesAreReportedUnderTheirLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, tc := range map[string]struct {
			run  func(ctx context.Context, err error) *consumer.Reports
			want []string
		}{
			"database": {consumer.ReportFaults, []string{"failing false", "failing false", "failing true", "working"}},
			"budget":   {consumer.ReportBudget, []string{"failing true", "failing true", "working"}},
		} {
			got := tc.run(t.Context(), errFault)
			if diff := cmp.Diff(tc.want, got.Told); diff != "" || got.Unlocked+got.Locked > 0 {
				t.Errorf("%s: %d reports without the lock, %d told under it; %s", name, got.Unlocked, got.Locked, diff)
			}
		}
	})
}
