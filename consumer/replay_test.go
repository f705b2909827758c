package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/observe"
)

func TestReplay(t *testing.T) {
	repair := func(m *consumer.Message) error { m.Payload = []byte("good"); return nil }
	giveKey := func(m *consumer.Message) error { m.ID = "1"; return nil }
	old := time.Now().Add(-30 * 24 * time.Hour)
	for _, tc := range []struct {
		name    string
		before  []*consumer.Message // delivered before, in order; the last one is parked
		forget  bool                // the horizon is later than the message
		meddle  func(t *testing.T, c, fixed *consumer.Consumer[tx])
		opts    consumer.Replay
		ran     bool
		err     error
		says    string              // part of the error
		after   []*consumer.Message // delivered afterwards
		effects map[string]int      // in the end
		letters int
	}{
		{
			name: "repaired", before: []*consumer.Message{msg("1", "poison")}, opts: consumer.Replay{Repair: repair},
			ran:   true,
			after: []*consumer.Message{msg("1", "poison")}, effects: map[string]int{"1": 1},
		},
		{
			name: "still poison", before: []*consumer.Message{msg("1", "poison")}, err: errPoison,
			effects: map[string]int{"1": 0}, letters: 1,
		},
		{
			name: "repair fails", before: []*consumer.Message{msg("1", "poison")},
			opts: consumer.Replay{Repair: func(*consumer.Message) error { return dedup.ErrBadKey }},
			err:  dedup.ErrBadKey, letters: 1,
		},
		{
			name: "repair panics", before: []*consumer.Message{msg("1", "poison")},
			opts: consumer.Replay{Repair: func(*consumer.Message) error { panic(dedup.ErrBadKey) }},
			err:  dedup.ErrBadKey, letters: 1,
		},
		{
			name: "settled by a later delivery", before: []*consumer.Message{msg("1", "poison")},
			meddle: func(t *testing.T, _, fixed *consumer.Consumer[tx]) { process(t, fixed, msg("1", "poison")) },
			opts:   consumer.Replay{Repair: repair}, effects: map[string]int{"1": 1},
		},
		{
			name: "settled by a later delivery, with a new key", before: []*consumer.Message{msg("1", "poison")},
			meddle: func(t *testing.T, _, fixed *consumer.Consumer[tx]) { process(t, fixed, msg("1", "poison")) },
			// the new key is free
			opts: consumer.Replay{Repair: repair, Key: "2"}, effects: map[string]int{"1": 1, "2": 1},
			after: []*consumer.Message{msg("2", "good")},
		},
		{
			name: "under a new key", before: []*consumer.Message{msg("1", "poison")},
			opts: consumer.Replay{Repair: repair, Key: "2"}, ran: true,
			after: []*consumer.Message{msg("1", "poison"), msg("2", "good")}, effects: map[string]int{"1": 0, "2": 1},
		},
		{
			name: "taken by somebody else", before: []*consumer.Message{msg("1", "poison")},
			meddle: func(t *testing.T, c, _ *consumer.Consumer[tx]) { mustDiscard(t, c) },
			opts:   consumer.Replay{Repair: repair}, effects: map[string]int{"1": 0},
		},
		{
			name: "key in use for other content meanwhile", before: []*consumer.Message{msg("1", "poison")},
			meddle: func(t *testing.T, c, _ *consumer.Consumer[tx]) { process(t, c, msg("1", "other")) },
			opts:   consumer.Replay{Repair: repair}, err: dedup.ErrMismatch, says: "Key",
			effects: map[string]int{"1": 1}, letters: 1,
		},
		{
			name: "mismatch", before: []*consumer.Message{msg("1", "a"), msg("1", "b")}, err: dedup.ErrMismatch,
			says: "Key", effects: map[string]int{"1": 1}, letters: 1,
		},
		{
			name:   "mismatch, the other content forgotten by now",
			before: []*consumer.Message{msg("1", "a"), msg("1", "b")},
			err:    dedup.ErrMismatch, says: "Key", effects: map[string]int{"1": 1}, letters: 1,
		},
		{
			name: "mismatch under its own key", before: []*consumer.Message{msg("1", "a"), msg("1", "b")},
			opts: consumer.Replay{Key: "1"},
			err:  dedup.ErrMismatch, says: "Key", effects: map[string]int{"1": 1}, letters: 1,
		},
		{
			name: "mismatch under a key in use", before: []*consumer.Message{
				msg("2", "c"), msg("1", "a"),
				msg("1", "b"),
			}, opts: consumer.Replay{Key: "2"},
			err: dedup.ErrMismatch, says: "Key", effects: map[string]int{"1": 1, "2": 1}, letters: 1,
		},
		{
			name: "mismatch under a new key", before: []*consumer.Message{msg("1", "a"), msg("1", "b")},
			opts: consumer.Replay{Key: "1b"}, ran: true,
			after: []*consumer.Message{msg("1b", "b")}, effects: map[string]int{"1": 1, "1b": 1},
		},
		{name: "no key", before: []*consumer.Message{msg("", "a")}, err: dedup.ErrNoKey, says: "Repair", letters: 1},
		{
			name: "no key, given one", before: []*consumer.Message{msg("", "a")}, opts: consumer.Replay{Key: "1"},
			ran:   true,
			after: []*consumer.Message{msg("1", "a")}, effects: map[string]int{"1": 1},
		},
		{
			name: "no key, repaired", before: []*consumer.Message{msg("", "a")}, opts: consumer.Replay{Repair: giveKey},
			ran:   true,
			after: []*consumer.Message{msg("1", "a")}, effects: map[string]int{"1": 1},
		},
		{
			name: "no key, given a bad one", before: []*consumer.Message{msg("", "a")}, opts: consumer.Replay{Key: "\xff"},
			err: dedup.ErrBadKey, letters: 1,
		},
		{
			name: "unprovable", before: []*consumer.Message{msg("0", ""), {ID: "1", Time: old}}, forget: true,
			err: dedup.ErrUnprovable, says: "AsNew", letters: 1,
		},
		{
			name: "unprovable, as new", before: []*consumer.Message{msg("0", ""), {ID: "1", Time: old}}, forget: true,
			opts: consumer.Replay{AsNew: true}, ran: true,
			after: []*consumer.Message{{ID: "1", Time: old}}, effects: map[string]int{"1": 1},
		},
		{
			name: "poison, unprovable by now", before: []*consumer.Message{
				msg("0", ""),
				{ID: "1", Payload: []byte("poison"), Time: old},
			},
			opts: consumer.Replay{Repair: repair}, err: dedup.ErrUnprovable, says: "AsNew", letters: 1,
		},
		{
			name: "known content", before: []*consumer.Message{
				{ID: "1", Aliases: []string{"x"}},
				{ID: "2", Aliases: []string{"x"}},
			},
			err: consumer.ErrKnownContent, says: "AsNew", effects: map[string]int{"1": 1, "2": 0}, letters: 1,
		},
		{
			name: "known content, as new", before: []*consumer.Message{
				{ID: "1", Aliases: []string{"x"}},
				{ID: "2", Aliases: []string{"x"}},
			},
			opts: consumer.Replay{AsNew: true}, ran: true,
			after: []*consumer.Message{{ID: "2", Aliases: []string{"x"}}}, effects: map[string]int{"1": 1, "2": 1},
		},
		{
			name: "an alias, known later", before: []*consumer.Message{{ID: "1", Payload: []byte("poison"), Aliases: []string{"x"}}}, opts: consumer.Replay{Repair: repair},
			ran: true, after: []*consumer.Message{{ID: "2", Aliases: []string{"x"}}},
			effects: map[string]int{"1": 1, "2": 0}, letters: 1,
		},
		{
			name: "an alias, known meanwhile", before: []*consumer.Message{{ID: "1", Payload: []byte("poison"), Aliases: []string{"w", "x"}}},
			meddle: func(t *testing.T, c, _ *consumer.Consumer[tx]) {
				process(t, c, &consumer.Message{ID: "2", Aliases: []string{"x"}})
			},
			opts: consumer.Replay{Repair: repair}, err: consumer.ErrKnownContent, says: "AsNew",
			effects: map[string]int{"1": 0, "2": 1}, letters: 1,
		},
		{
			name:   "an alias, known meanwhile, as new",
			before: []*consumer.Message{{ID: "1", Payload: []byte("poison"), Aliases: []string{"w", "x"}}},
			meddle: func(t *testing.T, c, _ *consumer.Consumer[tx]) {
				process(t, c, &consumer.Message{ID: "2", Aliases: []string{"x"}})
			},
			opts: consumer.Replay{Repair: repair, AsNew: true}, ran: true,
			effects: map[string]int{"1": 1, "2": 1, "3": 0}, letters: 1,
			after: []*consumer.Message{{ID: "3", Aliases: []string{"w"}}},
		},
		{
			name: "an alias of a message without key", before: []*consumer.Message{{Aliases: []string{"x"}}},
			opts: consumer.Replay{Key: "1"}, ran: true,
			after: []*consumer.Message{{ID: "2", Aliases: []string{"x"}}}, effects: map[string]int{"1": 1, "2": 0},
			letters: 1,
		},
		{
			name: "an alias, under a new key", before: []*consumer.Message{
				msg("1", "a"),
				{ID: "1", Aliases: []string{"x", "1", "2"}},
			}, opts: consumer.Replay{Key: "2"}, ran: true,
			after:   []*consumer.Message{{ID: "3", Aliases: []string{"x"}}},
			effects: map[string]int{"1": 1, "2": 1, "3": 0}, letters: 1,
		},
		{
			name:   "an alias that cannot be claimed, and one that can",
			before: []*consumer.Message{{ID: "1", Aliases: []string{"a\x00b", "", "x\n\xff", "x,\n"}}}, ran: true,
			after: []*consumer.Message{{ID: "2", Aliases: []string{"x,\n"}}}, effects: map[string]int{"1": 1, "2": 0},
			letters: 1,
		},
		{
			name:   "settled by a later delivery without the alias",
			before: []*consumer.Message{{ID: "1", Payload: []byte("poison"), Aliases: []string{"x"}}},
			meddle: func(t *testing.T, _, fixed *consumer.Consumer[tx]) { process(t, fixed, msg("1", "poison")) },
			// a duplicate claims nothing
			after: []*consumer.Message{{ID: "2", Aliases: []string{"x"}}}, effects: map[string]int{"1": 1, "2": 1},
		},
		{
			name: "a reserved header that was delivered", after: []*consumer.Message{msg("victim", "")},
			opts: consumer.Replay{Repair: repair}, ran: true,
			before: []*consumer.Message{{ID: "1", Payload: []byte("poison"), Headers: map[string]string{"txonce-aliases": `["victim"]`}}}, effects: map[string]int{"1": 1, "victim": 1},
		},
		{
			name: "time ahead", before: []*consumer.Message{{ID: "1", Time: time.Now().Add(48 * time.Hour)}},
			err: dedup.ErrFuture, says: "AsNew", letters: 1,
		},
		{
			name: "time ahead, as new", before: []*consumer.Message{{ID: "1", Time: time.Now().Add(48 * time.Hour)}},
			opts: consumer.Replay{AsNew: true}, ran: true,
			effects: map[string]int{"1": 1},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			store := consumertest.NewStore()
			db := store.Database()
			c := newConsumer(t, config{Store: store, Handle: poison})
			fixed := newConsumer(t, config{Store: consumertest.NewStoreOn(db)})
			last := len(tc.before) - 1
			for _, m := range tc.before[:last] {
				process(t, c, m)
			}
			if tc.forget {
				forget(t, store)
			}
			process(t, c, tc.before[last])
			found := letters(t, c)
			if len(found) != 1 {
				t.Fatalf("%d letters, want 1: %v", len(found), found)
			}
			if strings.Contains(tc.name, "by now") {
				forget(t, store)
			} else if tc.meddle != nil {
				tc.meddle(t, c, fixed)
			}
			ran, err := c.Replay(t.Context(), found[0], tc.opts)
			if ran != tc.ran || !errors.Is(err, tc.err) || (err == nil) != (tc.err == nil) {
				t.Errorf("ran %v, err %v; want %v, %v", ran, err, tc.ran, tc.err)
			}
			if err != nil && (!strings.Contains(err.Error(), tc.says) || !strings.Contains(err.Error(),
				found[0].ID.String())) {
				t.Errorf("%q does not say %q and which letter", err, tc.says)
			}
			for _, m := range tc.after {
				process(t, c, m)
			}
			for id, want := range tc.effects {
				wantCount(t, db, id, want)
			}
			if n := len(letters(t, c)); n != tc.letters {
				t.Errorf("%d letters left, want %d", n, tc.letters)
			}
			if n := db.Open(); n != 0 {
				t.Errorf("%d transactions left open", n)
			}
		})
	}
}

