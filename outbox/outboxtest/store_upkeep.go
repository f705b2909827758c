package outboxtest

import (
	"fmt"
	"slices"
	"time"

	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

// upkeepCases are about the deletion of sent messages, Operations, and wake-ups.
func upkeepCases[TTx any]() []storeCase[TTx] {
	const (
		purge = "28: nothing is forgotten that was not confirmed"
		sight = "29: a backlog is seen"
		wake  = "30: sessions are woken after the commit"
	)
	return []storeCase[TTx]{
		{
			name: "upkeep never touches what was not confirmed", hazard: purge,
			opts: Options{KeepSent: 20 * time.Millisecond}, run: maintainSpares[TTx],
		},
		{name: "confirmed messages are deleted at once by default", hazard: purge, run: sentDeleted[TTx]},
		{
			name: "confirmed messages are kept for their time", hazard: purge, opts: Options{KeepSent: time.Hour},
			run: sentKept[TTx],
		},
		{
			name: "kept messages are forgotten after their time", hazard: purge,
			opts: Options{KeepSent: 100 * time.Millisecond}, run: sentForgotten[TTx],
		},
		{name: "Stats of an empty outbox", hazard: sight, run: statsEmpty[TTx]},
		{name: "Stats count what there is, by topic", hazard: sight, run: statsCount[TTx]},
		{name: "Stats tell how long messages have been due, by topic", hazard: sight, run: statsAges[TTx]},
		{
			name: "Stats count what comes later as due since its not-before time", hazard: sight,
			run: statsNotBefore[TTx],
		},
		{name: "Stats leave nothing out while messages move", hazard: sight, run: statsWhileMoving[TTx]},
		{name: "Stats name the relays", hazard: sight, run: statsRelays[TTx]},
		{name: "Parked pages by sequence number, and filters", hazard: sight, run: parkedPages[TTx]},
		{name: "UnparkAll and DiscardAll by filter", hazard: sight, run: releaseByFilter[TTx]},
		{name: "DiscardAll of a key deletes what waits with it", hazard: sight, run: discardWaiting[TTx]},
		{name: "a commit wakes the sessions", hazard: wake, run: commitWakes[TTx]},
		{name: "a poll after a notification misses no message", hazard: wake, run: pollsAfterNotification[TTx]},
	}
}

// everything leaves one message or more in each state that is not confirmed, and confirms one.
func (e *env[TTx]) everything(s *holder) {
	e.Helper()
	late := message("later", "later")
	late.NotBefore = e.stats().Now.Add(time.Hour)
	e.enqueue(append(append(append(series("pending", 2), series("wait", 3)...), series("park", 3)...),
		message("free", ""), message("sent", "sent"), late)...)
	l := s.await("pending-1", "pending-2", "wait-1", "wait-2", "wait-3", "park-1", "park-2", "park-3", "free", "sent")
	all := outcomes(driver.Returned, l...)
	all[0], all[8] = deferred(l[0], time.Hour), deferred(l[8], time.Hour)
	all[2], all[5] = parked(l[2], outbox.BlockKey), parked(l[5], outbox.ParkKey)
	all[9].Verdict = driver.Sent
	s.settle(all...)
	e.wantParked(s, map[string]string{
		"wait-1": "", "wait-2": "wait-1", "wait-3": "wait-1", "park-1": "", "park-2": "park-1", "park-3": "park-1",
	}, true, "park-2", "park-3")
}

// wantCounts compares one topic too.
func (e *env[TTx]) wantCounts(want outbox.TopicStats, held int64) {
	e.Helper()
	st := e.stats()
	total := outbox.TopicStats{Pending: st.Pending, Delayed: st.Delayed, Parked: st.Parked, Waiting: st.Waiting}
	if total != want || st.HeldKeys != held {
		e.Fatalf("Stats say %+v and %d keys held, want %+v and %d", total, st.HeldKeys, want, held)
	}
	if got := numbers(st.Topics[topic]); got != want {
		e.Fatalf("Stats of the topic are %+v, want %+v", got, want)
	}
}

// numbers are those of states.
func numbers(t outbox.TopicStats) outbox.TopicStats {
	return outbox.TopicStats{Pending: t.Pending, Delayed: t.Delayed, Parked: t.Parked, Waiting: t.Waiting}
}

func maintainSpares[TTx any](e *env[TTx]) {
	s := e.session()
	_, ok := s.Session.(driver.Maintainer)
	e.hook("Maintainer in its sessions", !ok)
	e.everything(s)
	want := outbox.TopicStats{Pending: 3, Delayed: 1, Parked: 4, Waiting: 2}
	e.wantCounts(want, 3)
	for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); pause(e.ctx) {
		s.maintain()
	}
	for s.maintain(); e.Sent != nil && len(e.Sent(e.t)) > 0; s.maintain() {
		if e.ctx.Err() != nil {
			e.Fatalf("%d messages are kept after they were sent", len(e.Sent(e.t)))
		}
		pause(e.ctx)
	}
	e.wantCounts(want, 3)
	s.quiet("nothing is due")
}

