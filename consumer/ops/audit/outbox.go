package audit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/outbox"
)

// Topic is a topic at its broker.
type Topic interface {
	// Read returns the messages of times from since to until that the topic has when Read is called. The Source ends
	// behind the last of them, and fails if it cannot tell whether there are more: a message that it leaves out counts
	// as lost. It may return others too. A zero since means the first message, a zero until the last one.
	Read(ctx context.Context, since, until time.Time) (Source, error)

	// Kept returns the time since when the topic has kept every message: it may have deleted earlier ones. Zero: it has
	// deleted none.
	Kept(ctx context.Context) (time.Time, error)
}

// OutboxConfig says what Outbox reads.
type OutboxConfig struct {
	Topic     string // outbox.Message.Topic; required
	Published Topic  // that topic at its broker; required

	// ID finds the outbox.Message.ID in a published message. Defaults to the header outbox.HeaderID.
	ID func(msg *consumer.Message) string

	// PerClaim is how many messages without an ID of their own each handled message of Config.Consumer enqueues to
	// Topic. Their IDs are derived again from the claims, and compared instead of the rows of outbox_sent. So it needs
	// no KeepSent, and also finds messages that a handler has not enqueued. A message that an operator discarded counts
	// as lost, as do those of claims that have no effect: see the package comment. 0: the rows of outbox_sent are
	// compared.
	PerClaim int

	// Since limits the comparison to messages that were enqueued then or later, or published, if nothing tells what was
	// sent. Zero: no limit. With PerClaim, messages of the first hour (dedup.MaxAhead) are skipped and noted, because
	// it is not known exactly when a claim was made; if Consumer has run with several windows, those of an hour and the
	// difference of the windows.
	Since time.Time
}

// clocksDiffer is by how much the clocks of the database, of relays and of brokers may differ.
const clocksDiffer = 10 * time.Minute

// Outbox compares the outbox with its topic. It lists messages that the broker has confirmed, and then reads
// the topic: a message that is not there is lost, one that is there twice is repeated. Pending, delayed and parked
// messages are not listed. A message is listed after it was confirmed, and the topic is read after that, so there is no
// false finding while relays publish.
//
// Which messages were confirmed is known from outbox_sent, for as long as the store's KeepSent, or derived from claims:
// see OutboxConfig.PerClaim. With neither, Outbox can only look for repeats, and sets Report.NoLosses.
//
// A repeat is no fault of the relay: it happens when a relay dies between a publication and its record, and readers
// recognize it by its ID. With Config.Expect AtLeastOne it is no finding. A sample does not look for repeats that came
// more than 10 minutes after the latest of its messages was sent. Outbox fails if it has not read all that it needs
// within Config.MaxTime, because nothing can be called lost then.
func Outbox(ctx context.Context, cfg Config, of OutboxConfig) (r Report, err error) {
	if err := of.complete(&cfg); err != nil {
		return r, err
	}
	began := time.Now()
	list, err := cfg.confirmed(ctx, of, &r)
	if err != nil {
		return r, err
	}
	if list.known && len(list.byID) == 0 {
		return r, nil
	}
	source, err := of.Published.Read(ctx, list.from(of.Since), list.until())
	if err != nil {
		return r, err
	}
	if err := cfg.count(ctx, began, of, source, list, &r); err != nil {
		return r, err
	}
	kept, err := of.Published.Kept(ctx) // after the topic was read: it may have deleted messages meanwhile
	if err != nil {
		return r, err
	}
	cfg.judge(list, kept, &r)
	return r, nil
}

// complete fills in the defaults.
func (of *OutboxConfig) complete(cfg *Config) error {
	check := cfg.validate
	if of.PerClaim > 0 {
		check = cfg.Validate
	}
	if of.ID == nil {
		of.ID = func(m *consumer.Message) string { return m.Headers[outbox.HeaderID] }
	}
	switch err := check(); {
	case err != nil:
		return err
	case of.Topic == "" || of.Published == nil:
		return errors.New("audit: OutboxConfig.Topic and Published are required")
	case of.PerClaim < 0:
		return fmt.Errorf("audit: OutboxConfig.PerClaim is negative: %d", of.PerClaim)
	}
	return nil
}