// forget lets all claims expire and go.
func forget(t *testing.T, store *consumertest.Store) {
	t.Helper()
	store.Database().Age(dedup.DefaultWindow + time.Hour)
	if swept, err := store.Purge(t.Context(), dedup.Sweep{}); err != nil || swept.Keys == 0 {
		t.Fatalf("purge: %+v, %v", swept, err)
	}
}

func mustDiscard(t *testing.T, c *consumer.Consumer[tx]) {
	t.Helper()
	for _, l := range letters(t, c) {
		if err := c.Discard(t.Context(), l); err != nil {
			t.Error(err)
		}
	}
}

func TestReplayDoesNotTouchTheLetterItIsGiven(t *testing.T) {
	c := newConsumer(t, config{Store: consumertest.NewStore(), Handle: poison})
	m := msg("1", "poison")
	m.Headers = map[string]string{"a": "b"}
	process(t, c, m)
	l := letters(t, c)[0]
	_, err := c.Replay(t.Context(), l, consumer.Replay{Repair: func(m *consumer.Message) error {
		m.Payload[0], m.Headers["a"] = 'x', "changed"
		return errors.New("no, after all")
	}})
	if err == nil || string(l.Message.Payload) != "poison" || l.Message.Headers["a"] != "b" {
		t.Errorf("err %v, payload %q, headers %v", err, l.Message.Payload, l.Message.Headers)
	}
}

