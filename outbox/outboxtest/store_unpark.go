package outboxtest

import (
	"context"
	"strings"

	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

func (e *env[TTx]) unpark(seqs ...int64) {
	e.Helper()
	if n, err := e.Operations.Unpark(e.ctx, seqs...); err != nil || n != len(seqs) {
		e.Fatalf("Unpark of %d messages: %d, error %v", len(seqs), n, err)
	}
}

func (e *env[TTx]) discard(seqs ...int64) {
	e.Helper()
	if n, err := e.Operations.Discard(e.ctx, seqs...); err != nil || n != len(seqs) {
		e.Fatalf("Discard of %d messages: %d, error %v", len(seqs), n, err)
	}
}

func parkOutlasts[TTx any](e *env[TTx]) {
	s := e.head(outbox.BlockKey)
	s.sent(s.await("k-1", "other", "free")...)
	list := e.wantParked(s, map[string]string{"k-2": "", "k-3": "k-2", "k-4": "k-2"}, true)
	if err := s.Close(e.ctx); err != nil {
		e.Fatalf("Close: %v", err)
	}
	e.enqueue(message("k-5", "k"))
	s = e.session()
	s.quiet("a message of their key is parked")
	e.unpark(list["k-2"].Seq) // k-5, which was enqueued later, follows in order, too
	e.wantOrder(s.drain(4), map[string][]string{"k": {"k-2", "k-3", "k-4", "k-5"}})
}

// textless is an error whose method Error panics.
type textless struct{}

func (textless) Error() string { panic("no text") }

// parkWithoutText settles with errors that a relay of another make might pass on: a nil pointer, and one whose method
// panics.
func parkWithoutText[TTx any](e *env[TTx]) {
	e.enqueue(outbox.Message{ID: "nil", Topic: "t"}, outbox.Message{ID: "panics", Topic: "t"},
		outbox.Message{ID: "good", Topic: "t"})
	s := e.session()
	leased := s.await("nil", "panics", "good")
	first, second := parked(leased[0], outbox.BlockKey), parked(leased[1], outbox.BlockKey)
	first.Err, second.Err = (*outbox.TopicError)(nil), textless{}
	s.settle(first, second, driver.Outcome{Leased: leased[2], Verdict: driver.Sent})
	list := e.parked()
	for _, p := range list {
		if want := map[string]string{
			"nil":    "nil *outbox.TopicError",
			"panics": "no text",
		}[p.ID]; !strings.Contains(p.Error, want) {
			e.Errorf("%q is parked with the error %q, want one with %q", p.ID, p.Error, want)
		}
	}
	if len(list) != 2 {
		e.Errorf("%d are parked, want 2", len(list))
	}
}

func parkIntact[TTx any](e *env[TTx]) {
	msgs := hardMessages()
	e.enqueue(msgs...)
	s := e.session()
	before := s.await(idsOf(msgs)...)
	var all []driver.Outcome
	for _, l := range before {
		all = append(all, parked(l, outbox.SkipMessage))
	}
	s.settle(all...)
	var seqs []int64
	list := e.parked()
	if len(list) != len(msgs) {
		e.Fatalf("%d are parked, want %d", len(list), len(msgs))
	}
	byID := map[string]outbox.ParkedMessage{}
	for _, p := range list {
		byID[p.ID] = p
		seqs = append(seqs, p.Seq)
	}
	now := e.stats().Now
	for i, m := range msgs {
		p := byID[m.ID]
		e.wantSame(p.Message, m)
		if p.Seq != before[i].Seq || p.Shard != before[i].Shard || !p.Enqueued.Equal(before[i].Enqueued) {
			e.Errorf("%.80q is parked with Seq %d of shard %d, enqueued at %v; was leased with %d, %d, %v",
				m.ID, p.Seq, p.Shard, p.Enqueued, before[i].Seq, before[i].Shard, before[i].Enqueued)
		}
		if p.ParkedAt.Before(p.Enqueued) || p.ParkedAt.After(now) {
			e.Errorf("%.80q was enqueued at %v and parked at %v, and now is %v", m.ID, p.Enqueued, p.ParkedAt, now)
		}
	}
	e.unpark(seqs...)
	for i, l := range s.await(idsOf(msgs)...) {
		e.wantSame(l.Message, msgs[i])
		if l.Seq != before[i].Seq || !l.Enqueued.Equal(before[i].Enqueued) {
			e.Errorf("%.80q came back with Seq %d, enqueued at %v; had %d, %v", l.ID, l.Seq, l.Enqueued, before[i].Seq,
				before[i].Enqueued)
		}
	}
}

func unparkAttempts[TTx any](e *env[TTx]) {
	e.enqueue(message("keyed", "k"), message("free", ""))
	s := e.session()
	for range 3 {
		l := s.await("keyed", "free")
		s.settle(deferred(l[0], 0), deferred(l[1], 0))
	}
	l := s.await("keyed", "free")
	one, two := parked(l[0], outbox.BlockKey), parked(l[1], outbox.BlockKey)
	two.BrokerFault = true
	s.settle(one, two)
	var seqs []int64
	for _, p := range e.parked() {
		if want := map[string]int{"keyed": 4, "free": 3}[p.ID]; p.Attempts != want {
			e.Errorf("%q is parked with %d attempts, want %d", p.ID, p.Attempts, want)
		}
		seqs = append(seqs, p.Seq)
	}
	e.unpark(seqs...)
	for _, again := range s.await("keyed", "free") {
		if again.Attempts != 0 {
			e.Errorf("%q has %d attempts after Unpark", again.ID, again.Attempts)
		}
	}
}

func unparkUnknown[TTx any](e *env[TTx]) {
	e.enqueue(append(series("k", 2), series("b", 2)...)...)
	s := e.session()
	l := s.await("k-1", "k-2", "b-1", "b-2")
	s.settle(parked(l[0], outbox.SkipMessage), driver.Outcome{Leased: l[1]}, parked(l[2], outbox.SkipMessage),
		driver.Outcome{Leased: l[3]})
	const unknown = 1 << 40
	for name, of := range map[string]struct {
		do   func(seqs ...int64) (int, error)
		seqs []int64
		want int
	}{
		"Unpark of nothing":   {e.counted(e.Operations.Unpark), nil, 0},
		"Discard of nothing":  {e.counted(e.Operations.Discard), nil, 0},
		"Unpark of unknown":   {e.counted(e.Operations.Unpark), []int64{unknown, 0, -1}, 0},
		"Discard of unknown":  {e.counted(e.Operations.Discard), []int64{unknown, 0, -1}, 0},
		"Unpark of pending":   {e.counted(e.Operations.Unpark), []int64{l[1].Seq}, 0},
		"Discard of pending":  {e.counted(e.Operations.Discard), []int64{l[3].Seq}, 0},
		"Unpark among others": {e.counted(e.Operations.Unpark), []int64{l[1].Seq, l[0].Seq, unknown}, 1},
		"Discard among them":  {e.counted(e.Operations.Discard), []int64{unknown, l[2].Seq, l[3].Seq}, 1},
	} {
		if n, err := of.do(of.seqs...); err != nil || n != of.want {
			e.Errorf("%s: %d, error %v; want %d", name, n, err, of.want)
		}
	}
	if n, err := e.Operations.Unpark(e.ctx, l[0].Seq, l[2].Seq); err != nil || n != 0 {
		e.Errorf("Unpark of what is no more parked: %d, error %v", n, err)
	}
	got := s.await("k-1", "k-2", "b-2")
	s.sent(got...)
	s.quiet("everything was confirmed or discarded")
}

// counted binds the context.
func (e *env[TTx]) counted(do func(ctx context.Context, seqs ...int64) (int, error)) func(...int64) (int, error) {
	return func(seqs ...int64) (int, error) { return do(e.ctx, seqs...) }
}
