package driver_test

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

// ids assigns ids to messages of these topics, in one call each, and returns them.
func ids(t *testing.T, ctx context.Context, topics ...string) (got []string) {
	t.Helper()
	for _, topic := range topics {
		msgs := []outbox.Message{{Topic: topic}}
		if err := driver.AssignIDs(ctx, msgs); err != nil {
			t.Fatal(err)
		}
		got = append(got, msgs[0].ID)
	}
	return got
}

func scoped(t *testing.T, seed string) context.Context {
	t.Helper()
	ctx, end := driver.WithScope(t.Context(), seed)
	t.Cleanup(end)
	return ctx
}

func TestOutboxScopeRepeatsItsIDs(t *testing.T) {
	first := ids(t, scoped(t, "orders/17"), "a", "a", "b", "a")
	if diff := cmp.Diff(first, ids(t, scoped(t, "orders/17"), "a", "a", "b", "a")); diff != "" {
		t.Errorf("executed again: %s", diff)
	}
	uuid := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	seen := map[string]bool{}
	for _, id := range append(first, ids(t, scoped(t, "orders/18"), "a", "b")...) {
		if seen[id] || !uuid.MatchString(id) {
			t.Errorf("%s twice, or no UUID of version 8", id)
		}
		seen[id] = true
	}
	// For ever: ids that change with an update of this module make every message new to its readers.
	if want := []string{"e7cf957f-a629-8692-b0c5-02382f28b275", "1e4e4cad-f0b9-8088-9cc8-3ff929bff591"}; !cmp.Equal(want, first[:2]) {
		t.Errorf("ids of orders/17 in topic a are %q, want %q", first[:2], want)
	}
}

// The keys of those who consume these messages are in order if the seed has a time. The IDs are frozen, as above.
func TestOutboxScopeKeepsTheTimeOfItsSeed(t *testing.T) {
	const seed = "orders/018f4e9c-7a3b-7cc1-b1a2-3c4d5e6f7081"
	got := ids(t, scoped(t, seed), "a", "a", "b")
	if want := []string{
		"018f4e9c-7a3b-7958-8050-21cbe061a826", "018f4e9c-7a3b-79c8-9cfc-4f51ea088ec7",
		"018f4e9c-7a3b-7a69-a82a-c1d5bbfefe0e",
	}; !cmp.Equal(want, got) {
		t.Errorf("ids of %s are %q, want %q", seed, got, want)
	}
	if diff := cmp.Diff(got, ids(t, scoped(t, seed), "a", "a", "b")); diff != "" {
		t.Errorf("executed again: %s", diff)
	}
	if other := ids(t, scoped(t, "another "+seed), "a"); other[0] == got[0] {
		t.Errorf("two seeds with one time have the ID %s", other[0])
	}
}

// Each topic has its own ordinals. So when another version of a handler also sends a message to another topic, the IDs
// of the other messages stay the same.
func TestOutboxScopeCountsPerTopic(t *testing.T) {
	plain := ids(t, scoped(t, "s"), "a", "a")
	mixed := ids(t, scoped(t, "s"), "a", "b", "a")
	if diff := cmp.Diff(plain, []string{mixed[0], mixed[2]}); diff != "" {
		t.Error(diff)
	}
}

// The IDs do not depend on how messages are spread over calls, or on messages with an ID of their own.
func TestOutboxScopeIgnoresCallsAndStatedIDs(t *testing.T) {
	want := ids(t, scoped(t, "s"), "a", "a", "b")
	msgs := []outbox.Message{{Topic: "b", ID: "own"}, {Topic: "a"}, {Topic: "a", ID: "own"}, {Topic: "a"}, {Topic: "b"}}
	if err := driver.AssignIDs(scoped(t, "s"), msgs); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range msgs {
		got = append(got, m.ID)
	}
	if diff := cmp.Diff([]string{"own", want[0], "own", want[1], want[2]}, got); diff != "" {
		t.Error(diff)
	}
}

