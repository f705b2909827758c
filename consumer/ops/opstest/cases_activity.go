package opstest

import (
	"reflect"
	"testing"
	"time"

	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/observe"
)

func activityCases[TTx any]() []testCase[TTx] {
	return []testCase[TTx]{{"activity is replaced, listed and forgotten", testActivity[TTx]}}
}

func testActivity[TTx any](t *testing.T, e *env[TTx]) {
	keeper := e.node(t).Activity()
	hour := time.Now().UTC().Truncate(time.Hour)
	row := func(minute time.Time, node string, n int64, paused observe.Cause) ops.Activity {
		return ops.Activity{
			Minute: minute, Consumer: name, Node: node,
			Messages: map[observe.Outcome]int64{observe.Processed: n, observe.Retried: 1}, Paused: paused,
		}
	}
	for _, rows := range [][]ops.Activity{
		{row(hour.Add(-ops.ActivityKept-time.Minute), "a", 1, "")},
		{row(hour.Add(-time.Minute), "b", 2, observe.CauseDatabase), row(hour.Add(-time.Minute), "a", 3, "")},
		{row(hour, "a", 4, "")},
		{row(hour, "a", 5, observe.CauseBudget)}, // more of the same minute
		nil,
	} {
		if err := keeper.RecordActivity(bounded(t), rows); err != nil {
			t.Fatal(err)
		}
	}
	for _, since := range []time.Time{hour.Add(-2 * time.Hour), hour.Add(-2 * ops.ActivityKept)} {
		got, err := keeper.Activity(bounded(t), since)
		if err != nil {
			t.Fatal(err)
		}
		want := []ops.Activity{row(hour.Add(-time.Minute), "a", 3, ""), row(hour.Add(-time.Minute), "b", 2,
			observe.CauseDatabase), row(hour, "a", 5, observe.CauseBudget)}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("since %v: %+v, want %+v", since, got, want)
		}
	}
}
