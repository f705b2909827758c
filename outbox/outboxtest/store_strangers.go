package outboxtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
	"github.com/txonce/txonce/outbox/relay"
)

// strangerCases are about messages that stand behind many others which wait.
func strangerCases[TTx any]() []storeCase[TTx] {
	const hazard = "24: a failure stops its own key, from itself on, and nothing else"
	return []storeCase[TTx]{
		{
			name: "a topic that is deferred whole lets other topics pass, in the order of their keys", hazard: hazard,
			run: wholeTopic[TTx],
		},
		{name: "a topic that is deferred whole is due after its delay", hazard: hazard, run: wholeTopicEnds[TTx]},
		{name: "a short wait of a key is not prolonged by a longer one behind it", hazard: hazard, run: shortWait[TTx]},
		{name: "a key that is paused lets the other keys of its shard pass", hazard: hazard, run: pausedKey[TTx]},
		{name: "a relay leases a small part of what waits for a missing topic", hazard: hazard, run: topicAway[TTx]},
		{name: "a hot key keeps no message of its shard waiting", hazard: hazard, run: hotKey[TTx]},
	}
}

// keysOfShard returns n keys of the shard of the first one.
func keysOfShard(prefix string, n, shard, shards int) (keys []string) {
	for i := 0; len(keys) < n; i++ {
		key := fmt.Sprint(prefix, i)
		if driver.Shard(&outbox.Message{OrderingKey: key}, shards) == shard {
			keys = append(keys, key)
		}
	}
	return keys
}

// away is a message of a topic that the broker does not have.
func away(id, key string) outbox.Message {
	m := message(id, key)
	m.Topic = "outboxtest.away"
	return m
}

var errAway = errors.New("outboxtest: there is no such topic")

// wholeTopics defers leased messages, and with them their topic.
func wholeTopics(delay time.Duration, leased ...driver.Leased) (outcomes []driver.Outcome) {
	for _, l := range leased {
		outcomes = append(outcomes, driver.Outcome{
			Leased: l, Verdict: driver.Deferred, Err: errAway, Delay: delay,
			BrokerFault: true, WholeTopic: true,
		})
	}
	return outcomes
}

// crowd enqueues messages of one shard: many of the topic that is away, with keys and without, and others behind them.
func (e *env[TTx]) crowd(s *holder) (first, others []string) {
	e.Helper()
	shards := s.hold.TotalShards
	shard := driver.Shard(&outbox.Message{OrderingKey: "crowd"}, shards)
	first = keysOfShard("first", 4, shard, shards)
	var msgs []outbox.Message
	for _, key := range first {
		msgs = append(msgs, away(key, key))
	}
	for i, key := range keysOfShard("away", 30, shard, shards) {
		if msgs = append(msgs, away(key, key)); i%2 == 0 {
			msgs[len(msgs)-1].OrderingKey = "" // its ID is in the same shard
		}
	}
	keys := keysOfShard("mixed", 3, shard, shards)
	msgs = append(msgs, message("before-"+keys[0], keys[0]), away("away-"+keys[0], keys[0]),
		message("behind-"+keys[0], keys[0]))
	for _, key := range keys[1:] {
		msgs = append(msgs, message("other-"+key, key))
		others = append(others, "other-"+key)
	}
	e.enqueue(msgs...)
	return first, append([]string{"before-" + keys[0]}, others...)
}

func wholeTopic[TTx any](e *env[TTx]) {
	s := e.session()
	first, others := e.crowd(s)
	l := s.leaseSome(driver.Want{Limit: len(first)})
	if len(l) < 2 || l[0].ID != first[0] {
		e.Fatalf("leased %q, want the first of %q", ids(l), first)
	}
	outcomes := append(wholeTopics(time.Hour, l[1:]...), driver.Outcome{
		Leased: l[0], Verdict: driver.Deferred, Err: errAway, Delay: 300 * time.Millisecond, BrokerFault: true,
	})
	s.settle(outcomes...)
	want := append(others, first[0]) // which alone has a shorter delay
	for left := len(want); left > 0; {
		leased := s.turn()
		for _, m := range leased {
			if !slices.Contains(want, m.ID) {
				e.Fatalf("leased %q, want only %q: its topic is held back, or its key", m.ID, want)
			}
			if m.Attempts != 0 {
				e.Errorf("%q has %d attempts, want none: the topic was at fault", m.ID, m.Attempts)
			}
		}
		s.sent(leased...)
		left -= len(leased)
		if e.ctx.Err() != nil {
			e.Fatalf("%d of %q were not leased in %v", left, want, limit)
		}
		pause(e.ctx)
	}
	s.quiet("the topic is held back, and a message behind one of it")
	if err := s.Close(e.ctx); err != nil {
		e.Fatalf("Close: %v", err)
	}
	e.session().quiet("the topic is held back, whoever asks")
}

func wholeTopicEnds[TTx any](e *env[TTx]) {
	s := e.session()
	first, _ := e.crowd(s)
	s.settle(wholeTopics(300*time.Millisecond, s.leaseSome(driver.Want{Limit: len(first)})...)...)
	s.drain(4 + 30 + 3 + 2) // checks the order of keys
}

