package opstest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/observe"
)

func statusCases[TTx any]() []testCase[TTx] {
	return []testCase[TTx]{
		{"status", testStatus[TTx]},
		{"status of an empty database", testEmptyStatus[TTx]},
		{"dead letters by filter", testFilters[TTx]},
	}
}

func testEmptyStatus[TTx any](t *testing.T, e *env[TTx]) {
	status, err := e.node(t).Operator().Status(bounded(t))
	if err != nil || len(status.Consumers) != 0 || status.Schema < 3 || status.Now.IsZero() || !status.Sweep.LastPass.IsZero() {
		t.Errorf("%+v, %v", status, err)
	}
}

func testStatus[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	c := e.consumer(t, s, func(m *consumer.Message) error {
		if m.ID == "order-000" {
			return consumer.Permanent(errBroken)
		}
		return nil
	})
	c.AddSource("kafka topic orders")
	if err := c.Start(bounded(t)); err != nil {
		t.Fatal(err)
	}
	for _, m := range append(messages(3), message("", "orders")) {
		if err := c.Process(bounded(t), m); err != nil {
			t.Fatal(err)
		}
	}
	request(t, s.Operator(), replayRequest())
	if purger, ok := s.Store.(dedup.Purger); ok {
		for done := false; !done; {
			swept, err := purger.Purge(bounded(t), dedup.Sweep{Owner: "suite", Lease: time.Minute, Limit: 100})
			if err != nil {
				t.Fatal(err)
			}
			done = swept.Done
		}
	}
	status, err := s.Operator().Status(bounded(t))
	if err != nil || len(status.Consumers) != 1 {
		t.Fatalf("%+v, %v", status, err)
	}
	got := status.Consumers[0]
	if got.Name != name || len(got.Windows) != 1 || got.Windows[0].Window != dedup.DefaultWindow || got.Windows[0].UsedUntil.Before(status.Now) {
		t.Errorf("consumer %+v", got)
	}
	if len(got.Sources) != 1 || got.Sources[0].Name != "kafka topic orders" || got.Sources[0].FirstRun.IsZero() {
		t.Errorf("sources %+v", got.Sources)
	}
	counts := map[observe.Cause]int{}
	for _, l := range got.Letters {
		counts[l.Reason] = l.Count
		if l.Capped || l.Oldest.IsZero() || l.Latest.Before(l.Oldest) {
			t.Errorf("count %+v", l)
		}
	}
	if len(counts) != 2 || counts[observe.CausePermanent] != 1 || counts[observe.CauseNoKey] != 1 || got.Waiting != 2 {
		t.Errorf("letters %v, %d wait; want one of each reason, and both wait", counts, got.Waiting)
	}
	if status.Sweep.Owner != "suite" || status.Sweep.LastPass.IsZero() || status.Sweep.Lag < 0 || status.Sweep.Lag > patient {
		t.Errorf("sweep %+v", status.Sweep)
	}
}

func testFilters[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	msgs := messages(4)
	msgs[1].Topic = "refunds"
	msgs[2].Headers = map[string]string{"tenant": "acme"}
	e.park(t, s, msgs[:3]...)
	status, err := s.Operator().Status(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	between := status.Now
	for parked := between; !between.After(parked); between = status.Now { // SQLite counts milliseconds
		if status, err = s.Operator().Status(bounded(t)); err != nil {
			t.Fatal(err)
		}
	}
	e.park(t, s, msgs[3])
	for _, tc := range []struct {
		what   string
		filter consumer.DeadLetterFilter
		want   []string
	}{
		{"all", consumer.DeadLetterFilter{}, []string{"order-003", "order-002", "order-001", "order-000"}},
		{"topic", consumer.DeadLetterFilter{Topic: "refunds"}, []string{"order-001"}},
		{"key", consumer.DeadLetterFilter{MessageID: "order-000"}, []string{"order-000"}},
		{"tenant", consumer.DeadLetterFilter{Tenant: "acme"}, []string{"order-002"}},
		{"a part of the cause", consumer.DeadLetterFilter{Cause: "deployment is"}, []string{"order-003", "order-002", "order-001", "order-000"}},
		{"the part is case-sensitive", consumer.DeadLetterFilter{Cause: "Deployment"}, nil},
		{"a part is no pattern", consumer.DeadLetterFilter{Cause: "%"}, nil},
		{"position", consumer.DeadLetterFilter{Position: "orders/0/order-002"}, []string{"order-002"}},
		{"reason", consumer.DeadLetterFilter{Reason: observe.CauseMismatch}, nil},
		{"since", consumer.DeadLetterFilter{Since: between}, []string{"order-003"}},
		{"until", consumer.DeadLetterFilter{Until: between}, []string{"order-002", "order-001", "order-000"}},
		{"several", consumer.DeadLetterFilter{Topic: "orders", Until: between, Limit: 1}, []string{"order-002"}},
	} {
		tc.filter.Consumer = name
		found, err := s.Operator().DeadLetters(bounded(t), tc.filter)
		var ids []string
		for _, l := range found {
			ids = append(ids, l.Record.Key.ID)
		}
		if err != nil || !slices.Equal(ids, tc.want) {
			t.Errorf("%s: %q, %v; want %q", tc.what, ids, err, tc.want)
		}
		// A request chooses the same letters.
		r := replayRequest()
		r.Filter = tc.filter
		a, err := s.Operator().Request(bounded(t), r)
		if err != nil || a.Matched != len(tc.want) || a.Waiting != a.Matched {
			t.Errorf("%s: the request marked %d, %v; want %d", tc.what, a.Matched, err, len(tc.want))
		}
		if _, err := s.Operator().End(bounded(t), a.ID, fmt.Sprint("case ", tc.what)); err != nil {
			t.Error(err)
		}
	}
}