// published is a message that should be on the topic.
type published struct {
	key      dedup.Key // zero: unknown
	enqueued time.Time // then or later
	times    int       // how often it was found
	where    string    // where it was found last
}

// listing has the messages that should be on a topic.
type listing struct {
	known bool // false: nothing tells which ones should be there, and byID has those that were found
	whole bool // all that the database knows
	byID  map[string]*published
	first time.Time // no message was enqueued before
	last  time.Time // no message was published for the first time after; zero: unknown
}

func (l *listing) add(id string, p *published) {
	if l.byID == nil {
		l.byID = map[string]*published{}
	}
	if l.byID[id] == nil {
		l.byID[id] = p
		if l.first.IsZero() || p.enqueued.Before(l.first) {
			l.first = p.enqueued
		}
	}
}

// from returns where in the topic to begin.
func (l *listing) from(since time.Time) time.Time {
	if !l.known {
		return since
	}
	return l.first.Add(-clocksDiffer)
}

// until returns where in the topic to end. All is read when the database's whole list is compared.
func (l *listing) until() time.Time {
	if l.whole || l.last.IsZero() {
		return time.Time{}
	}
	return l.last.Add(clocksDiffer)
}

// count reads the topic.
func (c *Config) count(ctx context.Context, began time.Time, of OutboxConfig, source Source, list *listing,
	r *Report,
) error {
	p := pace{began, c}
	read, identified := 0, 0
	for {
		msgs, err := source.Next(ctx)
		if err != nil {
			return err
		}
		if len(msgs) == 0 && read > 0 && identified == 0 {
			return fmt.Errorf("audit: none of %d messages of topic %s has an ID: they are of other producers, or OutboxConfig.ID looks in the wrong place", read, of.Topic)
		}
		if len(msgs) == 0 {
			return nil
		}
		read += len(msgs)
		for _, m := range msgs {
			id := of.ID(m)
			if id == "" { // of another producer
				continue
			}
			identified++
			found := list.byID[id]
			if found == nil && !list.known && (c.Sample == 0 || len(list.byID) < c.Sample) {
				found = &published{}
				list.add(id, found)
			}
			if found != nil {
				found.times++
				found.where = m.Position
			}
		}
		if c.Progress != nil {
			c.Progress(Report{Checked: read})
		}
		switch goOn, err := p.wait(ctx, read); {
		case err != nil:
			return err
		case !goOn && list.known:
			r.Skipped += len(list.byID)
			return fmt.Errorf("audit: topic %s was not read to its end within %v, so nothing can be called lost: %d messages were read; "+
				"raise Config.MaxTime and Config.Rate, or compare fewer messages with Config.Sample and OutboxConfig.Since", of.Topic, c.MaxTime, read)
		case !goOn:
			list.whole = false
			return nil
		}
	}
}

// judge compares the list with the messages of the topic.
func (c *Config) judge(list *listing, kept time.Time, r *Report) {
	r.Whole = list.whole && (list.known || c.Sample == 0 || len(list.byID) < c.Sample)
	gone := 0
	for id, m := range list.byID {
		switch {
		case m.times > 1 && c.Expect != AtLeastOne:
			r.Checked++
			r.add(Finding{Kind: Repeated, Key: m.key, ID: id, Count: m.times, Where: m.where})
		case m.times > 0:
			r.Checked++
		case !kept.IsZero() && !m.enqueued.After(kept.Add(clocksDiffer)):
			r.Skipped++
			gone++
		default:
			r.Checked++
			if c.Expect != AtMostOne {
				r.add(Finding{Kind: Lost, Key: m.key, ID: id})
			}
		}
	}
	if gone > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("%d messages were skipped, because the topic has deleted messages of their time: it has all since %s",
			gone, kept.UTC().Format(time.RFC3339)))
		r.Whole = false
	}
}
