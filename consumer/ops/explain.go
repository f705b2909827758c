package ops

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/httpkey"
	"github.com/txonce/txonce/observe"
)

// ExplainOptions say more about the message that a key is asked for.
type ExplainOptions struct {
	// when the message was created; zero: unknown, so that it is unprovable only if a letter says so
	Time        time.Time
	Fingerprint dedup.Fingerprint // of its content; zero: unknown, so that it is never a mismatch
}

// Verdict is what a delivery with the key would meet.
type Verdict string

// The verdicts.
const (
	First      Verdict = "first"      // no transaction with the key was committed: it would be processed
	Duplicate  Verdict = "duplicate"  // it was processed before
	Mismatch   Verdict = "mismatch"   // the key was used for other content
	Unprovable Verdict = "unprovable" // it may have been processed and forgotten
	InFlight   Verdict = "in_flight"  // a transaction holds the key now

	// Open says that the key is that of a call to another system, and that the call is not settled: see
	// Explanation.Call.
	Open Verdict = "open_call"

	// KnownContent says that the key is free, and that one of the aliases that a letter with the key has is claimed.
	KnownContent Verdict = "known_content"
)

// Explanation is what the database knows about one key.
type Explanation struct {
	Key     dedup.Key
	Verdict Verdict

	Claim   dedup.Claim // the committed claim; without Verdict, and zero if there is none
	Claimed time.Time   // about when, if the consumer has used one window only; zero: unknown
	Holder  *Holder     // of InFlight; nil: the database does not tell

	// WholeDatabase says that Verdict is InFlight because a transaction holds the whole database, as on SQLite. It may
	// be about another key.
	WholeDatabase bool

	// Call is what is recorded of a call to another system, if it is not settled: see package calls. nil: nothing is.
	Call *OpenCall

	// HTTP says that the key is that of an HTTP request, as httpidem stores it. Claim.Result is the stored response.
	HTTP bool

	// NoTenant says that nothing is known of the key, that it has no tenant, and that the consumer receives webhooks,
	// whose keys have one: Verdict is about another key than that of an event.
	NoTenant bool

	Letters   []consumer.DeadLetter // with the key, newest first, at most 100
	Discarded []Discarded           // letters with the key that operators have discarded, latest first
}

// OpenCall is the record of a call to another system that is not settled.
type OpenCall struct {
	Answer     CallAnswer
	Unanswered int       // tries that may have reached the other system, and whose answer is not known
	First      time.Time // when the first of these began; zero: there is none
	Last       time.Time // when the latest try began; zero: there is none
}

// CallAnswer is what is known of all tries of a call.
type CallAnswer string

// The answers.
const (
	CallUnanswered  CallAnswer = "unknown"      // it may have happened, if Unanswered is not 0
	CallNotHappened CallAnswer = "not_happened" // no try has had an effect
	CallHappened    CallAnswer = "happened"     // its result is known, and not recorded yet
)

// CallReader is a Store that keeps the records of package calls. Without it, Explain knows of no calls.
type CallReader interface {
	// Call returns what is known of a call. See driver.CallKeeper.
	Call(ctx context.Context, key dedup.Key) (driver.Call, error)
}

// openCall returns the record of the call with key; nil: there is none.
func openCall(ctx context.Context, s Store, key dedup.Key) (*OpenCall, error) {
	calls, ok := s.(CallReader)
	if !ok {
		return nil, nil
	}
	c, err := calls.Call(ctx, key)
	if err != nil || c.Token == 0 || c.Settled {
		return nil, err
	}
	open := &OpenCall{Answer: CallUnanswered, Unanswered: c.Unanswered}
	if c.Unanswered > 0 {
		open.First, open.Last = c.First, c.Last
	}
	switch c.Verdict {
	case driver.CallHappened:
		open.Answer = CallHappened
	case driver.CallAbsent:
		open.Answer = CallNotHappened
	case driver.CallUnknown:
	}
	return open, nil
}

// ClaimedByDiscard returns the discard that made the claim: the message is a duplicate, but it was never processed. ok
// is false if no discard made it.
func (e *Explanation) ClaimedByDiscard() (d Discarded, ok bool) {
	for _, d := range e.Discarded {
		// A claim that is younger was made after the key had been forgotten.
		if d.Claimed && !e.Claim.ExpiresAt.IsZero() && !e.Claimed.After(d.At.Add(dedup.MaxAhead)) {
			return d, true
		}
	}
	return Discarded{}, false
}

// ErrHTTPKey is an error of Explain: httpidem has claimed the keys of this consumer, and the given key is none of them.
// httpidem stores an HMAC of the name, the principal, the method, the target and the key that the client has sent.
// Without this error each key of a client would seem to be new.
var ErrHTTPKey = errors.New("ops: the keys of this consumer are hashes of HTTP requests")

