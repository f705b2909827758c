package outboxtest

import (
	"slices"
	"strings"
	"time"

	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

// parkCases are about parked messages, and those behind them.
func parkCases[TTx any]() []storeCase[TTx] {
	const (
		order = "25: the later messages of a key do not pass one that was given up on, unless they may"
		lost  = "28: nothing is lost that was given up on"
	)
	return []storeCase[TTx]{
		{
			name: "BlockKey: they wait, and go on by themselves when it is unparked", hazard: order,
			run: func(e *env[TTx]) { followersWait(e, e.unpark, true) },
		},
		{
			name: "BlockKey: they go on by themselves when it is discarded", hazard: order,
			run: func(e *env[TTx]) { followersWait(e, e.discard, false) },
		},
		{name: "ParkKey: they are parked, and each needs a decision", hazard: order, run: followersPark[TTx]},
		{name: "SkipMessage: they pass", hazard: order, run: followersPass[TTx]},
		{name: "a parked message without key holds back nothing", hazard: order, run: parkKeyless[TTx]},
		{name: "two parked messages of one key", hazard: order, run: parkTwo[TTx]},
		{name: "a confirmed message is not parked behind another one", hazard: lost, run: parkBesideSent[TTx]},
		{
			name: "a deferred message is not held for ever by a parked one behind it", hazard: lost,
			run: parkBehindDeferred[TTx],
		},
		{
			name: "a message between a deferred one and a parked one of its key waits", hazard: order,
			run: parkBehindNext[TTx],
		},
		{
			name: "a parked key waits for a person, whichever sessions come and go", hazard: order,
			run: parkOutlasts[TTx],
		},
		{name: "parking and unparking keep every field", hazard: lost, run: parkIntact[TTx]},
		{name: "an error that has no text parks its message", hazard: lost, run: parkWithoutText[TTx]},
		{name: "unparking begins with no attempts counted", hazard: lost, run: unparkAttempts[TTx]},
		{name: "Unpark and Discard count only what was parked", hazard: lost, run: unparkUnknown[TTx]},
	}
}

// wantParked waits until exactly the messages of behind are parked, while s polls and must find nothing. behind maps
// the ID of each message to the ID of the message that it is behind, or to "". If waiting is set, those behind another
// message must be Waiting, without the ones in except.
func (e *env[TTx]) wantParked(s *holder, behind map[string]string, waiting bool,
	except ...string,
) map[string]outbox.ParkedMessage {
	e.Helper()
	for {
		s.quiet("it is parked, or behind a parked message")
		list, byID, bySeq := e.parked(), map[string]outbox.ParkedMessage{}, map[int64]string{0: ""}
		for _, p := range list {
			byID[p.ID], bySeq[p.Seq] = p, p.ID
			if _, ok := behind[p.ID]; !ok {
				e.Fatalf("%q is parked", p.ID)
			}
		}
		if len(list) == len(behind) {
			for id, p := range byID {
				switch {
				case p.Error == "":
					e.Errorf("%q is parked without an error", id)
				case bySeq[p.Behind] != behind[id]:
					e.Errorf("%q stands behind %q (%d), want %q", id, bySeq[p.Behind], p.Behind, behind[id])
				case p.Waiting != (waiting && behind[id] != "" && !slices.Contains(except, id)):
					e.Errorf("%q: Waiting is %v", id, p.Waiting)
				case behind[id] == "" && !strings.Contains(p.Error, errRefused.Error()):
					e.Errorf("%q was parked because of %q, and says %q", id, errRefused, p.Error)
				}
			}
			return byID
		}
		if e.ctx.Err() != nil {
			e.Fatalf("%d messages are parked after %v, want %d", len(list), limit, len(behind))
		}
		pause(e.ctx)
	}
}

// head parks the second of four messages, beside others, and returns the session after its followers were enqueued.
func (e *env[TTx]) head(keep outbox.ParkPolicy) (s *holder) {
	e.Helper()
	e.enqueue(append(series("k", 4), message("other", "other"), message("free", ""))...)
	s = e.session()
	l := s.await("k-1", "k-2", "k-3", "k-4", "other", "free")
	all := outcomes(driver.Returned, l...)
	all[1] = parked(l[1], keep)
	s.settle(all...)
	return s
}

func followersWait[TTx any](e *env[TTx], release func(...int64), back bool) {
	s := e.head(outbox.BlockKey)
	s.sent(s.await("k-1", "other", "free")...) // what comes before it passes
	s.quiet("a message of their key is parked")
	e.enqueue(message("k-5", "k"))
	list := e.wantParked(s, map[string]string{"k-2": "", "k-3": "k-2", "k-4": "k-2", "k-5": "k-2"}, true)
	if st := e.stats(); st.Parked != 1 || st.Waiting != 3 || st.Pending != 0 || st.HeldKeys != 1 {
		e.Errorf("%d parked, %d waiting, %d pending, %d keys held; want 1, 3, 0, 1", st.Parked, st.Waiting, st.Pending,
			st.HeldKeys)
	}
	release(list["k-2"].Seq)
	e.enqueue(message("k-6", "k"))
	want := []string{"k-2", "k-3", "k-4", "k-5", "k-6"}
	if !back {
		want = want[1:]
	}
	got := s.drain(len(want))
	e.wantOrder(got, map[string][]string{"k": want})
	for _, l := range got {
		if p, ok := list[l.ID]; ok && p.Seq != l.Seq {
			e.Errorf("%q came back with Seq %d, and had %d", l.ID, l.Seq, p.Seq)
		}
	}
	if st := e.stats(); st.Parked+st.Waiting+st.Pending+st.HeldKeys != 0 {
		e.Errorf("at the end %d parked, %d waiting, %d pending, %d keys held", st.Parked, st.Waiting, st.Pending,
			st.HeldKeys)
	}
}

func followersPark[TTx any](e *env[TTx]) {
	s := e.head(outbox.ParkKey)
	s.sent(s.await("k-1", "other", "free")...)
	s.quiet("a message of their key is parked")
	e.enqueue(message("k-5", "k"))
	list := e.wantParked(s, map[string]string{"k-2": "", "k-3": "k-2", "k-4": "k-2", "k-5": "k-2"}, false)
	if st := e.stats(); st.Parked != 4 || st.Waiting != 0 || st.Pending != 0 || st.HeldKeys != 1 {
		e.Errorf("%d parked, %d waiting, %d pending, %d keys held; want 4, 0, 0, 1", st.Parked, st.Waiting, st.Pending,
			st.HeldKeys)
	}
	e.unpark(list["k-2"].Seq)
	s.drain(1) // alone
	e.unpark(list["k-3"].Seq)
	s.drain(1)
	e.enqueue(message("k-6", "k")) // behind k-4 and k-5, which are parked still
	for len(e.parked()) < 3 {
		s.quiet("messages of its key before it are parked")
		if e.ctx.Err() != nil {
			e.Fatalf("%d are parked, want the new one too", len(e.parked()))
		}
		pause(e.ctx)
	}
	e.discard(list["k-4"].Seq)
	s.quiet("all that is left of the key is parked")
	var rest []int64
	for _, p := range e.parked() {
		rest = append(rest, p.Seq)
	}
	e.unpark(rest...)
	e.wantOrder(s.drain(2), map[string][]string{"k": {"k-5", "k-6"}})
	e.enqueue(message("k-7", "k"))
	s.drain(1)
}

func followersPass[TTx any](e *env[TTx]) {
	s := e.head(outbox.SkipMessage)
	e.enqueue(message("k-5", "k"))
	s.sent(s.await("k-1", "k-3", "k-4", "k-5", "other", "free")...)
	list := e.wantParked(s, map[string]string{"k-2": ""}, false)
	if st := e.stats(); st.Parked != 1 || st.Waiting+st.Pending+st.HeldKeys != 0 {
		e.Errorf("%d parked, %d waiting, %d pending, %d keys held; want 1, 0, 0, 0", st.Parked, st.Waiting, st.Pending,
			st.HeldKeys)
	}
	e.enqueue(message("k-6", "k"))
	e.unpark(list["k-2"].Seq)
	e.wantOrder(s.drain(2), map[string][]string{"k": {"k-2", "k-6"}}) // in its old place: before the pending message
}

func parkKeyless[TTx any](e *env[TTx]) {
	for _, keep := range []outbox.ParkPolicy{outbox.BlockKey, outbox.ParkKey} {
		e.enqueue(message("1", ""), message("2", ""), message("k-1", "k"))
		s := e.session()
		l := s.await("1", "2", "k-1")
		s.settle(parked(l[0], keep), driver.Outcome{Leased: l[1]}, driver.Outcome{Leased: l[2]})
		e.enqueue(message("3", ""))
		s.sent(s.await("2", "3", "k-1")...)
		list := e.wantParked(s, map[string]string{"1": ""}, false)
		if st := e.stats(); st.HeldKeys != 0 {
			e.Errorf("%d keys are held by a message without key", st.HeldKeys)
		}
		e.unpark(list["1"].Seq)
		s.drain(1)
		if err := s.Close(e.ctx); err != nil {
			e.Fatalf("Close: %v", err)
		}
	}
}

// parkTwo parks two messages of a key, as a relay may do with an all-or-nothing publisher.
func parkTwo[TTx any](e *env[TTx]) {
	s := e.session()
	two := func(key string) (seqs []int64) {
		e.enqueue(series(key, 3)...)
		l := s.await(key+"-1", key+"-2", key+"-3")
		s.settle(parked(l[1], outbox.BlockKey), parked(l[0], outbox.BlockKey), driver.Outcome{Leased: l[2]})
		e.wantParked(s, map[string]string{key + "-1": "", key + "-2": "", key + "-3": key + "-1"}, true)
		return []int64{l[0].Seq, l[1].Seq}
	}
	for key, release := range map[string]func(seqs []int64) (want []string){
		"first, then second": func(seqs []int64) []string {
			e.unpark(seqs[0])
			s.drain(1)
			s.quiet("another one of the key is parked before it")
			e.unpark(seqs[1])
			return []string{"2", "3"}
		},
		"second, then first": func(seqs []int64) []string {
			e.discard(seqs[1])
			s.quiet("another one of the key is parked before it")
			e.unpark(seqs[0])
			return []string{"1", "3"}
		},
		"both": func(seqs []int64) []string {
			e.unpark(seqs[1], seqs[0])
			return []string{"1", "2", "3"}
		},
		"none": func(seqs []int64) []string {
			e.discard(seqs...)
			return []string{"3"}
		},
	} {
		want := release(two(key))
		for i := range want {
			want[i] = key + "-" + want[i]
		}
		e.wantOrder(s.drain(len(want)), map[string][]string{key: want})
	}
}

func parkBesideSent[TTx any](e *env[TTx]) {
	for _, keep := range []outbox.ParkPolicy{outbox.BlockKey, outbox.ParkKey} {
		e.enqueue(series("k", 3)...)
		s := e.session()
		l := s.await("k-1", "k-2", "k-3")
		s.settle(parked(l[0], keep), driver.Outcome{Leased: l[1], Verdict: driver.Sent}, driver.Outcome{Leased: l[2]})
		e.wantParked(s, map[string]string{"k-1": "", "k-3": "k-1"}, keep == outbox.BlockKey)
		e.discard(l[0].Seq)
		if keep == outbox.ParkKey {
			e.discard(l[2].Seq)
			s.quiet("everything was confirmed or discarded")
		} else {
			s.drain(1)
		}
		if err := s.Close(e.ctx); err != nil {
			e.Fatalf("Close: %v", err)
		}
	}
}

// parkBehindDeferred: two reasons hold one key back, and only one of them needs a person.
func parkBehindDeferred[TTx any](e *env[TTx]) {
	s := e.session()
	for _, key := range []string{"one way", "the other way"} {
		e.enqueue(series(key, 3)...)
		l := s.await(key+"-1", key+"-2", key+"-3")
		one, two := deferred(l[0], 100*time.Millisecond), parked(l[1], outbox.BlockKey)
		if key == "one way" {
			s.settle(one, two, driver.Outcome{Leased: l[2]})
		} else {
			s.settle(driver.Outcome{Leased: l[2]}, two, one)
		}
		again := s.await(key + "-1")
		if again[0].Attempts != 1 {
			e.Errorf("%q has %d attempts, want 1", again[0].ID, again[0].Attempts)
		}
		s.sent(again...)
		e.wantParked(s, map[string]string{key + "-2": "", key + "-3": key + "-2"}, true)
		e.unpark(l[1].Seq)
		e.wantOrder(s.drain(2), map[string][]string{key: {key + "-2", key + "-3"}})
	}
}

func parkBehindNext[TTx any](e *env[TTx]) {
	e.enqueue(series("k", 3)...)
	s := e.session()
	l := s.await("k-1", "k-2", "k-3")
	s.settle(deferred(l[0], time.Hour), driver.Outcome{Leased: l[1]}, parked(l[2], outbox.BlockKey))
	s.quiet("the first message of its key is deferred")
	e.unpark(l[2].Seq)
	s.quiet("the first message of its key is deferred, and none is parked")
}
