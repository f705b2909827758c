package consumer

import (
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/txonce/txonce/dedup"
)

// item is a message of a batch, and what is to be claimed for it.
type item struct {
	msg     *Message
	rec     dedup.Record   // of its own key; Key.ID is empty if it has no usable one
	also    []dedup.Record // of its further keys
	derived dedup.KeyHash  // of rec.Key
	refused error          // why it must not run; a *refusal, or ErrInFlight
	done    bool           // nothing is left to do

	culprit bool // it met errors of the database by itself before, and is tried alone
	probe   bool // it runs as a probe of the parking limit's pause
	ran     bool // its handler's work is committed
	failed  bool // an attempt counted, or it was given up on

	committed bool              // its effects are, by this call or an earlier one
	row       dedup.Fingerprint // under which
}

// refusal is why a message must not run, whatever its handler would say.
type refusal struct {
	error
	reason Reason
}

func (r *refusal) Unwrap() error { return r.error }

func refuse(reason Reason, err error) error { return &refusal{Permanent(err), reason} }

// maxTime is the last one that all databases can keep.
var maxTime = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)

// intake finds out what to claim for msg.
func (c *Consumer[TTx]) intake(msg *Message) (it item) {
	it.msg = msg
	it.rec = dedup.Record{Key: dedup.Key{Consumer: c.cfg.Name}, Time: msg.Time, Window: c.cfg.Window}
	if msg.Time.After(maxTime) || msg.Time.Year() < 1 {
		it.rec.Time = time.Time{}
		it.refused = refuse(ReasonPoison, fmt.Errorf("%w: year %d", dedup.ErrFuture, msg.Time.Year()))
	}
	key, err := c.key(msg)
	if err != nil {
		if (dedup.Key{Consumer: c.cfg.Name, Tenant: key.Tenant, ID: "-"}).Validate() == nil {
			it.rec.Key.Tenant = key.Tenant
		}
		it.refused = refuse(ReasonNoKey, err)
		return it
	}
	it.rec.Key, it.derived = key, key.Hash()
	if it.rec.Fingerprint, err = c.fingerprint(msg); err != nil {
		// The payload's own: the zero value would match whatever was claimed, and drop the message as a duplicate.
		it.rec.Fingerprint = dedup.FingerprintOf(msg.Payload)
		it.refused = refuse(ReasonPoison, err)
	}
	if err := it.rec.Validate(); err != nil {
		it.refused = refuse(ReasonPoison, err)
	}
	if msg.Malformed != nil {
		it.refused = refuse(ReasonPoison, msg.Malformed)
	}
	for _, id := range msg.Aliases {
		also := dedup.Record{Key: key, Fingerprint: it.rec.Fingerprint, Window: it.rec.Window} // timeless: its own key decides
		also.Key.ID = id
		if err := also.Key.Validate(); err != nil {
			it.refused = refuse(ReasonPoison, fmt.Errorf("further key: %w", err))
			return it
		}
		if id != key.ID && !slices.ContainsFunc(it.also, func(r dedup.Record) bool { return r.Key == also.Key }) {
			it.also = append(it.also, also)
		}
	}
	return it
}

// key returns, beside an error, the tenant if that is known.
func (c *Consumer[TTx]) key(msg *Message) (key dedup.Key, err error) {
	defer recovered(&err)
	key = dedup.Key{Consumer: c.cfg.Name, Tenant: msg.Tenant}
	if key.Tenant == "" && c.cfg.Tenant != nil {
		if key.Tenant, err = c.cfg.Tenant(msg); err != nil {
			return key, fmt.Errorf("tenant: %w", err)
		}
	}
	if key.ID, err = c.cfg.Key(msg); err != nil {
		return key, err
	}
	return key, key.Validate()
}

func (c *Consumer[TTx]) fingerprint(msg *Message) (f dedup.Fingerprint, err error) {
	defer recovered(&err)
	if msg.Fingerprint != nil {
		return *msg.Fingerprint, nil
	}
	return c.cfg.Fingerprint(msg)
}

// recovered turns a panic of foreign code into err.
func recovered(err *error) {
	if v := recover(); v != nil {
		*err = &PanicError{Value: v, Stack: debug.Stack()}
	}
}

// longAgo is older than any horizon, and no zero time.
var longAgo = time.Date(1971, 1, 1, 0, 0, 0, 0, time.UTC)

// ask is rec as it is claimed to run its message.
func (c *Consumer[TTx]) ask(rec dedup.Record) dedup.Record {
	if rec.Time.IsZero() && c.cfg.Untimed == dedup.Unprovable {
		rec.Time = longAgo
	}
	return rec
}
