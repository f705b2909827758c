package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/observe"
)

// endable is a store whose transactions a handler can end, as with most drivers. The store notices afterwards.
type endable struct {
	*consumertest.Store
	before func() error // fails instead of InTx
	unsure bool         // its connection breaks after a handler has ended the transaction, so that it cannot find out
}

func (e *endable) Retryable(err error) bool {
	return errors.Is(err, errFault) || e.Store.Retryable(err)
}

func (e *endable) InTx(ctx context.Context, recs []dedup.Record, fn func(tx, []dedup.Claim) error) error {
	if e.before != nil {
		if err := e.before(); err != nil {
			return err
		}
	}
	t, err := e.Database().Begin(ctx)
	if err != nil {
		return err
	}
	defer t.Rollback()
	claims, err := e.Claim(ctx, t, recs)
	if err != nil {
		return err
	}
	err = fn(t, claims)
	if ended := e.VerifyTx(ctx, t); ended != nil {
		return errors.Join(ended, err)
	}
	if err != nil {
		return err
	}
	return t.Commit(ctx)
}

func (e *endable) VerifyTx(ctx context.Context, t tx) error {
	switch err := e.Store.VerifyTx(ctx, t); {
	case err != nil && e.unsure:
		return &dedup.InDoubtError{Err: errFault}
	case err != nil:
		return fmt.Errorf("%w: %w", dedup.ErrTxEnded, err)
	}
	return nil
}

// commits is a handler that commits the transaction for message 0.
func commits(runs map[string]int, then func()) consumer.Handler[tx] {
	return func(ctx context.Context, t tx, m *consumer.Message) error {
		runs[m.ID]++
		if m.ID == "0" {
			defer then()
			return errors.Join(t.Add(m.ID), t.Commit(ctx))
		}
		return t.Add(m.ID)
	}
}

func unknowns(t *testing.T, c *consumer.Consumer[tx], want int) {
	t.Helper()
	found := letters(t, c)
	for _, l := range found {
		if l.Cause != observe.CauseUnknown || l.Settled || l.Times != 1 {
			t.Errorf("letter %s: %+v", l.Record.Key.ID, l)
		}
	}
	if len(found) != want {
		t.Fatalf("%d letters, want %d", len(found), want)
	}
}

// A message in doubt that is not parked yet must not become a duplicate, however often it is delivered.
func TestAnUnknownOutcomeIsRememberedUntilItIsParked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, traced, runs := &endable{Store: consumertest.NewStore()}, &events{}, map[string]int{}
		c := newConsumer(t, config{
			Store: store, Trace: traced.trace(), ParkLimit: consumer.ParkLimit{Burst: 1, PerMinute: 1},
			Handle: commits(runs, func() {}),
		})
		batch := []*consumer.Message{msg("0", "a"), msg("1", "b"), msg("2", "c"), msg("0", "a")}
		for round := 1; round <= 4; round++ {
			var again []*consumer.Message
			for i, err := range c.ProcessBatch(t.Context(), batch) {
				if err != nil {
					wantRetry(t, err, true)
					again = append(again, batch[i])
				}
			}
			if batch = again; len(batch) == 0 {
				break
			}
			<-time.After(time.Minute + time.Second)
		}
		found := letters(t, c)
		if len(found) != 3 || len(batch) > 0 {
			t.Errorf("%d letters, want 3; %d messages are not answered", len(found), len(batch))
		}
		for _, id := range []string{"1", "2"} {
			wantCount(t, store.Database(), id, 0)
		}
		// the copy of 0 is a duplicate after 0 is parked
		duplicates := traced.count("duplicate 1") + traced.count("duplicate 2")
		if runs["0"] != 1 || runs["1"]+runs["2"] != 0 || duplicates != 0 {
			t.Errorf("runs %v, %d duplicates", runs, duplicates)
		}
	})
}

// After a shutdown another process, which has no history, gets the messages.
func TestAnUnknownOutcomeIsParkedThoughAShutdownBegan(t *testing.T) {
	store, runs := &endable{Store: consumertest.NewStore()}, map[string]int{}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := newConsumer(t, config{Store: store, Handle: commits(runs, cancel)})
	for i, err := range c.ProcessBatch(ctx, []*consumer.Message{msg("0", "a"), msg("1", "b"), msg("2", "c")}) {
		if err != nil {
			t.Errorf("message %d: %v", i, err)
		}
	}
	unknowns(t, c, 3)
}

