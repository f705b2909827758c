package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/txonce/txonce/dedup"
)

// Claimer claims keys, each call in a transaction of its own. See ClaimsOf.
type Claimer interface {
	Claim(ctx context.Context, recs []dedup.Record) ([]dedup.Claim, error)
	Retryable(err error) bool // as in dedup.Store
}

// ClaimsOf returns a Claimer of store.
func ClaimsOf[TTx any](store dedup.Store[TTx]) Claimer { return claimer[TTx]{store} }

type claimer[TTx any] struct{ dedup.Store[TTx] }

func (c claimer[TTx]) Claim(ctx context.Context, recs []dedup.Record) (answers []dedup.Claim, err error) {
	err = c.InTx(ctx, recs, func(_ TTx, claims []dedup.Claim) error {
		answers = claims
		return nil
	})
	return answers, err
}

// importer claims keys in batches.
type importer struct {
	db       *Database
	timeout  time.Duration
	rate     float64
	batch    int
	consumer string
	window   time.Duration
	progress *progress

	began                   time.Time
	imported, claimed, busy int            // rows
	held                    []dedup.Record // other transactions held their keys
}

// claimTries is how often a claim is tried when the database fails: a failover may take a while.
const claimTries = 6

func (im *importer) run(ctx context.Context, keys *spool) error {
	im.began = time.Now()
	var part []dedup.Record
	flush := func() error {
		if len(part) == 0 {
			return nil
		}
		defer func() { part = part[:0] }()
		if err := im.claim(ctx, part); err != nil {
			return err
		}
		im.progress.show(im.imported+im.claimed+im.busy, 0)
		return im.pace(ctx)
	}
	err := keys.each(func(tenant, id string) error {
		// Without a Time: the claim is never Unprovable, so that no key of the table is left out.
		part = append(part, dedup.Record{
			Key: dedup.Key{Consumer: im.consumer, Tenant: tenant, ID: id}, Window: im.window,
		})
		if len(part) < im.batch {
			return nil
		}
		return flush()
	})
	if err == nil {
		err = flush()
	}
	if err != nil {
		return err
	}
	return im.again(ctx)
}

// claim claims a batch. A key that another transaction holds stops the whole batch, so the batch is halved until that
// key is alone; it is tried again at the end.
func (im *importer) claim(ctx context.Context, part []dedup.Record) error {
	answers, err := im.try(ctx, part)
	switch {
	case errors.Is(err, dedup.ErrInFlight) && len(part) == 1:
		im.held = append(im.held, part[0])
		return nil
	case errors.Is(err, dedup.ErrInFlight):
		if err := im.claim(ctx, part[:len(part)/2]); err != nil {
			return err
		}
		return im.claim(ctx, part[len(part)/2:])
	case err != nil:
		return err
	}
	for _, answer := range answers {
		switch answer.Verdict {
		case dedup.First:
			im.imported++
		case dedup.Duplicate:
			im.claimed++
		default: // a record without a time and without a fingerprint has no other answer
			return fmt.Errorf("a claim was answered with %v", answer.Verdict)
		}
	}
	return nil
}

// again claims the keys that other transactions held: by now these have ended, or they never will while this runs.
func (im *importer) again(ctx context.Context) error {
	held := im.held
	im.held = nil
	for _, rec := range held {
		if err := im.claim(ctx, []dedup.Record{rec}); err != nil {
			return err
		}
	}
	im.busy = len(im.held)
	return nil
}

// try claims, again and again while the database fails.
func (im *importer) try(ctx context.Context, part []dedup.Record) (answers []dedup.Claim, err error) {
	err = retry(ctx, im.db, im.timeout, func(ctx context.Context) (err error) {
		answers, err = im.db.Claims.Claim(ctx, part)
		return err
	})
	return answers, err
}

// retry calls f again while the database fails, or while consumers hold the whole file of SQLite.
func retry(ctx context.Context, db *Database, timeout time.Duration, f func(ctx context.Context) error) error {
	for n := 1; ; n++ {
		limited, cancel := context.WithTimeout(ctx, timeout)
		err := f(limited)
		cancel()
		if err == nil || n == claimTries || ctx.Err() != nil || !db.Claims.Retryable(err) {
			return err
		}
		if err := pause(ctx, time.Duration(n)*200*time.Millisecond); err != nil {
			return err
		}
	}
}

// pace waits until the rate allows more.
func (im *importer) pace(ctx context.Context) error {
	if im.rate == 0 {
		return ctx.Err()
	}
	done := float64(im.imported + im.claimed + len(im.held))
	return pause(ctx, time.Until(im.began.Add(time.Duration(done/im.rate*float64(time.Second)))))
}

func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// countClaimed counts, for a dry run, which keys have a claim already.
func (a *app) countClaimed(ctx context.Context, db *Database, out *printer, f importFlags, keys *sourceKeys,
	o *imported,
) error {
	p := newProgress(out, "keys looked up", keys.spool.n)
	defer p.end()
	reader := limitedKeys{db.Store.Operator().Keys(), a}
	looked, part := 0, make([]dedup.Key, 0, f.batch)
	seen := make(map[uint64]bool, len(keys.hashes)) // repeated rows count once
	flush := func() error {
		claimed, err := reader.Claimed(ctx, part)
		if err != nil {
			return err
		}
		looked, o.Claimed = looked+len(part), o.Claimed+len(claimed)
		p.show(looked, 0)
		part = part[:0]
		return nil
	}
	err := keys.spool.each(func(tenant, id string) error {
		key := dedup.Key{Consumer: f.consumer, Tenant: tenant, ID: id}
		h := low(key.Hash())
		if seen[h] {
			return nil
		}
		seen[h] = true
		if part = append(part, key); len(part) < f.batch {
			return nil
		}
		return flush()
	})
	if err == nil && len(part) > 0 {
		err = flush()
	}
	o.Imported = o.Keys - o.Claimed
	return err
}
