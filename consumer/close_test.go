package consumer_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/observe"
)

func TestCloseGivesTheNameBack(t *testing.T) {
	store := consumertest.NewStore()
	c := newConsumer(t, config{Store: store})
	process(t, c, msg("1", "a"))
	second := newConsumer(t, config{Store: store})
	if err := second.Start(t.Context()); !errors.Is(err, dedup.ErrNameTaken) {
		t.Fatalf("a second consumer beside the first: %v", err)
	}
	second.Close() // it has not registered the name, and must not release it
	third := newConsumer(t, config{Store: store})
	if err := third.Start(t.Context()); !errors.Is(err, dedup.ErrNameTaken) {
		t.Fatalf("after Close of one that was refused: %v", err)
	}
	c.Close()
	c.Close()
	if err := third.Start(t.Context()); err != nil {
		t.Fatalf("after Close: %v", err)
	}
	process(t, third, msg("1", "a"))
	wantCount(t, store.Database(), "1", 1)
	c.Close()
	if err := newConsumer(t, config{Store: store}).Start(t.Context()); !errors.Is(err, dedup.ErrNameTaken) {
		t.Errorf("a second Close gave the name of another consumer back: %v", err)
	}

	if err := c.Process(t.Context(), msg("2", "a")); !errors.Is(err, consumer.ErrClosed) {
		t.Errorf("Process after Close: %v", err)
	}
	for _, err := range c.ProcessBatch(t.Context(), []*consumer.Message{msg("2", "a"), msg("3", "a")}) {
		wantRetry(t, err, true)
	}
	wantCount(t, store.Database(), "2", 0)
	letter := consumer.DeadLetter{ID: consumer.DeadLetterID{1}, Record: dedup.Record{Key: dedup.Key{Consumer: "billing", ID: "4"}}}
	_, replay := c.Replay(t.Context(), letter, consumer.Replay{})
	for _, err := range []error{c.Start(t.Context()), replay, c.Discard(t.Context(), letter)} {
		if !errors.Is(err, consumer.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	}
}

func TestCloseBesideStart(t *testing.T) {
	store := consumertest.NewStore()
	for range 100 {
		c := newConsumer(t, config{Store: store})
		var wg sync.WaitGroup
		wg.Go(func() { _ = c.Start(context.Background()) })
		wg.Go(c.Close)
		wg.Wait()
	}
	if err := newConsumer(t, config{Store: store}).Start(t.Context()); err != nil {
		t.Errorf("the name is lost: %v", err)
	}
}

func TestATypedNilStoreIsRefused(t *testing.T) {
	var store *deduptest.Store
	_, err := consumer.New(config{Name: "billing", Store: store, Key: consumer.MessageID, Handle: effect})
	if err == nil || !strings.Contains(err.Error(), "Config.Store is a nil *deduptest.Store") {
		t.Errorf("err = %v", err)
	}
}

func TestJSONMessage(t *testing.T) {
	type body struct{ Amount int }
	h := consumer.JSONMessage(func(_ context.Context, tx tx, m *consumer.Message, b body) error {
		return tx.Put(t.Context(), m.Headers["trace"], b.Amount)
	})
	store := consumertest.NewStore()
	c := newConsumer(t, config{Store: store, Handle: h})
	m := msg("1", `{"amount": 7}`)
	m.Headers = map[string]string{"trace": "abc"}
	process(t, c, m)
	if got := store.Database().Value("abc"); got != 7 {
		t.Errorf("got %v", got)
	}
	process(t, c, msg("2", `{`))
	if found := letters(t, c); len(found) != 1 || found[0].Cause != observe.CauseUndecodable ||
		found[0].Message.Attempt != 1 {
		t.Errorf("a payload that is no JSON: %v", found)
	}
}

func TestParseLetterID(t *testing.T) {
	const plain, zero = "0011223344556677_8899aabbccddeeff", "00000000000000000000000000000000"
	digits := strings.ReplaceAll(plain, "_", "")
	dashed := digits[:8] + "-" + digits[8:12] + "-" + digits[12:16] + "-" + digits[16:20] + "-" + digits[20:]
	for _, s := range []string{digits, dashed, strings.ToUpper(dashed)} {
		if id, err := consumer.ParseDeadLetterID(s); err != nil || id.String() != digits {
			t.Errorf("%q: %v, %v", s, id, err)
		}
	}
	for _, s := range []string{
		"", zero, zero[:8] + "-" + zero[:4] + "-" + zero[:4] + "-" + zero[:4] + "-" + zero[:12],
		plain, dashed + "0", digits[:31] + "x", strings.Replace(dashed, "-", "", 1),
	} {
		if id, err := consumer.ParseDeadLetterID(s); err == nil {
			t.Errorf("%q is accepted as %v", s, id)
		}
	}
}

// A Subscriber may add a source after the start. The Consumer then has to record that source before its next message,
// but its name is registered all the same.
func TestCloseAfterALateSourceGivesTheNameBack(t *testing.T) {
	store := consumertest.NewStore()
	c := newConsumer(t, config{Store: store})
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.AddSource("kafka topic orders")
	c.Close()
	if err := newConsumer(t, config{Store: store}).Start(t.Context()); err != nil {
		t.Errorf("the name is lost: %v", err)
	}
}