// Explain finds out what happened to a key. It claims the key in a transaction that is rolled back, because nothing
// else proves that no transaction with the key was committed. It waits about a second for a transaction that holds the
// key, and leaves nothing behind.
func Explain(ctx context.Context, s Store, key dedup.Key, opts ExplainOptions) (e Explanation, err error) {
	if err := key.Validate(); err != nil {
		return e, err
	}
	e.Key = key
	p, err := s.Probe(ctx, dedup.Record{Key: key, Time: opts.Time, Fingerprint: opts.Fingerprint})
	if err != nil {
		return e, fmt.Errorf("ops: explain %v: %w", key, err)
	}
	switch {
	case p.InFlight:
		e.Verdict, e.Holder, e.WholeDatabase = InFlight, p.Holder, p.WholeDatabase
	default:
		e.Verdict, e.Claim = Verdict(p.Claim.Verdict.String()), p.Claim
		e.Claim.Verdict = 0
	}
	if e.Verdict == First || e.Verdict == Unprovable {
		if e.Call, err = openCall(ctx, s, key); err != nil {
			return e, fmt.Errorf("ops: explain %v: %w", key, err)
		}
		if e.Call != nil {
			e.Verdict = Open
		}
	}
	// A filter without a tenant chooses the letters of all tenants.
	err = eachLetter(ctx, s, consumer.DeadLetterFilter{Consumer: key.Consumer, Tenant: key.Tenant, MessageID: key.ID}, func(l consumer.DeadLetter) bool {
		if l.Record.Key == key {
			e.Letters = append(e.Letters, l)
		}
		return len(e.Letters) < pageSize
	})
	if err != nil {
		return e, fmt.Errorf("ops: explain %v: %w", key, err)
	}
	if e.Verdict == First && opts.Time.IsZero() && slices.ContainsFunc(e.Letters, func(l consumer.DeadLetter) bool {
		return l.Cause == observe.CauseUnprovable && opts.Fingerprint.Matches(l.Record.Fingerprint)
	}) {
		e.Verdict = Unprovable
	}
	if e.Verdict == First {
		suspected, err := knownAlias(ctx, s, e.Letters, opts.Fingerprint)
		if err != nil {
			return e, fmt.Errorf("ops: explain %v: %w", key, err)
		}
		if suspected {
			e.Verdict = KnownContent
		}
	}
	if e.Discarded, err = s.Keys().Discards(ctx, key); err != nil {
		return e, fmt.Errorf("ops: explain %v: %w", key, err)
	}
	consumers, err := s.Keys().Consumers(ctx)
	if err != nil {
		return e, fmt.Errorf("ops: explain %v: %w", key, err)
	}
	for _, c := range consumers {
		if c.Name != key.Consumer {
			continue
		}
		if len(c.Windows) == 1 && !e.Claim.ExpiresAt.IsZero() {
			e.Claimed = e.Claim.ExpiresAt.Add(-c.Windows[0].Window)
		}
		e.HTTP = c.OfHTTP()
		e.NoTenant = e.Verdict == First && len(e.Letters)+len(e.Discarded) == 0 && key.Tenant == "" && c.ofWebhooks()
	}
	if e.HTTP && e.Claim.ExpiresAt.IsZero() && len(e.Letters) == 0 && !httpkey.IsHash(key.ID) {
		return e, fmt.Errorf("%w: consumer %q", ErrHTTPKey, key.Consumer)
	}
	return e, nil
}

// OfHTTP reports whether the consumer is a Guard of httpidem.
func (c ConsumerStatus) OfHTTP() bool {
	return slices.ContainsFunc(c.Sources, func(s Source) bool { return s.Name == httpkey.Source })
}

// knownAlias reports whether an alias of letters is claimed. It looks only at letters with the content.
func knownAlias(ctx context.Context, s Store, letters []consumer.DeadLetter, content dedup.Fingerprint) (bool, error) {
	var aliases []dedup.Key
	for _, l := range letters {
		if !content.Matches(l.Record.Fingerprint) {
			continue
		}
		for _, rec := range l.AliasRecords(l.Record) {
			aliases = append(aliases, rec.Key)
		}
	}
	if len(aliases) == 0 {
		return false, nil
	}
	claimed, err := s.Keys().Claimed(ctx, aliases)
	return len(claimed) > 0, err
}

func (c ConsumerStatus) ofWebhooks() bool {
	return slices.ContainsFunc(c.Sources, func(s Source) bool { return strings.HasPrefix(s.Name, "webhook ") })
}

// ExplainOutbox finds out what has become of the outbox messages that the handler of an explained key has enqueued. See
// Outgoing for what it cannot find.
func ExplainOutbox(ctx context.Context, s Store, e Explanation) (out Outgoing, err error) {
	if e.HTTP { // the IDs of its messages are derived from the request's content, too
		return out, nil
	}
	if out, err = s.Keys().Outgoing(ctx, e.Key); err != nil {
		return out, fmt.Errorf("ops: explain the outbox messages of %v: %w", e.Key, err)
	}
	discards, err := s.Actions(ctx, ActionFilter{Kind: DiscardOutbox, Limit: discardsMost})
	if err != nil {
		return out, fmt.Errorf("ops: explain the outbox messages of %v: %w", e.Key, err)
	}
	for _, a := range discards {
		if e.Claimed.IsZero() || a.Requested.After(e.Claimed.Add(-dedup.MaxAhead)) {
			// Claimed may be so much too late, see Record.Time
			out.Discards++
		}
	}
	return out, nil
}

// Describe says in words what has become of the messages that the handler of e has enqueued. Nothing tells how many it
// has enqueued, so when none is left, all that can be said is that all are gone.
func (o Outgoing) Describe(e Explanation) string {
	if e.HTTP {
		return "unknown: the IDs of messages that an HTTP request has enqueued are derived from its content, too"
	}
	text := fmt.Sprintf("%d pending, %d parked", o.Pending, o.Parked)
	if o.Delayed > 0 {
		text += fmt.Sprintf(", %d delayed", o.Delayed)
	}
	gone := "confirmed"
	if o.Discards > 0 {
		gone = "confirmed or discarded (operators have discarded messages since: see the actions of kind discard_outbox)"
	}
	switch left := o.Pending + o.Parked + o.Delayed; {
	case left > 0 && o.Confirmed > 0:
		text += fmt.Sprintf(", at least %d %s", o.Confirmed, gone)
	case left > 0:
	case o.Confirmed > 0 || !e.Claim.ExpiresAt.IsZero():
		text += ": all with IDs derived from this key are " + gone
	}
	return text
}

// discardsMost is up to where discards are counted.
const discardsMost = 1000
