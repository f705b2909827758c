package kafka

import (
	"time"

	"github.com/IBM/sarama"

	"github.com/txonce/txonce/dedup/driver"
)

// What the tests of unexported parts need of them.

type OffsetTracker = offsetTracker

var (
	Retention = retention
	PassOver  = passOver
)

const (
	Forever  = forever
	HoldMost = holdMost
)

func (t *offsetTracker) Deliver(raw *sarama.ConsumerMessage) *trackedOffset { return t.deliver(raw) }

func (t *offsetTracker) Finish(o *trackedOffset) (low *sarama.ConsumerMessage) { return t.finish(o) }

func (t *offsetTracker) Len() (n int) {
	for o := t.first; o != nil; o = o.next {
		n++
	}
	return n
}

// Begin decides where a session begins to read, and what its row is then.
func Begin(f Found, row *driver.Position, window int64) (b Beginning, now driver.Position, err error) {
	decided, err := begin(found{
		consumer: "billing", committed: f.Committed, metadata: f.Metadata, log: f.Log, first: f.First,
		initial: f.Initial, now: time.Unix(1_800_000_000, 0),
	}, row)
	if err != nil {
		return b, now, err
	}
	return Beginning{decided.at, decided.reset, decided.mark.String(), decided.rewind, decided.note},
		decided.position(row, window), nil
}

type (
	Found struct {
		Committed int64
		Metadata  string
		Log       string
		First     int64
		Initial   int64
	}
	Beginning struct {
		At     int64
		Reset  bool
		Mark   string
		Rewind driver.Rewind
		Note   string
	}
)

var (
	ErrNoPosition = errNoPosition
	ErrSkipped    = errSkipped
)