func sentDeleted[TTx any](e *env[TTx]) {
	e.hook("Sent", e.Sent == nil)
	e.enqueue(series("k", 5)...)
	s := e.session()
	s.drain(5)
	if kept := e.Sent(e.t); len(kept) > 0 {
		e.Errorf("%d messages are kept, and nobody wanted them to be", len(kept))
	}
}

func sentKept[TTx any](e *env[TTx]) {
	e.hook("Sent", e.Sent == nil)
	e.enqueue(append(series("k", 3), message("free", ""))...)
	s := e.session()
	l := s.await("k-1", "k-2", "k-3", "free")
	s.sent(l[0])
	s.sent(l[1], l[3])
	s.sent(l[1], l[3]) // its answer was lost
	for range 3 {
		s.maintain()
	}
	kept := e.Sent(e.t)
	slices.Sort(kept)
	if want := []string{"free", "k-1", "k-2"}; !slices.Equal(kept, want) {
		e.Errorf("%v are kept, want %v", kept, want)
	}
	if st := e.stats(); st.Pending != 1 {
		e.Errorf("%d are pending beside those that are kept, want 1", st.Pending)
	}
}

func sentForgotten[TTx any](e *env[TTx]) {
	e.hook("Sent", e.Sent == nil)
	e.enqueue(series("k", 3)...)
	s := e.session()
	s.drain(3)
	for len(e.Sent(e.t)) > 0 {
		if e.ctx.Err() != nil {
			e.Fatalf("%d messages are kept for longer than they were to be", len(e.Sent(e.t)))
		}
		s.maintain()
		pause(e.ctx)
	}
	e.enqueue(message("k-4", "k"))
	s.drain(1)
}

func statsEmpty[TTx any](e *env[TTx]) {
	st := e.stats()
	if st.Pending+st.Delayed+st.Parked+st.Waiting+st.HeldKeys != 0 || st.PendingAge != 0 || st.ParkedAge != 0 ||
		st.Estimated || len(st.Relays) > 0 {
		e.Errorf("an empty outbox: %+v", st)
	}
	for name, topic := range st.Topics {
		if topic != (outbox.TopicStats{}) {
			e.Errorf("topic %q of an empty outbox: %+v", name, topic)
		}
	}
	if st.Now.IsZero() {
		e.Errorf("Stats do not say when they are of")
	}
	if list := e.parked(); len(list) > 0 {
		e.Errorf("%d are parked in an empty outbox", len(list))
	}
}

func statsCount[TTx any](e *env[TTx]) {
	s := e.session()
	e.everything(s)
	e.wantCounts(outbox.TopicStats{Pending: 3, Delayed: 1, Parked: 4, Waiting: 2}, 3)
	other := message("another", "k")
	other.Topic = "another topic"
	e.enqueue(other)
	st := e.stats()
	if got, want := numbers(st.Topics["another topic"]), (outbox.TopicStats{Pending: 1}); got != want {
		e.Errorf("Stats of another topic are %+v, want %+v", got, want)
	}
	if st.Pending != 4 || st.Estimated {
		e.Errorf("%d are pending (estimated: %v), want 4", st.Pending, st.Estimated)
	}
	s.await("another") // is leased, and pending still
	if st := e.stats(); st.Pending != 4 {
		e.Errorf("%d are pending while one is leased, want 4", st.Pending)
	}
}

func statsRelays[TTx any](e *env[TTx]) {
	const ttl = 10 * time.Minute
	a, b := e.open("relay one", ttl), e.open("relay \"two\" żółć", ttl)
	e.balanced(a, b)
	want := map[string]int{"relay one": a.hold.Shards, "relay \"two\" żółć": b.hold.Shards}
	st := e.stats()
	for _, r := range st.Relays {
		if shards, ok := want[r.Name]; !ok || shards != r.Shards {
			e.Errorf("relay %q holds %d shards, want %d", r.Name, r.Shards, shards)
		}
		// SQLite's clock has steps of 1 ms and follows the machine's clock, which may be set back by one.
		if left := r.Until.Sub(st.Now); left <= 0 || left > ttl+time.Millisecond {
			e.Errorf("relay %q is alive for %v, with a TTL of %v", r.Name, left, ttl)
		}
		delete(want, r.Name)
	}
	if len(want) > 0 {
		e.Errorf("Stats do not name the relays %v", want)
	}
	if err := a.Close(e.ctx); err != nil {
		e.Fatalf("Close: %v", err)
	}
	e.lapsed(0)
	if st := e.stats(); len(st.Relays) != 1 || st.Relays[0].Name != "relay \"two\" żółć" {
		e.Errorf("relays %+v, and only one is alive", st.Relays)
	}
}

