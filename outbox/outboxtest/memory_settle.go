package outboxtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/txonce/txonce/internal/usercode"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

// Settle implements driver.Session.
func (s *session) Settle(ctx context.Context, outcomes []driver.Outcome) error {
	if err := s.memory.usable(ctx); err != nil {
		return err
	}
	m := s.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, o := range outcomes {
		if o.Verdict < driver.Returned || o.Verdict > driver.Parked {
			return fmt.Errorf("outboxtest: message %d: no verdict %d", o.Seq, o.Verdict)
		}
		if o.Shard < 0 || o.Shard >= len(m.shards) {
			return fmt.Errorf("outboxtest: message %d: no shard %d", o.Seq, o.Shard)
		}
		if sh := &m.shards[o.Shard]; sh.owner != s || sh.token != o.Token {
			return driver.ErrLeaseLost
		}
	}
	now := time.Now()
	for _, o := range outcomes {
		m.settle(o, now)
		delete(s.leased[o.Shard], o.Seq)
	}
	for _, o := range outcomes { // only now, when all outcomes are written: some are about the key of another
		if o.Verdict == driver.Deferred && o.WholeTopic {
			m.shards[o.Shard].deferTopic(o, now)
		}
		m.follow(o.Shard, now)
	}
	s.giveBackLeaving()
	return nil
}

// settle ends one lease. A message that is not there was settled before.
func (m *Memory) settle(o driver.Outcome, now time.Time) {
	sh := &m.shards[o.Shard]
	at, found := slices.BinarySearchFunc(sh.rows, o.Seq, bySeq)
	if !found {
		return
	}
	r := sh.rows[at]
	switch o.Verdict {
	case driver.Sent:
		sh.rows = slices.Delete(sh.rows, at, at+1)
		if m.KeepSent > 0 {
			r.sentAt = now
			m.sent = append(m.sent, r)
		}
	case driver.Deferred:
		r.fail(o)
		if r.OrderingKey == "" {
			r.retryAt, r.failedAt = now.Add(o.Delay), now
		} else {
			sh.holds[r.OrderingKey] = append(sh.holds[r.OrderingKey],
				hold{from: r.Seq, setAt: now, until: now.Add(o.Delay)})
		}
	case driver.Parked:
		sh.rows = slices.Delete(sh.rows, at, at+1)
		r.fail(o)
		r.keep, r.parkedAt, r.behind, r.waiting = o.ParkPolicy, now, 0, false
		m.parked[r.Seq] = r
		m.hold(r.Shard, r.OrderingKey)
	case driver.Returned:
		if o.Delay > 0 && r.OrderingKey != "" {
			sh.holds[r.OrderingKey] = append(sh.holds[r.OrderingKey], hold{from: r.Seq, until: now.Add(o.Delay)})
		}
	}
}

// deferTopic holds back the messages of o's topic that do not wait yet.
func (sh *shard) deferTopic(o driver.Outcome, now time.Time) {
	for _, r := range sh.next(now, len(sh.rows)) {
		switch {
		case r.Topic != o.Topic:
		case r.OrderingKey == "":
			r.retryAt, r.error = now.Add(o.Delay), cmp.Or(o.Err, errNoError).Error()
		case !sh.held(r, now):
			sh.holds[r.OrderingKey] = append(sh.holds[r.OrderingKey], hold{from: r.Seq, until: now.Add(o.Delay)})
		}
	}
}

// fail counts from the leased message, so that settling twice counts once.
func (r *row) fail(o driver.Outcome) {
	if !o.BrokerFault {
		r.Attempts = o.Attempts + 1
	}
	r.error = usercode.Error(cmp.Or(o.Err, errNoError)).Error()
}

var errNoError = errors.New("no error was given")

// hold computes which messages of a key are held back, from its parked messages. Messages that waited behind a parked
// one become pending; follow parks them again where they still have to wait.
func (m *Memory) hold(i int, key string) {
	if key == "" {
		return
	}
	sh := &m.shards[i]
	holds := slices.DeleteFunc(sh.holds[key], func(h hold) bool { return h.until.IsZero() })
	var parked []*row
	for _, seq := range slices.Sorted(maps.Keys(m.parked)) {
		if r := m.parked[seq]; r.Shard == i && r.OrderingKey == key {
			parked = append(parked, r)
		}
	}
	var first *hold
	for _, r := range parked {
		switch {
		case r.waiting: // follow parks it again when another one is before it
			delete(m.parked, r.Seq)
			r.back()
			m.insert(r)
		case first == nil && (r.behind != 0 || r.keep != outbox.SkipMessage):
			first = &hold{from: r.Seq, park: r.behind != 0 || r.keep == outbox.ParkKey}
		}
	}
	if first != nil {
		holds = append(holds, *first)
	}
	if len(holds) == 0 {
		delete(sh.holds, key)
		return
	}
	sh.holds[key] = holds
}

// back resets the fields of a parked message.
func (r *row) back() { r.behind, r.waiting, r.error, r.keep = 0, false, "", 0 }
