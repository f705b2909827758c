package claims

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
)

// Driver sends the statements of one claim, all in one transaction. A method may send several statements in one round
// trip. Make returns a driver's errors unchanged, so the driver classifies them.
type Driver interface {
	// Insert inserts the rows whose keys have no row yet. It waits for transactions that hold the keys. It puts the new
	// keys into Claim.Inserted, and the database's clock after the claim into Claim.Clock. The first call may begin the
	// transaction.
	Insert(ctx context.Context, rows []Row) error
	// Existing reads the rows that are in the table into Claim.Found. If nothing was inserted, it may end the
	// transaction, and it runs without one if it is called before Insert; the next method that needs a transaction
	// begins one.
	Existing(ctx context.Context, rows []Row) error
	// Forgotten reads until when keys were forgotten (zero: none was), and, if any was, how the consumers' windows were
	// used. It must see everything that was committed before Insert returned.
	Forgotten(ctx context.Context, consumers []string) (forgotten time.Time, uses map[string][]driver.WindowUse,
		err error)
	// Forget deletes rows that Insert has inserted.
	Forget(ctx context.Context, keys []dedup.KeyHash) error
	// Flush makes the transaction's COMMIT as durable as the commits that its duplicates report.
	Flush(ctx context.Context) error
}

// Attempts bounds how often a claim is repeated because a row vanished during it, or because it failed with ErrAgain.
const Attempts = 4

// ErrAgain says that the caller must roll the transaction back and claim again in a new one.
var ErrAgain = errors.New("claim again")

var (
	errUncovered = fmt.Errorf("%w: a window's registration ran out before the claim", ErrAgain)
	errVanishing = errors.New("rows vanish between conflict and read, again and again")
)

// Claim is one claim of a plan's rows within one transaction.
type Claim struct {
	Owner   Owner // of errors that the database caused
	Plan    *Plan
	Windows *Leases
	Now     func() time.Time // this machine's clock

	// Look says that the rows are probably in the table already, so that Make reads them before it inserts. A row that
	// is found was committed. A row that is not found proves nothing, and is inserted.
	Look bool

	// Registered holds the windows that this transaction has registered itself, each with the end of its registration.
	Registered map[Window]time.Time

	// The driver sets these fields.
	Inserted map[dedup.KeyHash]bool
	Found    map[dedup.KeyHash]dedup.Claim
	Clock    time.Time
}

// AssumeRegistered makes Make take all windows for registered. It is for a claim that is rolled back: nothing of it is
// left that a window has to cover.
func (c *Claim) AssumeRegistered() {
	c.Registered = map[Window]time.Time{}
	for _, w := range c.Plan.Windows() {
		c.Registered[w] = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
	}
}

// Make claims the rows and returns the answers in the order of the plan's records. After an error the transaction must
// be rolled back.
func (c *Claim) Make(ctx context.Context, d Driver) ([]dedup.Claim, error) {
	if err := c.insert(ctx, d); err != nil || len(c.Plan.Rows) == 0 {
		return nil, err
	}
	if len(c.Inserted) > 0 && !c.covered() {
		return nil, errUncovered
	}
	horizons, err := c.horizons(ctx, d)
	if err != nil {
		return nil, err
	}
	found, unprovable, err := c.verdicts(horizons)
	if err != nil {
		return nil, err
	}
	if len(unprovable) > 0 {
		if err := d.Forget(ctx, unprovable); err != nil {
			return nil, err
		}
	}
	if len(c.Inserted) < len(c.Plan.Rows) {
		if err := d.Flush(ctx); err != nil {
			return nil, err
		}
	}
	return c.Plan.Answers(found), nil
}

