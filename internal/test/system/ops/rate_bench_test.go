package ops_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/internal/test/system/dashboardtest"
	"github.com/txonce/txonce/observe"
)

// BenchmarkReplayRate measures what one worker reaches of a rate of 50 letters a second, beside its rate without a
// limit: letters/s. A run replays b.N letters.
//
//	go test -run '^$' -bench ReplayRate -benchtime 500x ./consumer/ops
func BenchmarkReplayRate(b *testing.B) {
	for name, open := range map[string]func(testing.TB) *dashboardtest.DB{
		"SQLite":     dashboardtest.SQLite,
		"PostgreSQL": dashboardtest.Postgres, "MariaDB": dashboardtest.MySQL,
	} {
		for _, rate := range []float64{50, 0} {
			b.Run(fmt.Sprint(name, "/", rate), func(b *testing.B) { replayAtRate(b, open(b), rate) })
		}
	}
}

func replayAtRate(b *testing.B, db *dashboardtest.DB, rate float64) {
	worker := db.Consumer(b, "billing")
	for i := range b.N {
		m := dashboardtest.Message(fmt.Sprint("order-", i))
		m.Headers["fails"] = "yes"
		if err := worker.Process(b.Context(), m); err != nil {
			b.Fatal(err)
		}
	}
	db.Fixed.Store(true)
	r := ops.Request{
		Kind: ops.Replay, Who: "ann", Reason: "a benchmark",
		Filter: consumer.DeadLetterFilter{Consumer: "billing"}, Rate: rate, Expect: b.N,
	}
	ctx, stop := context.WithCancel(b.Context())
	defer stop()
	b.ResetTimer()
	a, err := db.Operator().Request(ctx, r)
	if err != nil {
		b.Fatal(err)
	}
	go func() { _ = worker.RunReplays(ctx) }()
	for a.Ended.IsZero() {
		<-time.After(20 * time.Millisecond)
		found, err := db.Operator().Actions(ctx, ops.ActionFilter{ID: a.ID})
		if err != nil {
			b.Fatal(err)
		}
		a = found[0]
	}
	if a.Results[observe.Processed] != b.N {
		b.Fatalf("%+v", a)
	}
	b.ReportMetric(float64(b.N)/a.Ended.Sub(a.Requested).Seconds(), "letters/s")
}
