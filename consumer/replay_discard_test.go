package consumer_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/observe"
)

func TestDiscard(t *testing.T) {
	for _, tc := range []struct {
		name    string
		before  []*consumer.Message
		letters int // after another delivery of the last one
	}{
		{"poison", []*consumer.Message{msg("1", "poison")}, 0},
		{"mismatch", []*consumer.Message{msg("1", "a"), msg("1", "b")}, 1},
		{"no key", []*consumer.Message{msg("", "a")}, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newConsumer(t, config{Store: consumertest.NewStore(), Handle: poison})
			for _, m := range tc.before {
				process(t, c, m)
			}
			l := letters(t, c)[0]
			if err := c.Discard(t.Context(), l); err != nil || len(letters(t, c)) != 0 {
				t.Errorf("err %v, %d letters", err, len(letters(t, c)))
			}
			if err := c.Discard(t.Context(), l); !errors.Is(err, consumer.ErrNotParked) {
				t.Errorf("again: %v, want ErrNotParked", err)
			}
			process(t, c, tc.before[len(tc.before)-1])
			if n := len(letters(t, c)); n != tc.letters {
				t.Errorf("delivered once more: %d letters, want %d", n, tc.letters)
			}
		})
	}
}

// A discarded message does not run when it is delivered again, and another message with one of its aliases does not run
// either.
func TestDiscardClaimsAliases(t *testing.T) {
	store := consumertest.NewStore()
	c := newConsumer(t, config{Store: store, Handle: poison})
	first := msg("1", "poison")
	first.Aliases = []string{"x"}
	process(t, c, first)
	mustDiscard(t, c)
	process(t, c, &consumer.Message{ID: "2", Aliases: []string{"x"}})
	wantCount(t, store.Database(), "2", 0)
	if found := letters(t, c); len(found) != 1 || found[0].Cause != observe.CauseKnownContent {
		t.Errorf("letters %v, want one known content", found)
	}
}

// The handler of a replay gets what the message is claimed with: the key, the aliases that are not another message's,
// and the fingerprint that its source gave. Under a new key, a payload that Repair has changed does not have that
// fingerprint.
func TestReplayedMessage(t *testing.T) {
	given := dedup.FingerprintOf([]byte("given by the source"))
	for _, tc := range []struct {
		name   string
		opts   consumer.Replay
		id     string
		claims dedup.Fingerprint
	}{
		{"unchanged", consumer.Replay{AsNew: true}, "1", given},
		{"under a new key", consumer.Replay{AsNew: true, Key: "1b"}, "1b", given},
		{
			"repaired", consumer.Replay{AsNew: true, Repair: func(m *consumer.Message) error { m.Payload = []byte("good"); return nil }}, "1", given,
		},
		{
			"repaired, under a new key",
			consumer.Replay{AsNew: true, Key: "1b", Repair: func(m *consumer.Message) error { m.Payload = []byte("good"); return nil }},
			"1b",
			dedup.Fingerprint{},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			store := consumertest.NewStore()
			broken := true
			var got consumer.Message
			c := newConsumer(t, config{Store: store, Fingerprint: consumer.NoFingerprint, Handle: func(_ context.Context, _ tx, m *consumer.Message) error {
				if got = *m; broken && m.ID == "1" {
					return consumer.Permanent(errPoison)
				}
				return nil
			}})
			process(t, c, &consumer.Message{
				ID: "1", Aliases: []string{"x", "y"}, Fingerprint: &given,
				Headers: map[string]string{"a": "b"},
			})
			process(t, c, &consumer.Message{ID: "2", Aliases: []string{"x"}})
			broken = false
			if ran, err := c.Replay(t.Context(), letters(t, c)[0], tc.opts); !ran || err != nil {
				t.Fatalf("ran %v, %v", ran, err)
			}
			if got.ID != tc.id || !slices.Equal(got.Aliases, []string{"y"}) ||
				!maps.Equal(got.Headers, map[string]string{"a": "b"}) {
				t.Errorf("the handler got the ID %q, the aliases %q, the headers %q", got.ID, got.Aliases, got.Headers)
			}
			if got.Fingerprint == nil || *got.Fingerprint != tc.claims {
				t.Errorf("the handler got the fingerprint %v", got.Fingerprint)
			}
			claim, found, err := store.Lookup(t.Context(), dedup.Key{Consumer: "billing", ID: tc.id})
			if !found || err != nil || claim.Fingerprint != tc.claims {
				t.Errorf("found %v, %v, fingerprint %v, want %v", found, err, claim.Fingerprint, tc.claims)
			}
		})
	}
}

// Two messages were sent under one key by mistake, and both are replayed under the same new key: the second one is not
// taken for the first.
func TestTwoMismatchesUnderOneNewKey(t *testing.T) {
	store := consumertest.NewStore()
	c := newConsumer(t, config{Store: store, Fingerprint: consumer.NoFingerprint})
	for _, content := range []string{"a", "b", "c"} {
		m := msg("1", content)
		fingerprint := dedup.FingerprintOf(m.Payload)
		m.Fingerprint = &fingerprint // as the Verifier of a webhook does
		process(t, c, m)
	}
	found := letters(t, c)
	if len(found) != 2 {
		t.Fatalf("letters %v, want two", found)
	}
	if ran, err := c.Replay(t.Context(), found[0], consumer.Replay{Key: "1#2"}); !ran || err != nil {
		t.Errorf("the first: ran %v, %v", ran, err)
	}
	if ran, err := c.Replay(t.Context(), found[1], consumer.Replay{Key: "1#2"}); ran ||
		!errors.Is(err, dedup.ErrMismatch) {
		t.Errorf("the second: ran %v, %v, want ErrMismatch", ran, err)
	}
	if n := len(letters(t, c)); n != 1 {
		t.Errorf("%d letters left, want the second", n)
	}
	wantCount(t, store.Database(), "1#2", 1)
}