func TestReplayAndDiscardRefuseOthersLetters(t *testing.T) {
	store := consumertest.NewStore()
	a := newConsumer(t, config{Name: "a", Store: store, Handle: poison})
	b := newConsumer(t, config{Name: "b", Store: store})
	process(t, a, msg("1", "poison"))
	l := letters(t, a)[0]
	if len(letters(t, b)) != 0 {
		t.Error("b lists a's letters")
	}
	if _, err := b.DeadLetters(t.Context(), consumer.DeadLetterFilter{Consumer: "a"}); err == nil {
		t.Error("b lists a's letters when asked")
	}
	if _, err := b.Replay(t.Context(), l, consumer.Replay{}); err == nil {
		t.Error("b replays a's letter")
	}
	if err := b.Discard(t.Context(), l); err == nil {
		t.Error("b discards a's letter")
	}
	rejects := newConsumer(t, config{Name: "a", Store: struct{ dedup.Store[tx] }{store}})
	if _, err := rejects.Replay(t.Context(), l, consumer.Replay{}); err == nil {
		t.Error("replays without a parking lot")
	}
}

// A handler that fails in a replay changes nothing: the letter stays, and there is no claim.
func TestReplayRollsBack(t *testing.T) {
	store := consumertest.NewStore()
	c := newConsumer(t, config{Store: store, Handle: func(ctx context.Context, tx tx, m *consumer.Message) error {
		if err := tx.Add(m.ID); err != nil {
			return err
		}
		return errPoison
	}})
	process(t, c, msg("1", "a"))
	l := letters(t, c)[0]
	for range 2 {
		if ran, err := c.Replay(t.Context(), l, consumer.Replay{}); ran || !errors.Is(err, errPoison) {
			t.Errorf("ran %v, err %v", ran, err)
		}
	}
	wantCount(t, store.Database(), "1", 0)
	if _, claimed, _ := store.Lookup(t.Context(), l.Record.Key); claimed || len(letters(t, c)) != 1 {
		t.Errorf("claimed %v, %d letters", claimed, len(letters(t, c)))
	}
}

func ExampleConsumer_Replay() {
	ctx := context.Background()
	store := consumertest.NewStore()
	charge, err := consumer.New(consumer.Config[*deduptest.Tx]{
		Name: "billing", Store: store, Key: consumer.MessageID,
		Handle: consumer.JSON(func(_ context.Context, tx *deduptest.Tx, order struct{ Amount int }) error {
			return tx.Add(fmt.Sprint("charged ", order.Amount))
		}),
	})
	if err != nil {
		panic(err)
	}
	_ = charge.Process(ctx, &consumer.Message{ID: "order-42", Payload: []byte(`{"amount":`)}) // cut off: parked
	letters, _ := charge.DeadLetters(ctx, consumer.DeadLetterFilter{Cause: observe.CauseUndecodable})
	for _, letter := range letters {
		ran, err := charge.Replay(ctx, letter, consumer.Replay{Repair: func(m *consumer.Message) error {
			m.Payload = []byte(`{"amount": 7}`)
			return nil
		}})
		fmt.Println(letter.Record.Key.ID, ran, err)
	}
	fmt.Println(store.Database().Count("charged 7"))
	// Output:
	// order-42 true <nil>
	// 1
}
