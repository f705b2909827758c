package stripehook

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/internal/await"
)

// Backfill fetches events with List Events and hands them to the Processor that also handles the webhooks. An event
// that a webhook has delivered is a duplicate then, and so is a webhook that comes after the Backfill. Make one with
// NewBackfill. It is safe for concurrent use, also by several processes: the second then finds duplicates.
type Backfill[TTx any] struct {
	cfg   BackfillConfig[TTx]
	keys  keys
	since int64 // the first second of BackfillConfig.Since

	passing sync.Mutex // held during a pass
}

// NewBackfill returns a Backfill, or an error that names all fields of cfg that are at fault. It uses neither the
// network nor the database.
func NewBackfill[TTx any](cfg BackfillConfig[TTx]) (*Backfill[TTx], error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	cfg.Types = slices.Clone(cfg.Types)
	b := &Backfill[TTx]{cfg: cfg, keys: cfg.Verifier.keys}
	if account := cfg.Client.cfg.Account; account != "" {
		b.keys.account = account // events fetched as this account happened there, whether or not they say so
	}
	b.since = cfg.Since.Unix()
	if cfg.Since.Nanosecond() > 0 {
		b.since++
	}
	return b, nil
}

// Run makes a pass every Interval until ctx ends, and then returns nil. A pass that fails is logged, and the next one
// begins where the checkpoint is.
func (b *Backfill[TTx]) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := b.Once(ctx); err != nil && ctx.Err() == nil {
			b.cfg.Logger.ErrorContext(ctx, "backfill of Stripe's events failed; the next pass tries again", "scope",
				b.scope(), "error", err)
		}
		_ = await.Sleep(ctx, b.cfg.Interval)
	}
	return nil
}

// Once makes one pass: it fetches all events from Overlap before the checkpoint to now, and returns nil when each of
// them is handled or parked. It repeats events whose attempts fail, as the Processor asks, until ctx ends.
//
// The checkpoint never passes an event that is not handled: after an error or a crash the next pass fetches that event
// again. An event that the Processor rejects, because it has nowhere to park it, does not stop the others, but the
// checkpoint stays before it.
func (b *Backfill[TTx]) Once(ctx context.Context) error {
	b.passing.Lock()
	defer b.passing.Unlock()
	if starter, ok := b.cfg.Processor.(driver.Starter); ok {
		if err := starter.Start(ctx); err != nil {
			return fmt.Errorf("stripehook: backfill: %w", err)
		}
	}
	seen, err := b.load(ctx)
	if err != nil {
		return fmt.Errorf("stripehook: backfill: %w", err)
	}
	if now := time.Now(); seen > now.Unix() {
		b.cfg.Logger.WarnContext(ctx, "stripehook: backfill: the checkpoint is in the future, so a clock is or was wrong; this pass goes on from now",
			"scope", b.scope(), "checkpoint", time.Unix(seen, 0).UTC(), "now", now.UTC())
		seen = now.Unix()
	}
	if err := b.pass(ctx, seen); err != nil {
		return fmt.Errorf("stripehook: backfill: %w", err)
	}
	return nil
}

// period is a range of times of events, in whole seconds of Stripe's clock.
type period struct {
	from int64
	to   int64 // the first second after it; 0: it has no end
}

// pass handles all events since seen, the oldest first. List Events has the newest first, so events are collected
// before they are handled. A period with too many to keep in memory is divided: the pass goes through its first half
// and then through the rest.
//
// An event can be ahead of this machine's clock, as those of Stripe's test clocks are. The checkpoint stays behind the
// time when the pass began, because events that come later are older than such an event. That time does not move on
// during the pass: the events that are ahead would never be collected if the pass divided them from the others again
// and again.
func (b *Backfill[TTx]) pass(ctx context.Context, seen int64) error {
	overlap := int64((b.cfg.Overlap + time.Second - 1) / time.Second)
	from, now := max(seen-overlap, b.since), time.Now().Unix()
	ends := []int64{0} // of the periods that remain, the next one last; each begins where the one before it ends
	var rejected error // the first; then the checkpoint stays
	for len(ends) > 0 {
		p := period{from: from, to: ends[len(ends)-1]}
		found, err := b.collect(ctx, p)
		switch {
		case err != nil:
			return err
		case found.more && found.newest == 0: // nothing shows where to divide it, because no event could be read
			err = b.undivided(ctx, p)
		case found.more && p.to == 0:
			end := found.newest + 1 // events that are added during the pass come after it
			if now >= from {
				end = min(end, now+1) // the events ahead of the clock have the periods after this one
			}
			ends = append(ends, end)
			continue
		case found.more && p.to > p.from+1:
			ends = append(ends, p.middle(found.newest))
			continue
		case found.more:
			err = b.undivided(ctx, p)
		default:
			err = b.handle(ctx, found.messages)
		}
		switch {
		case isRejected(err):
			rejected = cmp.Or(rejected, err)
		case err != nil:
			return err
		}
		if done := min(max(found.newest, p.to), now); rejected == nil && done > seen {
			if err := b.save(ctx, done); err != nil {
				return err
			}
			seen = done
		}
		from, ends = p.to, ends[:len(ends)-1]
		// The next period probably has as many events in the same time.
		if width := p.to - p.from; len(ends) > 1 && ends[len(ends)-1] > from+2*width &&
			len(found.messages) >= b.cfg.MaxPages*pageSize/2 {
			ends = append(ends, from+width)
		}
	}
	return rejected
}

// maxAge is longer than Stripe lists events, in seconds. It only guides where a period is divided.
const maxAge = int64(31 * 24 * time.Hour / time.Second)

// middle is within p, which is longer than a second and has its newest event at newest. The time before the oldest
// possible event does not count.
func (p period) middle(newest int64) int64 {
	lower := max(p.from, newest-maxAge)
	return lower + max((newest+1-lower)/2, 1)
}

// maxUndivided limits the pages of a period that cannot be divided, as a multiple of MaxPages.
const maxUndivided = 100

// undivided handles the events of a period that cannot be divided, page by page. They are the only ones that are
// handled newest first.
func (b *Backfill[TTx]) undivided(ctx context.Context, p period) error {
	var rejected error
	pages := 0
	for page, err := range b.pages(ctx, p) {
		if err != nil {
			return err
		}
		switch err := b.handle(ctx, page.messages); {
		case isRejected(err):
			rejected = cmp.Or(rejected, err)
		case err != nil:
			return err
		}
		if pages++; page.more && pages == maxUndivided*b.cfg.MaxPages {
			return fmt.Errorf("list events: the list of the events since %v has no end after %d pages: if so many events have one time, "+
				"raise BackfillConfig.MaxPages; if not, Stripe's API or a proxy repeats pages",
				time.Unix(p.from, 0).UTC(), pages)
		}
	}
	return rejected
}
