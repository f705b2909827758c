package applehook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/await"
	"github.com/txonce/txonce/internal/backoff"
)

// Backfill passes notifications that the receiver missed to its consumer, from Apple's history. Several processes may
// run one each: what one has handled is a duplicate for the others.
type Backfill[TTx any] struct {
	cfg        BackfillConfig[TTx]
	history    *historyClient
	checkpoint *webhook.Checkpoint[TTx]
}

// NewBackfill returns a Backfill, or an error that names all fields of cfg that are at fault. It uses neither the
// network nor the database.
func NewBackfill[TTx any](cfg BackfillConfig[TTx]) (*Backfill[TTx], error) {
	cfg, key, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	// A checkpoint that is older than Apple's history says nothing, so it may be forgotten.
	checkpoint, err := webhook.NewCheckpoint(cfg.Store, cfg.Name+"/"+cfg.Verifier.tenant, cfg.Verifier.Source().Horizon)
	if err != nil {
		return nil, fmt.Errorf("applehook: BackfillConfig.Name or BackfillConfig.Store: %w", err)
	}
	client := http.Client{}
	if cfg.HTTPClient != nil {
		client = *cfg.HTTPClient
	}
	// the token is for one host
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Backfill[TTx]{cfg: cfg, checkpoint: checkpoint, history: &historyClient{
		url: cfg.URL, client: &client, issuer: cfg.IssuerID, keyID: cfg.KeyID, bundleID: cfg.Verifier.cfg.BundleID,
		key: key,
	}}, nil
}

// Passed says what a pass did.
type Passed struct {
	Through time.Time // the checkpoint: all notifications before it are handled
	Read    int       // notifications in Apple's history; some were read twice
	New     int       // notifications that were missed, and whose effects are committed now
	Parked  int       // notifications that are dead letters now
	Dropped int       // test notifications, and others that do not reach the handler
	Skipped int       // notifications that do not verify, and that BackfillConfig.Refused skipped
}

// Run makes a pass at once, and one after each Interval, until ctx ends. Then it returns nil. It waits for a database
// or an API that does not answer, however long that takes. An error is one that a person must correct: Apple refuses
// the key, a notification does not verify, or the Processor gave a notification up and has no place to park it. Nothing
// is lost then: the checkpoint stays before it.
func (b *Backfill[TTx]) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		_, err := b.Pass(ctx)
		if err != nil && ctx.Err() == nil { // after a stop, the next run reads the unhandled ones again
			return err
		}
		_ = await.Sleep(ctx, b.cfg.Interval)
	}
	return nil
}

// state is what the checkpoint keeps, as JSON.
type state struct {
	Version int   `json:"version"`
	Through int64 `json:"through"` // in milliseconds: all notifications before it are handled
}

const (
	stateVersion = 1

	// step limits what a crash repeats: the checkpoint is saved after each step.
	step = 24 * time.Hour

	// seam is how much two steps overlap, because Apple does not say whether startDate and endDate are inclusive.
	seam = time.Second

	// margin keeps a pass within Apple's history, whose beginning moves on while the request travels.
	margin = 10 * time.Minute
)

// Pass passes all notifications since the checkpoint to the Processor, and moves the checkpoint to now. When it returns
// nil, each is committed or parked.
func (b *Backfill[TTx]) Pass(ctx context.Context) (passed Passed, err error) {
	if starter, ok := b.cfg.Processor.(driver.Starter); ok {
		if err := starter.Start(ctx); err != nil {
			return passed, fmt.Errorf("applehook: backfill: %w", err)
		}
	}
	now := time.Now()
	from, err := b.begin(ctx, now)
	if err != nil {
		return passed, err
	}
	for from.Before(now) {
		to := from.Add(step)
		if to.After(now) {
			to = now
		}
		if err := b.span(ctx, from, to, &passed); err != nil {
			return passed, err
		}
		if err := b.save(ctx, to); err != nil {
			return passed, err
		}
		passed.Through, from = to, to
	}
	if passed.New+passed.Parked+passed.Skipped > 0 {
		b.cfg.Logger.InfoContext(ctx, "applehook: backfill handled notifications that were missed", "app",
			b.cfg.Verifier.tenant, "new", passed.New,
			"parked", passed.Parked, "skipped", passed.Skipped, "read", passed.Read)
	}
	return passed, nil
}

// begin returns where a pass begins.
func (b *Backfill[TTx]) begin(ctx context.Context, now time.Time) (time.Time, error) {
	var saved []byte
	err := b.database(ctx, func() (err error) { saved, err = b.checkpoint.Load(ctx); return err })
	if err != nil {
		return time.Time{}, err
	}
	oldest := b.oldest(now)
	from := b.cfg.Since
	if saved != nil {
		var s state
		if err := json.Unmarshal(saved, &s); err != nil || s.Version != stateVersion {
			return from, fmt.Errorf("applehook: backfill: the checkpoint of %q was saved by another version: %.100q",
				b.cfg.Name, saved)
		}
		through := time.UnixMilli(s.Through)
		if through.After(now) {
			b.cfg.Logger.WarnContext(ctx, "applehook: backfill: the checkpoint is in the future, so a clock is or was wrong; this pass goes on from now",
				"app", b.cfg.Verifier.tenant, "checkpoint", through, "now", now)
			through = now
		}
		if through.Before(oldest) {
			b.cfg.Logger.ErrorContext(ctx, "applehook: backfill did not run for longer than Apple keeps notifications: some may be lost",
				"app", b.cfg.Verifier.tenant, "after", through, "before", oldest)
		}
		if from = through.Add(-b.cfg.Overlap); from.Before(b.cfg.Since) {
			from = b.cfg.Since
		}
	}
	if from.Before(oldest) {
		from = oldest
	}
	return from, nil
}

// oldest returns where Apple's history begins.
func (b *Backfill[TTx]) oldest(now time.Time) time.Time {
	return now.Add(margin - historyOf(b.cfg.Verifier.cfg.Environment))
}

func (b *Backfill[TTx]) save(ctx context.Context, through time.Time) error {
	saved, err := json.Marshal(state{Version: stateVersion, Through: through.UnixMilli()})
	if err != nil {
		return fmt.Errorf("applehook: backfill: %w", err)
	}
	return b.database(ctx, func() error { return b.checkpoint.Save(ctx, saved) })
}

// database calls do until the database's part in it succeeds.
func (b *Backfill[TTx]) database(ctx context.Context, do func() error) error {
	for failures := 1; ; failures++ {
		err := do()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil || !b.cfg.Store.Retryable(err) && !errors.Is(err, dedup.ErrInFlight):
			return fmt.Errorf("applehook: backfill: %w", err)
		}
		b.waits(ctx, "the database fails", failures, err)
		if await.Sleep(ctx, backoff.HalfJitter(100*time.Millisecond, time.Minute, failures)) != nil {
			return fmt.Errorf("applehook: backfill: %w", err)
		}
	}
}

// waits logs the first failure of a row, and then each tenth.
func (b *Backfill[TTx]) waits(ctx context.Context, what string, failures int, err error) {
	if failures%10 == 1 {
		b.cfg.Logger.WarnContext(ctx, "applehook: backfill waits: "+what, "app", b.cfg.Verifier.tenant, "failures",
			failures, "error", err)
	}
}
