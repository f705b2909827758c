package opstest

import (
	"bytes"
	"cmp"
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
		{"letters parked at nearly the same time are in the order of parking", testParkedAtOnce[TTx]},
		{"dead letters of several consumers are merged", testMergedLetters[TTx]},
		{"dead letters by filters with spaces and odd bytes", testOddFilters[TTx]},
	}
}

func testEmptyStatus[TTx any](t *testing.T, e *env[TTx]) {
	status, err := e.node(t).Operator().Status(bounded(t))
	if err != nil || len(status.Consumers) != 0 || status.Schema < 3 || status.Now.IsZero() ||
		!status.Sweep.LastPass.IsZero() {
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
	if got.Name != name || len(got.Windows) != 1 || got.Windows[0].Window != dedup.DefaultWindow ||
		got.Windows[0].UsedUntil.Before(status.Now) {
		t.Errorf("consumer %+v", got)
	}
	if len(got.Sources) != 1 || got.Sources[0].Name != "kafka topic orders" || got.Sources[0].FirstRun.IsZero() {
		t.Errorf("sources %+v", got.Sources)
	}
	counts := map[observe.Cause]int{}
	for _, l := range got.Letters {
		counts[l.Cause] = l.Count
		if l.Capped || l.Oldest.IsZero() || l.Latest.Before(l.Oldest) {
			t.Errorf("count %+v", l)
		}
	}
	if len(counts) != 2 || counts[observe.CausePermanent] != 1 || counts[observe.CauseNoKey] != 1 || got.Waiting != 2 {
		t.Errorf("letters %v, %d wait; want one of each cause, and both wait", counts, got.Waiting)
	}
	if status.Sweep.Owner != "suite" || status.Sweep.LastPass.IsZero() || status.Sweep.Lag < 0 ||
		status.Sweep.Lag > patient {
		t.Errorf("sweep %+v", status.Sweep)
	}
}

func testParkedAtOnce[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	msgs := messages(30)
	e.park(t, s, msgs...)
	var want []string // newest first
	for _, m := range slices.Backward(msgs) {
		want = append(want, m.ID)
	}
	e.wantChosen(t, s, "all", consumer.DeadLetterFilter{Consumer: name}, want)
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
		{
			"a part of the error",
			consumer.DeadLetterFilter{Error: "deployment is"},
			[]string{"order-003", "order-002", "order-001", "order-000"},
		},
		{"the part is case-sensitive", consumer.DeadLetterFilter{Error: "Deployment"}, nil},
		{"a part is no pattern", consumer.DeadLetterFilter{Error: "%"}, nil},
		{"position", consumer.DeadLetterFilter{Position: "orders/0/order-002"}, []string{"order-002"}},
		{"cause", consumer.DeadLetterFilter{Cause: observe.CauseMismatch}, nil},
		{"since", consumer.DeadLetterFilter{Since: between}, []string{"order-003"}},
		{"until", consumer.DeadLetterFilter{Until: between}, []string{"order-002", "order-001", "order-000"}},
		{"several", consumer.DeadLetterFilter{Topic: "orders", Until: between, Limit: 1}, []string{"order-002"}},
	} {
		tc.filter.Consumer = name
		e.wantChosen(t, s, tc.what, tc.filter, tc.want)
	}
}