// Messages that the transaction did not commit run as usual.
func TestAClaimThatWasNotCommittedIsNoUnknownOutcome(t *testing.T) {
	store, runs := &endable{Store: consumertest.NewStore()}, map[string]int{}
	c := newConsumer(t, config{Store: store, Handle: func(_ context.Context, t tx, m *consumer.Message) error {
		if runs[m.ID]++; m.ID == "0" {
			return t.Rollback()
		}
		return t.Add(m.ID)
	}})
	for i, err := range c.ProcessBatch(t.Context(), []*consumer.Message{msg("0", "a"), msg("1", "b"), msg("2", "c")}) {
		if err != nil {
			t.Errorf("message %d: %v", i, err)
		}
	}
	unknowns(t, c, 1)
	wantCount(t, store.Database(), "1", 1)
	wantCount(t, store.Database(), "2", 1)
	if runs["0"] != 1 {
		t.Errorf("runs: %v", runs)
	}
}

// A message that goes back to the broker may reach another process, which takes a claim without effects for a
// duplicate. So a message in doubt is parked first, despite the parking limit, a shutdown, or an earlier failure of its
// key.
func TestMessagesInDoubtAreParkedBeforeAnotherProcessGetsThem(t *testing.T) {
	const n = 40
	for _, tt := range []struct {
		name     string
		limit    consumer.ParkLimit
		key      func(i int) string
		shutdown bool // after some letters are written
		cuts     int  // after each cuts transactions, two in a row lose their connections
		unsure   bool
		then     []error // the errors of the transactions after the one that the handler ends
	}{
		{name: "the parking limit is spent", limit: consumer.ParkLimit{Burst: 1, PerMinute: 1}},
		{name: "a shutdown begins between two letters", limit: consumer.ParkLimit{Unlimited: true}, shutdown: true},
		{
			name: "both, behind a failure of their key", limit: consumer.ParkLimit{Burst: 1, PerMinute: 1},
			shutdown: true,
			key:      func(i int) string { return fmt.Sprint(i % 3) },
		},
		{name: "connections are cut", limit: consumer.ParkLimit{Unlimited: true}, cuts: 5},
		{
			name: "connections are cut, and a shutdown begins", limit: consumer.ParkLimit{Unlimited: true}, cuts: 5,
			shutdown: true,
		},
		{
			name:  "nobody can be asked, and the database is away for a while",
			limit: consumer.ParkLimit{Unlimited: true}, unsure: true,
			then: slices.Repeat([]error{errFault}, 10),
		},
		{
			name: "nobody can be asked, and others lock the claims", limit: consumer.ParkLimit{Unlimited: true},
			unsure: true,
			then:   slices.Repeat([]error{dedup.ErrInFlight}, 130),
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			db := deduptest.NewDatabase()
			// until then a pass that cannot park them does not return
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			parked, txs := 0, 0
			cut := func() error {
				if at := txs - 1; at >= 0 && at < len(tt.then) {
					txs++
					return tt.then[at]
				}
				if txs++; tt.cuts > 0 && txs > 1 && txs%tt.cuts < 2 {
					return errFault
				}
				return nil
			}
			node := func(parks func()) *consumer.Consumer[tx] {
				return newConsumer(t, config{
					Store:     &parking{&endable{Store: consumertest.NewStoreOn(db), before: cut, unsure: tt.unsure}, parks},
					ParkLimit: tt.limit, Backoff: noBackoff,
					Handle: commits(map[string]int{}, func() {}),
				})
			}
			lot := func() {
				if parked++; tt.shutdown && parked == n/4 {
					cancel()
				}
			}
			first := node(lot)
			batch := make([]*consumer.Message, n)
			for i := range batch {
				batch[i] = msg(fmt.Sprint(i), fmt.Sprint("content ", i))
				if tt.key != nil {
					batch[i].OrderingKey = tt.key(i)
				}
			}
			for i := 1; i < n; i += 7 {
				batch = append(batch, batch[i]) // copies
			}
			var back []*consumer.Message
			for i, err := range first.ProcessBatch(ctx, batch) {
				if err != nil {
					back = append(back, batch[i])
				}
			}
			second := node(func() {})
			for _, m := range back {
				process(t, second, m)
			}
			has := map[string]int{}
			var after consumer.DeadLetterCursor
			for {
				page, err := second.DeadLetters(t.Context(), consumer.DeadLetterFilter{After: after})
				if err != nil {
					t.Fatal(err)
				}
				if len(page) == 0 {
					break
				}
				for _, l := range page {
					has[l.Record.Key.ID]++
				}
				after = page[len(page)-1].Cursor()
			}
			for i := range n {
				id := fmt.Sprint(i)
				if effects := db.Count(id); effects+has[id] == 0 || effects > 1 {
					t.Errorf("message %d: %d effects, %d letters", i, effects, has[id])
				}
			}
		})
	}
}

