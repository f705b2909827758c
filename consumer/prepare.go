package consumer

import (
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/observe"
)

// item is a message of a batch, and what is claimed for it.
type item struct {
	msg     *Message
	rec     dedup.Record   // for its own key; Key.ID is empty if it has no usable key
	aliases []dedup.Record // for Message.Aliases
	hash    dedup.KeyHash  // of rec.Key
	refused error          // why it must not run: a *refusal, or ErrInFlight
	done    bool           // nothing is left to do

	culprit bool // it met database errors in a transaction of its own before, and is tried alone
	probe   bool // it runs as a probe while the parking limit is spent
	ran     bool // its handler's work is committed
	failed  bool // an attempt was counted, or it was given up

	committed bool              // its effects are committed, by this call or an earlier one
	claimed   dedup.Fingerprint // the fingerprint that they were committed with
}

// attrs names the item in a log line.
func (it *item) attrs() []any {
	return []any{"consumer", it.rec.Key.Consumer, "key", it.rec.Key.ID, "topic", it.msg.Topic, "position", it.msg.Position}
}

// maxTime is the latest time that all databases can keep.
var maxTime = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)

// caller calls f, which calls the user's function of that name, and turns a panic into an error.
type caller func(name string, f func() error) error

// prepareAll finds out what to claim for each of msgs. It does so on one goroutine, because one for each call of a user's function
// would cost more than the calls. When a function ends that goroutine, the message that it was called for and the later ones are
// prepared with a goroutine for each call.
func (c *Consumer[TTx]) prepareAll(msgs []*Message) []item {
	items, next := make([]item, len(msgs)), 0
	prepare := func(call caller) error {
		for ; next < len(msgs); next++ {
			items[next] = c.prepare(msgs[next], call)
		}
		return nil
	}
	if err := onOwnGoroutine("", func() error { return prepare(onThisGoroutine) }); err != nil {
		_ = prepare(onOwnGoroutine)
	}
	return items
}

// prepare finds out what to claim for msg.
func (c *Consumer[TTx]) prepare(msg *Message, call caller) (it item) {
	it.msg = msg
	it.rec = dedup.Record{Key: dedup.Key{Consumer: c.cfg.Name}, Time: msg.Time, Window: c.cfg.Window}
	if msg.Time.After(maxTime) || msg.Time.Year() < 1 {
		it.rec.Time = time.Time{}
		it.refused = refuse(observe.CausePermanent, fmt.Errorf("%w: year %d", dedup.ErrFuture, msg.Time.Year()))
	}
	key, err := c.key(msg, call)
	if err != nil {
		if (dedup.Key{Consumer: c.cfg.Name, Tenant: key.Tenant, ID: "-"}).Validate() == nil {
			it.rec.Key.Tenant = key.Tenant
		}
		it.refused = refuse(observe.CauseNoKey, err)
		return it
	}
	it.rec.Key, it.hash = key, key.Hash()
	if it.rec.Fingerprint, err = c.fingerprint(msg, call); err != nil {
		// Not the zero fingerprint: it matches any content, so that the message might be dropped as a duplicate.
		it.rec.Fingerprint = dedup.FingerprintOf(msg.Payload)
		it.refused = refuse(observe.CauseUndecodable, err)
	}
	if err := it.rec.Validate(); err != nil {
		it.refused = refuse(observe.CausePermanent, err)
	}
	if msg.Malformed != nil {
		it.refused = refuse(observe.CauseUndecodable, msg.Malformed)
	}
	for _, id := range msg.Aliases {
		alias := dedup.Record{Key: key, Fingerprint: it.rec.Fingerprint, Window: it.rec.Window} // no Time: only its own key can be Unprovable
		alias.Key.ID = id
		if err := alias.Key.Validate(); err != nil {
			it.refused = refuse(observe.CausePermanent, fmt.Errorf("alias: %w", err))
			return it
		}
		if id != key.ID && !slices.ContainsFunc(it.aliases, func(r dedup.Record) bool { return r.Key == alias.Key }) {
			it.aliases = append(it.aliases, alias)
		}
	}
	return it
}

// key finds the key of msg. Next to an error it returns the tenant if that is known.
func (c *Consumer[TTx]) key(msg *Message, call caller) (key dedup.Key, err error) {
	key = dedup.Key{Consumer: c.cfg.Name, Tenant: msg.Tenant}
	if key.Tenant == "" && c.cfg.Tenant != nil {
		if err := call("Config.Tenant", func() (err error) { key.Tenant, err = c.cfg.Tenant(msg); return err }); err != nil {
			return key, fmt.Errorf("tenant: %w", err)
		}
	}
	if err := call("Config.Key", func() (err error) { key.ID, err = c.cfg.Key(msg); return err }); err != nil {
		return key, err
	}
	return key, key.Validate()
}

func (c *Consumer[TTx]) fingerprint(msg *Message, call caller) (f dedup.Fingerprint, err error) {
	if msg.Fingerprint != nil {
		return *msg.Fingerprint, nil
	}
	err = call("Config.Fingerprint", func() (err error) { f, err = c.cfg.Fingerprint(msg); return err })
	return f, err
}

// onThisGoroutine is the caller that does no more than that.
func onThisGoroutine(_ string, f func() error) (err error) {
	defer recoverPanic(&err)
	return f()
}

// recoverPanic turns a panic of a user's function into err.
func recoverPanic(err *error) {
	if v := recover(); v != nil {
		*err = &PanicError{Value: v, Stack: debug.Stack()}
	}
}

// longAgo is older than any horizon, and not the zero time.
var longAgo = time.Date(1971, 1, 1, 0, 0, 0, 0, time.UTC)

// claimRecord gives an untimed message a time before any horizon when Config.Untimed is ParkUntimed.
func (c *Consumer[TTx]) claimRecord(rec dedup.Record) dedup.Record {
	if rec.Time.IsZero() && c.cfg.Untimed == ParkUntimed {
		rec.Time = longAgo
	}
	return rec
}
