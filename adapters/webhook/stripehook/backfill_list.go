package stripehook

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/txonce/txonce/consumer"
)

const pageSize = 100 // the most that Stripe allows

// batch is what was listed of a period.
type batch struct {
	messages       []*consumer.Message // the oldest first
	oldest, newest int64               // times of its events; 0: it has none
	more           bool                // the period has older events too
}

// collect lists the events of p, up to MaxPages pages.
func (b *Backfill[TTx]) collect(ctx context.Context, p period) (all batch, err error) {
	pages := 0
	for page, err := range b.pages(ctx, p) {
		if err != nil {
			return batch{}, err
		}
		all.messages = append(page.messages, all.messages...)
		all.add(page.newest)
		all.add(page.oldest)
		if pages++; page.more && pages == b.cfg.MaxPages {
			all.more = true
			return all, nil
		}
	}
	return all, nil
}

func (b *batch) add(created int64) {
	if created == 0 {
		return
	}
	b.newest = max(b.newest, created)
	if b.oldest == 0 || created < b.oldest {
		b.oldest = created
	}
}

// pages lists the events of p, a page at a time, the newest first. Events that are added meanwhile are newer than the
// first page, and do not move the later ones, because each page begins after an event and not after a number of events.
// When a page is too large for the Client, it is asked for with half as many events, and so are the pages after it.
func (b *Backfill[TTx]) pages(ctx context.Context, p period) iter.Seq2[batch, error] {
	return func(yield func(batch, error) bool) {
		for after, limit := "", pageSize; ; {
			list, err := b.list(ctx, p, after, limit)
			if errors.Is(err, errTooLarge) && limit > 1 {
				limit /= 2
				continue
			}
			if err != nil {
				yield(batch{}, fmt.Errorf("list events: %w", err))
				return
			}
			page, err := b.read(p, list)
			if err != nil {
				yield(batch{}, fmt.Errorf("list events: %w", err))
				return
			}
			if !yield(page, nil) || !page.more {
				return
			}
			after = list.last
		}
	}
}

// eventList is an answer of List Events.
type eventList struct {
	Object  string            `json:"object"`
	Data    []json.RawMessage `json:"data"`
	HasMore *bool             `json:"has_more"`

	last string // the ID of the last event
}

// list fetches one page of the events of p that follow the event called after: limit events at most.
func (b *Backfill[TTx]) list(ctx context.Context, p period, after string, limit int) (page eventList, err error) {
	query := url.Values{"limit": {strconv.Itoa(limit)}, "created[gte]": {strconv.FormatInt(p.from, 10)}}
	if p.to != 0 {
		query.Set("created[lt]", strconv.FormatInt(p.to, 10))
	}
	if after != "" {
		query.Set("starting_after", after)
	}
	if b.cfg.UndeliveredOnly {
		query.Set("delivery_success", "false")
	}
	for _, name := range b.cfg.Types {
		query.Add("types[]", name)
	}
	_, err = b.cfg.Client.get(ctx, "/v1/events?"+query.Encode(), "", func(body []byte) error {
		page = eventList{}
		if err := json.Unmarshal(body, &page); err != nil || page.Object != "list" || page.HasMore == nil {
			return errors.New("the answer is not a list of events")
		}
		if len(page.Data) > 0 {
			var last struct {
				ID string `json:"id"`
			}
			_ = json.Unmarshal(page.Data[len(page.Data)-1], &last) // below
			page.last = last.ID
		}
		if *page.HasMore && (page.last == "" || page.last == after) {
			return errors.New("the answer says that there is more, but not after which event")
		}
		return nil
	})
	return page, err
}

// read makes messages of a page.
func (b *Backfill[TTx]) read(p period, list eventList) (page batch, err error) {
	page.more = *list.HasMore
	now := time.Now()
	for _, raw := range list.Data {
		event, err := Parse(raw)
		if err != nil {
			page.messages = append(page.messages, b.malformed(raw, err))
			continue
		}
		created := event.Created.Unix()
		if modeOf(event.Livemode) != b.cfg.Client.cfg.Mode {
			return page, fmt.Errorf("event %s is a %v event, and ClientConfig.Mode is %v", event.ID,
				modeOf(event.Livemode), b.cfg.Client.cfg.Mode)
		}
		if created < p.from || p.to != 0 && created >= p.to {
			return page, fmt.Errorf("event %s of %v is outside of the period that was asked for", event.ID,
				event.Created)
		}
		msg := b.keys.message(event, raw, now)
		page.messages = append(page.messages, &msg)
		page.add(created)
	}
	slices.Reverse(page.messages)
	return page, nil
}

// malformed is an event that cannot be read, as a webhook with it would be refused. It is parked, so that it stops no
// other event.
func (b *Backfill[TTx]) malformed(raw []byte, err error) *consumer.Message {
	sum := sha256.Sum256(raw)
	return &consumer.Message{
		Malformed: err, Payload: raw, Position: sourceName + "/unreadable/" + hex.EncodeToString(sum[:16]),
		Tenant: b.keys.tenant(Event{Livemode: b.cfg.Client.cfg.Mode == Live}),
	}
}