// A pass that waits for a key in doubt logs that once a minute, because a frozen process may hold the key.
func TestAPassThatWaitsToParkIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, log := time.Now(), &logs{}
		held := func() error {
			if since := time.Since(began); since > 0 && since < 150*time.Second {
				return dedup.ErrInFlight
			}
			return nil
		}
		c := newConsumer(t, config{
			Store: &endable{Store: consumertest.NewStore(), before: held, unsure: true}, Logger: log.logger(),
			MaxAttempts: 1,
			Handle:      commits(map[string]int{}, func() { <-time.After(time.Millisecond) }),
		})
		if err := c.ProcessBatch(t.Context(), []*consumer.Message{msg("0", "")})[0]; err != nil {
			t.Errorf("Process = %v, want the message parked", err)
		}
		if n := log.lines("cannot be parked yet"); n != 2 {
			t.Errorf("%d lines within 150 s, want 2", n)
		}
		unknowns(t, c, 1)
	})
}

// A new claim that is First proves that the old one was not committed, which ends the doubt.
func TestAFirstClaimEndsTheDoubt(t *testing.T) {
	db, fails := deduptest.NewDatabase(), true
	node := func() *consumer.Consumer[tx] {
		return newConsumer(t, config{
			Store: &endable{Store: consumertest.NewStoreOn(db)}, Backoff: noBackoff,
			Handle: func(_ context.Context, t tx, m *consumer.Message) error {
				switch {
				case m.ID == "0":
					return t.Rollback()
				case fails:
					return errors.New("not now")
				}
				return t.Add(m.ID)
			},
		})
	}
	first, second := node(), node()
	innocent := msg("1", "b")
	if err := first.ProcessBatch(t.Context(), []*consumer.Message{msg("0", "a"), innocent})[1]; err == nil {
		t.Fatal("the innocent message is acknowledged though it failed")
	}
	fails = false
	process(t, second, innocent)
	process(t, first, innocent) // a copy
	if found := letters(t, first); len(found) != 1 || found[0].Record.Key.ID != "0" {
		t.Errorf("letters %+v; want one, of the message that ended the transaction", found)
	}
	wantCount(t, db, "1", 1)
}

// parking calls parks when a letter is written, before COMMIT.
type parking struct {
	*endable
	parks func()
}

func (p *parking) Park(ctx context.Context, tx tx, letter consumer.DeadLetter) error {
	p.parks()
	return p.endable.Park(ctx, tx, letter)
}

// slowServer goes on with a handler's statement when its connection is closed at the end of ctx, as MariaDB does: the
// key stays held, and the outcome is in doubt until the statement ends and the server rolls back.
type slowServer struct {
	*endable
	statement time.Duration
}

func (s *slowServer) InTx(ctx context.Context, recs []dedup.Record, fn func(tx, []dedup.Claim) error) error {
	t, err := s.Database().Begin(context.WithoutCancel(ctx))
	if err != nil {
		return err
	}
	claims, err := s.Claim(ctx, t, recs)
	if err == nil {
		err = fn(t, claims)
	}
	if errors.Is(context.Cause(ctx), consumer.ErrHandlerTimeout) || errors.Is(err, context.DeadlineExceeded) {
		time.AfterFunc(s.statement, func() { _ = t.Rollback() })
		return errors.Join(&dedup.InDoubtError{Err: errFault}, err)
	}
	defer t.Rollback()
	if err != nil {
		return err
	}
	return t.Commit(ctx)
}

// A handler that exceeds HandlerTimeout has failed. This counts as an attempt also if the server still runs the
// handler's statement, so that the consumer cannot find out at once whether the transaction was committed.
func TestHandlerTimeoutCountsWhenTheServerGoesOn(t *testing.T) {
	for _, batch := range []int{1, 3} {
		t.Run(fmt.Sprint(batch), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				runs := 0
				store := &slowServer{&endable{Store: consumertest.NewStore()}, 5 * time.Second}
				c := newConsumer(t, config{
					Store: store, Backoff: noBackoff, MaxAttempts: 3, HandlerTimeout: time.Second,
					Handle: func(ctx context.Context, t tx, m *consumer.Message) error {
						if m.ID != "0" {
							return t.Add(m.ID)
						}
						runs++
						<-ctx.Done()
						return ctx.Err()
					},
				})
				var msgs []*consumer.Message
				for i := range batch {
					msgs = append(msgs, msg(fmt.Sprint(i), ""))
				}
				for delivery := 1; delivery <= 10 && len(letters(t, c)) == 0; delivery++ {
					msgs[0].Attempt = delivery
					c.ProcessBatch(t.Context(), msgs)
				}
				if found := letters(t, c); len(found) != 1 || found[0].Cause != observe.CauseExhausted {
					t.Errorf("letters %+v after %d runs; want one that is exhausted", found, runs)
				}
				for i := 1; i < batch; i++ {
					wantCount(t, store.Database(), fmt.Sprint(i), 1)
				}
			})
		})
	}
}