func shortWait[TTx any](e *env[TTx]) {
	s := e.session()
	first, others := e.crowd(s) // the first of others stands before a message of the topic, in the same key
	s.settle(wholeTopics(time.Hour, s.leaseSome(driver.Want{Limit: len(first)})...)...)
	got := s.await(others...)
	all := outcomes(driver.Sent, got...)
	all[0].Verdict, all[0].Err, all[0].Delay = driver.Deferred, errRefused, 200*time.Millisecond
	s.settle(all...)
	var leased []driver.Leased
	for ; len(leased) == 0 && e.ctx.Err() == nil; pause(e.ctx) {
		leased = s.turn()
	}
	if len(leased) == 0 || leased[0].ID != got[0].ID { // later ones of its key may come with it
		e.Fatalf("leased %q, want %q first", ids(leased), got[0].ID)
	}
	s.sent(leased...)
}

func pausedKey[TTx any](e *env[TTx]) {
	s := e.session()
	shards := s.hold.TotalShards
	other := keysOfShard("other", 1, driver.Shard(&outbox.Message{OrderingKey: "hot"}, shards), shards)[0]
	e.enqueue(append(series("hot", 60), message("other-1", other))...)
	l := s.leaseSome(driver.Want{Limit: 10})
	all := outcomes(driver.Returned, l...)
	all[0].Verdict, all[1].Delay = driver.Sent, time.Hour
	s.settle(all...)
	s.sent(s.await("other-1")...)
	s.quiet("its key is paused")
	if st := e.stats(); st.Pending != 59 || st.HeldKeys != 1 || st.Topics[topic].Failing != 0 ||
		st.Topics[topic].Error != "" {
		e.Errorf("%d pending, %d keys held, %d failing with %q; want 59, 1, and none: a pause is no failure",
			st.Pending, st.HeldKeys, st.Topics[topic].Failing, st.Topics[topic].Error)
	}
}

// counting counts what relays lease.
type counting struct {
	driver.Queue
	leased atomic.Int64
}

// Open implements driver.Queue.
func (c *counting) Open(ctx context.Context, opts driver.SessionOptions) (driver.Session, error) {
	s, err := c.Queue.Open(ctx, opts)
	if err != nil {
		return nil, err
	}
	return &countingSession{faultySession{Session: s, queue: calmQueue}, c}, nil
}

var calmQueue = func() *faulty {
	f := &faulty{calm: new(atomic.Bool)}
	f.calm.Store(true)
	return f
}()

// countingSession passes Wake and Maintain on, as faultySession does.
type countingSession struct {
	faultySession
	count *counting
}

// Lease implements driver.Session.
func (s *countingSession) Lease(ctx context.Context, want driver.Want) ([]driver.Leased, error) {
	leased, err := s.faultySession.Lease(ctx, want)
	s.count.leased.Add(int64(len(leased)))
	return leased, err
}

// topicAway counts what is leased until messages behind those of a missing topic are published.
func topicAway[TTx any](e *env[TTx]) {
	const waiting, strangers, batch = 3000, 50, 100
	var msgs []outbox.Message
	for i := range waiting {
		if msgs = append(msgs, away(fmt.Sprint("away-", i), fmt.Sprint("away-", i))); i%2 == 0 {
			msgs[i].OrderingKey = ""
		}
	}
	for i := range strangers {
		msgs = append(msgs, message(fmt.Sprint("stranger-", i), fmt.Sprint("stranger-", i)))
	}
	e.enqueue(msgs...)
	queue := &counting{Queue: e.Queue}
	broker := &FakePublisher{Decide: func(m outbox.Message) (f Fate) {
		if strings.HasPrefix(m.ID, "away") {
			f.Err = &outbox.TopicError{Err: errAway}
		}
		return f
	}}
	stop := e.relay("counted", relay.Config{Queue: queue, Publisher: broker, BatchSize: batch})
	for len(broker.Published()) < strangers {
		if e.ctx.Err() != nil {
			e.TB.Fatalf("%d of %d messages were published", len(broker.Published()), strangers)
		}
		pause(e.ctx)
	}
	if n := queue.leased.Load(); n > waiting/2 {
		e.Errorf("%d messages were leased until those behind a missing topic were published; %d wait for it", n,
			waiting)
	}
	stop()
	if st := e.stats(); st.Pending != waiting || st.Parked+st.Waiting != 0 {
		e.Errorf("%d pending, %d parked, %d wait behind one; want %d pending", st.Pending, st.Parked, st.Waiting,
			waiting)
	}
}

// hotKey has far more messages of one key than its slow publisher can take while the case lasts.
func hotKey[TTx any](e *env[TTx]) {
	const hot, batch = 1000, 50
	s := e.session()
	shards := s.hold.TotalShards
	if err := s.Close(e.ctx); err != nil {
		e.Fatalf("Close: %v", err)
	}
	other := keysOfShard("other", 1, driver.Shard(&outbox.Message{OrderingKey: "hot"}, shards), shards)[0]
	e.enqueue(append(series("hot", hot), message("stranger", other))...)
	var before atomic.Int64 // messages of the hot key that were published first
	published := make(chan struct{})
	broker := &FakePublisher{Decide: func(m outbox.Message) Fate {
		if m.ID == "stranger" {
			close(published)
		} else {
			before.Add(1)
		}
		return Fate{Delay: 30 * time.Millisecond}
	}}
	e.relay("hot", relay.Config{Publisher: broker, BatchSize: batch})
	select {
	case <-published:
	case <-e.ctx.Done():
		e.TB.Fatalf("the message of another key was not published in %v", limit)
	}
	if n := before.Load(); n > hot/4 {
		e.Errorf("%d messages of a hot key were published before one of another key that stands behind %d of them in its shard", n, hot)
	}
}
