package deduptest

import (
	"bytes"
	"context"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
)

var _ driver.CallStore[*Tx] = (*Store)(nil)

// Calls implements driver.CallStore.
func (s *Store) Calls() driver.CallKeeper[*Tx] { return callKeeper{s.db} }

// callKeeper keeps the records as values of the database, so that they take part in transactions.
type callKeeper struct{ db *Database }

func callName(key dedup.Key) string { h := key.Hash(); return "txonce call " + string(h[:]) }

// Call implements driver.CallKeeper.
func (k callKeeper) Call(ctx context.Context, key dedup.Key) (driver.Call, error) {
	k.db.mu.Lock()
	defer k.db.mu.Unlock()
	if err := k.db.reachable(ctx); err != nil {
		return driver.Call{}, err
	}
	c, _ := k.db.data[callName(key)].(driver.Call)
	c.Now, c.Server = k.db.now(), strconv.Itoa(k.db.server)
	if r := k.db.rows[key.Hash()]; r != nil {
		c.Settled, c.Claimed = true, r.fingerprint
	}
	c.Result = bytes.Clone(c.Result)
	return c, nil
}

// BeginTry implements driver.CallKeeper.
func (k callKeeper) BeginTry(ctx context.Context, key dedup.Key, seen driver.Call,
	try driver.Try,
) (began bool, err error) {
	err = k.change(ctx, key, func(old *driver.Call, settled bool, now time.Time) *driver.Call {
		var token int64
		c := driver.Call{}
		if old != nil {
			token, c = old.Token, *old
		}
		if began = !settled && token == seen.Token; !began {
			return old
		}
		if try.Only || c.Unanswered == 0 {
			c.First, c.Unanswered = now, 0
		}
		if until := now.Add(try.Within); until.After(c.Until) {
			c.Until = until
		}
		c.Token, c.Last, c.Unanswered = try.Token, now, c.Unanswered+1
		c.Verdict, c.Result = driver.CallUnknown, nil
		if old == nil {
			c.Fingerprint = try.Fingerprint
		}
		return &c
	})
	return began && err == nil, err
}

// TakeBackTry implements driver.CallKeeper.
func (k callKeeper) TakeBackTry(ctx context.Context, key dedup.Key, token int64, before driver.Call) error {
	return k.change(ctx, key, func(old *driver.Call, _ bool, _ time.Time) *driver.Call {
		switch {
		case old == nil || old.Token != token:
			return old
		case before.Token == 0:
			return nil
		}
		c := before
		c.Settled, c.Token, c.Fingerprint = false, token, old.Fingerprint
		return &c
	})
}

// AnswerCall implements driver.CallKeeper.
func (k callKeeper) AnswerCall(ctx context.Context, key dedup.Key, seen int64, a driver.Answer) (recorded bool, err error) {
	err = k.change(ctx, key, func(old *driver.Call, settled bool, now time.Time) *driver.Call {
		c := driver.Call{Fingerprint: a.Fingerprint, First: now, Last: now, Until: now}
		if old != nil {
			c = *old
		}
		if recorded = !settled && (seen == driver.AnyToken || seen == c.Token); !recorded {
			return old
		}
		c.Token, c.Verdict, c.Result = rand.Int64N(1<<62)+1, driver.CallAbsent, nil
		if a.Happened {
			c.Verdict, c.Result = driver.CallHappened, append([]byte{}, a.Result...)
		}
		return &c
	})
	return recorded && err == nil, err
}

// change runs f on the record in a transaction of its own. settled says whether the key is claimed.
func (k callKeeper) change(ctx context.Context, key dedup.Key,
	f func(old *driver.Call, settled bool, now time.Time) *driver.Call,
) error {
	tx, err := k.db.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	err = tx.Update(ctx, callName(key), func(old any) any {
		var before *driver.Call
		if c, ok := old.(driver.Call); ok {
			before = &c
		}
		if after := f(before, tx.row(key.Hash()) != nil, k.db.now()); after != nil {
			return *after
		}
		return nil
	})
	if err != nil {
		return err
	}
	return tx.Commit(ctx)
}

// DropCall implements driver.CallKeeper.
func (k callKeeper) DropCall(ctx context.Context, tx *Tx, key dedup.Key, token int64) (dropped bool, err error) {
	err = tx.Update(ctx, callName(key), func(old any) any {
		c, there := old.(driver.Call)
		if dropped = there && (token == 0 || c.Token == token); dropped {
			return nil
		}
		return old
	})
	return dropped && err == nil, err
}