func TestOutboxScopeRefuses(t *testing.T) {
	ended, end := driver.WithScope(t.Context(), "s")
	ids(t, ended, "a")
	end()
	closedOff, endClosed := driver.WithScope(scoped(t, "s"), "")
	defer endClosed()
	for _, test := range []struct {
		name string
		ctx  context.Context
		says string
	}{
		{"outside a handler", t.Context(), "outside a handler"},
		{"after the handler has returned", ended, "has returned"},
		{"closed off", closedOff, "HandleBatch"},
	} {
		t.Run(test.name, func(t *testing.T) {
			msgs := []outbox.Message{{Topic: "stated", ID: "own"}, {Topic: "a"}}
			err := driver.AssignIDs(test.ctx, msgs)
			if !errors.Is(err, outbox.ErrNoID) || !strings.Contains(err.Error(), test.says) ||
				!strings.Contains(err.Error(), `topic "a"`) {
				t.Errorf("AssignIDs = %v, want ErrNoID that says %q and names the topic", err, test.says)
			}
			if msgs[1].ID != "" {
				t.Errorf("it assigned %s all the same", msgs[1].ID)
			}
			if err := driver.AssignIDs(test.ctx, msgs[:1]); err != nil {
				t.Errorf("a stated ID is refused too: %v", err)
			}
		})
	}
}

// Two calls at once could take their ordinals in the other order the next time.
func TestOutboxScopeRefusesOverlappingCalls(t *testing.T) {
	ctx := scoped(t, "s")
	ready, done, err := driver.Prepare(ctx, []outbox.Message{{Topic: "a"}})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(ids(t, scoped(t, "s"), "a"), []string{ready[0].ID}); diff != "" {
		t.Errorf("the first call: %s", diff)
	}
	onAnotherGoroutine := func(m outbox.Message) error {
		answer := make(chan error)
		go func() { answer <- driver.AssignIDs(ctx, []outbox.Message{m}) }()
		return <-answer
	}
	if err := onAnotherGoroutine(outbox.Message{Topic: "a", ID: "own"}); err != nil {
		t.Errorf("a call with its own ID, beside another call = %v", err)
	}
	if err := onAnotherGoroutine(outbox.Message{Topic: "a"}); !errors.Is(err, outbox.ErrNoID) ||
		!strings.Contains(err.Error(), "two goroutines") {
		t.Errorf("a call beside another call = %v, want ErrNoID", err)
	}
	done()
	if err := driver.AssignIDs(ctx, []outbox.Message{{Topic: "a"}}); !errors.Is(err, outbox.ErrNoID) ||
		!strings.Contains(err.Error(), "two goroutines") {
		t.Errorf("a call after two that overlapped = %v, want ErrNoID: its ordinal depends on which of them came first", err)
	}
	if err := driver.AssignIDs(ctx, []outbox.Message{{Topic: "a", ID: "own"}}); err != nil {
		t.Errorf("a call with its own ID, after two that overlapped = %v", err)
	}
}

// Whatever goroutines do, with -race: each call gets IDs that no other call gets, or ErrNoID.
func TestOutboxScopeOfManyGoroutines(t *testing.T) {
	ctx := scoped(t, "s")
	const goroutines = 50
	got := make(chan string, goroutines)
	var all sync.WaitGroup
	for range goroutines {
		all.Go(func() {
			ready, done, err := driver.Prepare(ctx, []outbox.Message{{Topic: "a"}})
			switch {
			case err == nil:
				got <- ready[0].ID
				done()
			case !errors.Is(err, outbox.ErrNoID):
				t.Errorf("Prepare = %v, want nil or ErrNoID", err)
			}
		})
	}
	all.Wait()
	close(got)
	seen := map[string]bool{}
	for id := range got {
		if seen[id] {
			t.Errorf("%s twice", id)
		}
		seen[id] = true
	}
	if len(seen) == 0 {
		t.Error("all calls were refused, also the first one")
	}
}

// A handler may leave all of its enqueueing to one goroutine of its own, as handlers do that bound their work in time.
func TestOutboxScopeOfOneOtherGoroutine(t *testing.T) {
	ctx := scoped(t, "s")
	var got []string
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		got = append(ids(t, ctx, "a"), ids(t, ctx, "a")...)
	}()
	<-finished
	got = append(got, ids(t, ctx, "a")...)
	if diff := cmp.Diff(ids(t, scoped(t, "s"), "a", "a", "a"), got); diff != "" {
		t.Error(diff)
	}
}

// A scope within a scope has its own ordinals.
func TestOutboxScopeNests(t *testing.T) {
	outer := scoped(t, "outer")
	one := ids(t, outer, "a")
	inner, end := driver.WithScope(outer, "inner")
	defer end()
	if diff := cmp.Diff(ids(t, scoped(t, "inner"), "a"), ids(t, inner, "a")); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(ids(t, scoped(t, "outer"), "a", "a"), append(one, ids(t, outer, "a")...)); diff != "" {
		t.Error(diff)
	}
}