// Names are compared byte by byte. A request must not choose more than the listing shows.
func testOddFilters[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	e.park(t, s, message("a", "orders"), message("a ", "orders "), message(" ", "refunds"), message("d", "re\xfffunds"))
	for _, tc := range []struct {
		what   string
		filter consumer.DeadLetterFilter
		want   []string
	}{
		{"key", consumer.DeadLetterFilter{MessageID: "a"}, []string{"a"}},
		{"key with a space", consumer.DeadLetterFilter{MessageID: "a "}, []string{"a "}},
		{"key of a space", consumer.DeadLetterFilter{MessageID: " "}, []string{" "}},
		{"topic", consumer.DeadLetterFilter{Topic: "orders"}, []string{"a"}},
		{"topic of a space", consumer.DeadLetterFilter{Topic: " "}, nil},
		{"tenant of a space", consumer.DeadLetterFilter{Tenant: " "}, nil},
		{"topic with an odd byte", consumer.DeadLetterFilter{Topic: "re\xfffunds"}, []string{"d"}},
		{"error with NUL", consumer.DeadLetterFilter{Error: "deployment\x00"}, nil},
		{"consumer with a space", consumer.DeadLetterFilter{Consumer: name + " "}, nil},
	} {
		tc.filter.Consumer = cmp.Or(tc.filter.Consumer, name)
		e.wantChosen(t, s, tc.what, tc.filter, tc.want)
	}
}

// wantChosen fails unless the listing and a request choose the letters with these keys.
func (e *env[TTx]) wantChosen(t *testing.T, s store[TTx], what string, filter consumer.DeadLetterFilter,
	want []string,
) {
	t.Helper()
	found, err := s.Operator().DeadLetters(bounded(t), filter)
	var ids []string
	for _, l := range found {
		ids = append(ids, l.Record.Key.ID)
	}
	if err != nil || !slices.Equal(ids, want) {
		t.Errorf("%s: %q, %v; want %q", what, ids, err, want)
	}
	r := replayRequest()
	r.Filter = filter
	a, err := s.Operator().Request(bounded(t), r)
	if err != nil {
		t.Errorf("%s: %v", what, err)
		return
	}
	if a.Matched != len(want) || a.Waiting != a.Matched {
		t.Errorf("%s: the request marked %d; want %d", what, a.Matched, len(want))
	}
	if _, err := s.Operator().End(bounded(t), a.ID, fmt.Sprint("case ", what)); err != nil {
		t.Error(err)
	}
}

// The newest letters of all consumers are listed, page by page, also those that another process parked.
func testMergedLetters[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	names := []string{"billing", "mailer", "mailer-eu", "shipping"}
	consumers := map[string]*consumer.Consumer[TTx]{}
	for _, name := range names {
		consumers[name] = e.named(t, s, name, func(*consumer.Message) error { return consumer.Permanent(errBroken) })
	}
	for i, m := range messages(10) { // shipping parks the last ones
		if err := consumers[names[max(i%3, i/2-1)]].Process(bounded(t), m); err != nil {
			t.Fatal(err)
		}
	}
	all, err := s.Operator().DeadLetters(bounded(t), consumer.DeadLetterFilter{})
	if err != nil || len(all) != 10 {
		t.Fatalf("%d letters, %v", len(all), err)
	}
	if !slices.IsSortedFunc(all, func(a, b consumer.DeadLetter) int {
		return cmp.Or(b.First.Compare(a.First), bytes.Compare(b.ID[:], a.ID[:]))
	}) {
		t.Error("the letters are not listed newest first")
	}
	for limit := 1; limit <= 4; limit++ {
		var paged []consumer.DeadLetterID
		filter := consumer.DeadLetterFilter{Limit: limit}
		for len(paged) < 20 {
			page, err := s.Operator().DeadLetters(bounded(t), filter)
			if err != nil || len(page) > limit {
				t.Fatalf("%d letters, %v", len(page), err)
			}
			if len(page) == 0 {
				break
			}
			for _, l := range page {
				paged = append(paged, l.ID)
			}
			filter.After = page[len(page)-1].Cursor()
		}
		if !slices.EqualFunc(all, paged, func(l consumer.DeadLetter,
			id consumer.DeadLetterID,
		) bool {
			return l.ID == id
		}) {
			t.Errorf("%d at a time: %v", limit, paged)
		}
	}
	if found, err := s.Operator().DeadLetters(bounded(t),
		consumer.DeadLetterFilter{MessageID: "order-009"}); err != nil || len(found) != 1 {
		t.Errorf("by key: %d, %v", len(found), err)
	}
}
