package consumer

import (
	"fmt"
	"slices"
	"time"

	"github.com/txonce/txonce/consumer/internal/decide"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/idtime"
	"github.com/txonce/txonce/internal/usercode"
	"github.com/txonce/txonce/observe"
)

// item is a message of a batch, and the records that are claimed for it.
type item struct {
	msg     *Message
	given   *Message       // the copy of msg that its handler got in its latest transaction
	rec     dedup.Record   // for its own key; Key.ID is empty if it has no usable key
	aliases []dedup.Record // for Message.Aliases
	hash    dedup.KeyHash  // of rec.Key
	refused error          // why it must not run: a *refusal, or ErrInFlight
	done    bool           // nothing is left to do

	culprit bool // it met database errors in a transaction of its own before, and is tried alone
	noWaits bool // its latest transaction had driver.WithoutLockWaits
	// in its latest transaction, the claim was answered in a small part of the time that the handler took
	quick  bool
	probe  bool        // it runs as a probe while the parking limit is spent
	ran    bool        // its handler's work is committed
	called bool        // its handler was called in its latest transaction
	failed bool        // an attempt was counted, or it was given up for the first time
	parked *sharedPark // its letter, if its copies need no others

	counted    *decide.Verdict // of the latest attempt that was counted
	countedErr error           // why it failed

	committed bool              // its effects are committed, by this call or an earlier one
	claimed   dedup.Fingerprint // the fingerprint that they were committed with
}

// attrs names the item in a log line.
func (it *item) attrs() []any {
	return []any{
		"consumer", it.rec.Key.Consumer, "key", it.rec.Key.ID, "topic", it.msg.Topic, "position",
		it.msg.Position,
	}
}

// maxTime is the latest time that all databases can keep.
var maxTime = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)

// called returns what the user's function f, which is called name in errors, returns for msg. It turns a panic into an
// error, and also runtime.Goexit if apart is true: then f runs on a goroutine of its own.
func called[R any](apart bool, name string, f func(*Message) (R, error), msg *Message) (R, error) {
	if apart {
		return calledApart(name, f, msg)
	}
	return calledHere(f, msg)
}

func calledHere[R any](f func(*Message) (R, error), msg *Message) (r R, err error) {
	err = onThisGoroutine(func() (err error) { r, err = f(msg); return err })
	return r, err
}

func calledApart[R any](name string, f func(*Message) (R, error), msg *Message) (r R, err error) {
	err = onOwnGoroutine(name, func() (err error) { r, err = f(msg); return err })
	return r, err
}

// prepareAll finds out what to claim for each of msgs. It does so on one goroutine, because one for each call of a
// user's function would cost more than the calls. When a function ends that goroutine, the message that it was called
// for and the later ones are prepared with a goroutine for each call.
func (cfg *Config[TTx]) prepareAll(msgs []*Message) []item {
	items, next := make([]item, len(msgs)), 0
	prepare := func(apart bool) {
		for ; next < len(msgs); next++ {
			items[next] = cfg.prepare(msgs[next], apart)
		}
	}
	if usercode.Run(func() { prepare(false) }) != nil {
		prepare(true)
	}
	return items
}

// prepare finds out what to claim for msg.
func (cfg *Config[TTx]) prepare(msg *Message, apart bool) (it item) {
	it.msg = msg
	it.rec = dedup.Record{Key: dedup.Key{Consumer: cfg.Name}, Time: msg.Time, Window: cfg.Window}
	if msg.Time.After(maxTime) || !msg.Time.IsZero() && msg.Time.Unix() < 0 { // MySQL has no years before 1000
		it.rec.Time = time.Time{}
		it.refused = refuse(observe.CausePermanent, fmt.Errorf("%w: year %d%s", dedup.ErrFuture, msg.Time.Year(),
			idtime.UnitHint(msg.Time)))
	}
	key, err := cfg.key(msg, apart)
	if err != nil {
		if (dedup.Key{Consumer: cfg.Name, Tenant: key.Tenant, ID: "-"}).Validate() == nil {
			it.rec.Key.Tenant = key.Tenant
		}
		it.refused = refuse(observe.CauseNoKey, err)
		if msg.Malformed != nil { // a message that could not be read has no ID for that reason
			it.refused = refuse(observe.CauseUndecodable, msg.Malformed)
		}
		return it
	}
	it.rec.Key, it.hash = key, key.Hash()
	if it.rec.Fingerprint, err = cfg.fingerprint(msg, apart); err != nil {
		// Not the zero fingerprint: it matches any content, so that the message might be dropped as a duplicate.
		it.rec.Fingerprint = dedup.FingerprintOf(msg.Payload)
		it.refused = refuse(observe.CauseUndecodable, err)
	}
	if err := it.rec.Validate(); err != nil {
		it.refused = refuse(observe.CausePermanent, err)
	}
	if msg.Malformed != nil {
		it.refused = refuse(observe.CauseUndecodable, usercode.Error(msg.Malformed))
	}
	if it.aliases, err = aliasRecords(it.rec, msg.Aliases); err != nil {
		it.refused = refuse(observe.CausePermanent, err)
	}
	return it
}

// aliasRecords returns what to claim for the aliases ids of the message that own is claimed for. It leaves out those
// that cannot be claimed, and returns the error of one of them.
func aliasRecords(own dedup.Record, ids []string) (recs []dedup.Record, err error) {
	for _, id := range ids {
		alias := own
		alias.Key.ID, alias.Time = id, time.Time{} // only its own key can be Unprovable
		if invalid := alias.Key.Validate(); invalid != nil {
			err = fmt.Errorf("alias: %w", invalid)
			continue
		}
		if id != own.Key.ID && !slices.ContainsFunc(recs, func(r dedup.Record) bool { return r.Key == alias.Key }) {
			recs = append(recs, alias)
		}
	}
	return recs, err
}

// key finds the key of msg. Next to an error it returns the tenant if that is known.
func (cfg *Config[TTx]) key(msg *Message, apart bool) (key dedup.Key, err error) {
	key = dedup.Key{Consumer: cfg.Name, Tenant: msg.Tenant}
	if key.Tenant == "" && cfg.Tenant != nil {
		if key.Tenant, err = called(apart, "Config.Tenant", cfg.Tenant, msg); err != nil {
			return key, fmt.Errorf("tenant: %w", err)
		}
	}
	if key.ID, err = called(apart, "Config.Key", cfg.Key, msg); err != nil {
		return key, err
	}
	return key, key.Validate()
}

func (cfg *Config[TTx]) fingerprint(msg *Message, apart bool) (dedup.Fingerprint, error) {
	if msg.Fingerprint != nil {
		return *msg.Fingerprint, nil
	}
	return called(apart, "Config.Fingerprint", cfg.Fingerprint, msg)
}

// onThisGoroutine calls the user's function f. It turns a panic into an error. What it returns is safe to use.
func onThisGoroutine(f func() error) (err error) {
	if ended := usercode.Here(func() { err = f() }); ended != nil {
		err = &PanicError{Value: ended.Value, Stack: ended.Stack}
	}
	return usercode.Error(err)
}

// longAgo is older than any horizon, and the first time that dedup.Record.Validate accepts.
var longAgo = time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)

// claimRecord gives an untimed message a time before any horizon with Config.ParkUntimed.
func (cfg *Config[TTx]) claimRecord(rec dedup.Record) dedup.Record {
	if rec.Time.IsZero() && cfg.ParkUntimed {
		rec.Time = longAgo
	}
	return rec
}