func parkedPages[TTx any](e *env[TTx]) {
	const n = 105
	var msgs []outbox.Message
	for i := range n {
		m := message(fmt.Sprint("m", i), fmt.Sprint("key", i%4))
		m.Topic = fmt.Sprint("topic", i%3)
		msgs = append(msgs, m)
	}
	e.enqueue(msgs...)
	s := e.session()
	var all []driver.Outcome
	for _, l := range s.await(idsOf(msgs)...) {
		all = append(all, parked(l, outbox.SkipMessage))
	}
	s.settle(all...)
	read := func(filter outbox.ParkedFilter) (list []string) {
		for last := int64(0); ; {
			filter.After = last
			page, err := e.Operations.Parked(e.ctx, filter)
			if err != nil {
				e.Fatalf("Parked: %v", err)
			}
			if most := max(filter.Limit, 0); len(page) > most && most > 0 || len(page) > 100 {
				e.Fatalf("a page of %d, and Limit is %d", len(page), filter.Limit)
			}
			for _, p := range page {
				if p.Seq <= last {
					e.Fatalf("Seq %d comes after %d", p.Seq, last)
				}
				last = p.Seq
				list = append(list, p.ID)
			}
			if len(page) == 0 {
				slices.Sort(list)
				return list
			}
		}
	}
	for name, tc := range map[string]struct {
		filter outbox.ParkedFilter
		ok     func(m outbox.Message) bool
	}{
		"all, by default": {outbox.ParkedFilter{}, func(outbox.Message) bool { return true }},
		"all, by 10":      {outbox.ParkedFilter{Limit: 10}, func(outbox.Message) bool { return true }},
		"of a topic": {
			outbox.ParkedFilter{Topic: "topic1", Limit: 10},
			func(m outbox.Message) bool { return m.Topic == "topic1" },
		},
		"of a key": {
			outbox.ParkedFilter{OrderingKey: "key2", Limit: 7},
			func(m outbox.Message) bool { return m.OrderingKey == "key2" },
		},
		"of a topic and a key": {
			outbox.ParkedFilter{Topic: "topic2", OrderingKey: "key3"},
			func(m outbox.Message) bool { return m.Topic == "topic2" && m.OrderingKey == "key3" },
		},
		"of no topic there is": {outbox.ParkedFilter{Topic: "nowhere"}, func(outbox.Message) bool { return false }},
	} {
		var want []string
		for _, m := range msgs {
			if tc.ok(m) {
				want = append(want, m.ID)
			}
		}
		slices.Sort(want)
		if got := read(tc.filter); !slices.Equal(got, want) {
			e.Errorf("%s: %s, want %s", name, few(got), few(want))
		}
	}
}

func pollsAfterNotification[TTx any](e *env[TTx]) {
	s := e.session()
	waker, ok := s.Session.(driver.Waker)
	e.hook("Waker in its sessions", !ok)
	find := func(ids ...string) (found []driver.Leased) {
		e.Helper()
		for len(found) < len(ids) {
			select {
			case <-waker.Wake():
			case <-time.After(10 * time.Millisecond): // the wake-up may have been that of a commit before
			case <-s.ctx.Done():
				e.Fatalf("leased only %v of %v within %v", found, ids, limit)
			}
			for _, l := range s.lease(driver.Want{Limit: many, Notified: true}) {
				if !slices.Contains(ids, l.ID) {
					e.Fatalf("leased %q, want %v", l.ID, ids)
				}
				found = append(found, l)
			}
		}
		return found
	}
	keys := keysInShards(3, s.hold.TotalShards)
	e.enqueue(message("first", keys[0])) // of the first commit a store may not know the shards
	s.sent(find("first")...)
	e.enqueue(message("a", keys[0]))
	e.enqueue(message("b", keys[1]))
	leased := find("a", "b")
	e.enqueue(message("behind a", keys[0]))
	e.enqueue(message("c", keys[2]))
	leased = append(leased, find("c")...)
	s.sent(leased...)
	s.sent(find("behind a")...) // it is not announced again: its shard had leased messages at the time
	s.quiet("everything was confirmed")
}

func commitWakes[TTx any](e *env[TTx]) {
	s := e.session()
	waker, ok := s.Session.(driver.Waker)
	e.hook("Waker in its sessions", !ok)
	wake := waker.Wake()
	if again := waker.Wake(); again != wake {
		e.Fatalf("Wake returns another channel each time")
	}
	for i := range 3 {
		for drained := false; !drained; {
			select {
			case <-wake:
			case <-time.After(50 * time.Millisecond):
				drained = true
			}
		}
		e.enqueue(message(fmt.Sprint(i), "k"))
		select {
		case <-wake:
		case <-e.ctx.Done():
			e.Fatalf("no wake-up within %v of a commit", limit)
		}
		s.drain(1)
	}
}