// insert inserts the rows, and reads those that were there before. If such a row is missing, a sweep deleted it after
// Insert found it. A missing row does not prove that the key was claimed before, so the row is claimed again.
func (c *Claim) insert(ctx context.Context, d Driver) error {
	rows := c.Plan.Rows
	c.Inserted = make(map[dedup.KeyHash]bool, len(rows))
	for n := range Attempts + 1 {
		if n > 0 || !c.Look {
			if err := d.Insert(ctx, rows); err != nil {
				return err
			}
			if rows = c.missing(); len(rows) == 0 {
				return nil
			}
		}
		if n == Attempts {
			break
		}
		if c.Found == nil {
			c.Found = make(map[dedup.KeyHash]dedup.Claim, len(rows))
		}
		if err := d.Existing(ctx, rows); err != nil {
			return err
		}
		if rows = c.missing(); len(rows) == 0 {
			return nil
		}
	}
	return c.Owner.Wrap(errVanishing)
}

// missing returns the rows that were neither inserted nor found.
func (c *Claim) missing() (rows []Row) {
	for _, row := range c.Plan.Rows {
		if _, found := c.Found[row.KeyHash]; !found && !c.Inserted[row.KeyHash] {
			rows = append(rows, row)
		}
	}
	return rows
}

// covered reports whether all windows of the plan were registered when the claim was made.
func (c *Claim) covered() bool {
	remembered := make([]Window, 0, 1)
	for _, w := range c.Plan.Windows() {
		switch until, here := c.Registered[w]; {
		case !here:
			remembered = append(remembered, w)
		case c.Clock.After(until):
			return false
		}
	}
	return c.Windows.Cover(remembered, c.Clock)
}

// horizons returns until when keys may have been forgotten, for each consumer with an inserted row that is old enough
// to have been forgotten before. Most claims have no such row, and then horizons does not ask the database.
func (c *Claim) horizons(ctx context.Context, d Driver) (map[string]time.Time, error) {
	var consumers []string
	for _, row := range c.Plan.Rows {
		if name := row.Record.Key.Consumer; c.old(row) && !slices.Contains(consumers, name) {
			consumers = append(consumers, name)
		}
	}
	if len(consumers) == 0 {
		return nil, nil
	}
	forgotten, uses, err := d.Forgotten(ctx, consumers)
	if err != nil || forgotten.IsZero() {
		return nil, err
	}
	horizons := make(map[string]time.Time, len(consumers))
	for _, name := range consumers {
		horizons[name] = driver.Horizon(forgotten, uses[name])
	}
	return horizons, nil
}

func (c *Claim) old(row Row) bool { return c.Inserted[row.KeyHash] && !Young(row.Record.Time, c.Clock) }

// Old reports whether an inserted row is so old that its key may have been forgotten before.
func (c *Claim) Old() bool { return slices.ContainsFunc(c.Plan.Rows, c.old) }

// verdicts returns for each row what was in the table before, and whether an inserted row is provably new.
func (c *Claim) verdicts(horizons map[string]time.Time) (found []dedup.Claim, unprovable []dedup.KeyHash, err error) {
	found = make([]dedup.Claim, len(c.Plan.Rows))
	for i, row := range c.Plan.Rows {
		rec := row.Record
		if !c.Inserted[row.KeyHash] {
			found[i] = c.Found[row.KeyHash]
			found[i].Verdict = Known(rec, found[i])
			continue
		}
		if err := driver.ValidateTime(rec, c.Clock, c.Now()); err != nil {
			return nil, nil, c.clockError(err)
		}
		found[i] = dedup.Claim{Verdict: dedup.First, Fingerprint: rec.Fingerprint, ExpiresAt: c.expires(rec)}
		if !driver.Provable(rec.Time, horizons[rec.Key.Consumer]) {
			found[i].Verdict = dedup.Unprovable
			unprovable = append(unprovable, row.KeyHash)
		}
	}
	return found, unprovable, nil
}

// clockError makes a disagreement between clocks Retryable, because the message did not cause it.
func (c *Claim) clockError(err error) error {
	if errors.Is(err, dedup.ErrClocks) {
		return c.Owner.Wrap(err)
	}
	return err
}

func (c *Claim) expires(rec dedup.Record) time.Time {
	if rec.Time.After(c.Clock) {
		return rec.Time.Add(rec.Keep())
	}
	return c.Clock.Add(rec.Keep())
}
