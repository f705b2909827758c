package webhook_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
)

func testCheckpoint[TTx any](t *testing.T, store dedup.Store[TTx]) {
	one, err := webhook.NewCheckpoint(store, "stripe", 24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	other, err := webhook.NewCheckpoint(store, "apple", 24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	want := func(c *webhook.Checkpoint[TTx], text string) {
		t.Helper()
		for range 2 { // loading changes nothing
			if state, err := c.Load(t.Context()); err != nil || string(state) != text {
				t.Errorf("loaded %q, %v; want %q", state, err, text)
			}
		}
	}
	save := func(c *webhook.Checkpoint[TTx], text string) {
		t.Helper()
		if err := c.Save(t.Context(), []byte(text)); err != nil {
			t.Error(err)
		}
	}
	want(one, "")
	save(one, "evt_1")
	want(one, "evt_1")
	want(other, "")
	save(other, "page 7")
	save(one, "evt_2")
	want(one, "evt_2")
	want(other, "page 7")
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := one.Save(gone, []byte("evt_3")); err == nil {
		t.Error("saved although its context has ended")
	}
	want(one, "evt_2")
}

func TestCheckpoint(t *testing.T) { testCheckpoint(t, consumertest.NewStore()) }

func TestCheckpointPostgres(t *testing.T) { testCheckpoint(t, pgStore(t, postgres(t))) }

func TestACheckpointIsKeptForItsWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := consumertest.NewStore()
		c, err := webhook.NewCheckpoint(store, "stripe", 24*time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Save(t.Context(), []byte("evt_1")); err != nil {
			t.Fatal(err)
		}
		<-time.After(23 * time.Hour)
		if err := c.Save(t.Context(), []byte("evt_2")); err != nil { // begins a new window
			t.Fatal(err)
		}
		<-time.After(23 * time.Hour)
		sweep(t, store)
		if state, err := c.Load(t.Context()); string(state) != "evt_2" || err != nil {
			t.Errorf("loaded %q, %v within the window", state, err)
		}
		<-time.After(48 * time.Hour)
		sweep(t, store)
		if state, err := c.Load(t.Context()); state != nil || err != nil {
			t.Errorf("loaded %q, %v after the window", state, err)
		}
	})
}

// sweep deletes the claims whose window has passed.
func sweep(t *testing.T, store *consumertest.Store) {
	t.Helper()
	for done := false; !done; {
		swept, err := store.Purge(t.Context(), dedup.Sweep{Owner: "test", Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		done = swept.Done
	}
}

func TestNewCheckpointRefuses(t *testing.T) {
	store := consumertest.NewStore()
	for _, c := range []struct {
		store  dedup.Store[tx]
		name   string
		window time.Duration
		says   string
	}{
		{struct{ dedup.Store[tx] }{store}, "a", time.Hour, "is not a driver.ResultStore"},
		{store, "a\x00", time.Hour, "NUL"},
		{store, strings.Repeat("x", 255), time.Hour, "bytes"},
		{store, "a", time.Minute, "window 1m0s"},
	} {
		if _, err := webhook.NewCheckpoint(c.store, c.name, c.window); err == nil || !strings.Contains(err.Error(),
			c.says) {
			t.Errorf("NewCheckpoint(%.10q, %v): %v, want %q", c.name, c.window, err, c.says)
		}
	}
}

// stubborn is a Store whose Forget does nothing the first times, as if another process had saved between Forget and
// Claim.
type stubborn struct {
	*consumertest.Store
	times int
}

func (s *stubborn) Forget(ctx context.Context, tx *deduptest.Tx, keys ...dedup.Key) error {
	if s.times--; s.times >= 0 {
		return nil
	}
	return s.Store.Forget(ctx, tx, keys...)
}

// Two processes save at the same time: the later one wins, and a state is never stored in the other's row unnoticed.
func TestACheckpointIsSavedAfterAnothers(t *testing.T) {
	for times, want := range map[int]string{3: "later", 100: "earlier"} {
		store := consumertest.NewStore()
		c, err := webhook.NewCheckpoint(dedup.Store[tx](store), "stripe", time.Hour)
		if err == nil {
			err = c.Save(t.Context(), []byte("earlier"))
		}
		late, lateErr := webhook.NewCheckpoint(dedup.Store[tx](&stubborn{store, times}), "stripe", time.Hour)
		if err := errors.Join(err, lateErr); err != nil {
			t.Fatal(err)
		}
		err = late.Save(t.Context(), []byte("later"))
		if failed := err != nil && strings.Contains(fmt.Sprint(err),
			"other processes save it"); failed != (want == "earlier") || err != nil && !failed {
			t.Errorf("%d conflicts: Save: %v", times, err)
		}
		if state, err := c.Load(t.Context()); string(state) != want || err != nil {
			t.Errorf("%d conflicts: loaded %q, %v, want %q", times, state, err, want)
		}
	}
}
