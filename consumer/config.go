package consumer

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/backoff"
	"github.com/txonce/txonce/internal/hooks"
	"github.com/txonce/txonce/internal/tokens"
	"github.com/txonce/txonce/internal/usercode"
)

// defaultMaxAttempts is the default of Config.MaxAttempts.
const defaultMaxAttempts = 3

// Config configures a Consumer. TTx is the native transaction of its Store. Its functions must be safe for concurrent
// use.
type Config[TTx any] struct {
	// Name is part of every key, so each name processes a message once. Two consumers must not share one. Required.
	Name string

	// Store keeps the claims and the dead letters. New refuses one that is no driver.ParkingLot or no
	// driver.TxVerifier, unless the next two fields accept it. Required.
	Store dedup.Store[TTx]

	// RejectGivenUp accepts a Store without dead letters: messages that are given up are rejected, see Processor.
	RejectGivenUp bool

	// TrustHandlers accepts a Store that cannot find out, between two handlers of a transaction, whether the first has
	// ended it: then the later ones write outside of it, and nobody knows which handler it was.
	TrustHandlers bool

	// Key finds a message's business key: HeaderKey, JSONKey, KeyOf, MessageID, or another function. All deliveries of
	// an event must have one key, which no other event has. So an ID that the producer makes for each publish is no
	// key. Required.
	Key KeyFunc

	// Tenant finds whose key it is, where two tenants may use the same one. Message.Tenant takes precedence.
	Tenant KeyFunc

	// Window is how long keys are remembered: longer than the source may take to deliver a message again, such as a
	// topic's retention. At least dedup.MinWindow. Defaults to dedup.DefaultWindow.
	Window time.Duration

	// Fingerprint hashes what is the same on every delivery, so that other content under a known key is noticed:
	// JSONFields, NoFingerprint, or another function. Message.Fingerprint takes precedence. Defaults to a hash of the
	// payload.
	Fingerprint FingerprintFunc

	// MismatchIsDuplicate acknowledges other content under a known key without running it, for producers that change a
	// message when they send it again. Defaults to false: it is parked.
	MismatchIsDuplicate bool

	// ParkUntimed parks a message that has no Time and no claim, and so may be a very late repeat, once the store has
	// forgotten keys of this consumer. Defaults to false: it counts as new.
	ParkUntimed bool

	// Handle does the work of one message, HandleBatch that of several with fewer statements. One of them is required.
	Handle      Handler[TTx]
	HandleBatch BatchHandler[TTx]

	// MaxPerTransaction is how many messages of a ProcessBatch share a transaction at most. With 1, no other message
	// runs again when one fails, and locks are held for the time of one handler. Defaults to 0: no limit.
	MaxPerTransaction int

	// ClaimLate lets a HandleBatch that only queues SQL run before its message is claimed, in one round trip, on
	// pgxstore. HandleBatch is then called for duplicates too, so it must have no effect outside of its transaction;
	// see docs/performance.md.
	ClaimLate bool

	// Interleave runs the Handle calls of a batch at the same time in one transaction, so that their statements travel
	// together. Set it only if messages that differ in OrderingKey, or have none, do not depend on each other's rows:
	// row locks do not keep handlers of one transaction apart, and an update is lost without an error. See
	// docs/performance.md.
	Interleave bool

	// MaxAttempts is how many times a message may fail before it is parked. Shutdowns do not count, and failures of the
	// database only if no other message meets them: docs/operations.md has the rules. Defaults to 3.
	MaxAttempts int

	// HandlerTimeout is how long a call of Handle or HandleBatch may run. Then its ctx ends with ErrHandlerTimeout, and
	// the attempt has failed, whatever it returns; the consumer waits for that. At least a millisecond. Defaults to 0:
	// no limit.
	HandlerTimeout time.Duration

	// Backoff returns the wait after that many failed attempts, at least 1. Defaults to
	// FullJitter(100*time.Millisecond, 10*time.Second), also when it panics.
	Backoff func(attempt int) time.Duration

	// ParkLimit limits how fast messages are parked: beyond it the consumer pauses and probes, because its deployment
	// is probably at fault and not the messages; see docs/operations.md. Defaults to a burst of 100, and 100 a minute.
	ParkLimit ParkLimit

	// Logger gets what docs/operations.md lists: messages that failed or were given up, and pauses. Defaults to
	// slog.Default().
	Logger *slog.Logger

	// Trace has hooks for metrics and spans.
	Trace *Trace
}

// complete returns cfg with its defaults filled in, or an error that names the invalid field.
func (cfg Config[TTx]) complete() (Config[TTx], error) {
	refuse := func(format string, args ...any) (Config[TTx], error) {
		return cfg, fmt.Errorf("consumer: Config."+format, args...)
	}
	switch err := (dedup.Key{Consumer: cfg.Name, ID: "-"}).Validate(); {
	case isNil(cfg.Store):
		return refuse("Store is a nil %T", cfg.Store)
	case cfg.Name == "":
		return refuse("Name is required: it is part of every key")
	case err != nil:
		return refuse("Name: %w", err)
	case strings.TrimSpace(cfg.Name) == "":
		return refuse("Name is %q: it is part of every key, and must be readable", cfg.Name)
	case cfg.Store == nil:
		return refuse("Store is required")
	case cfg.Key == nil:
		return refuse("Key is required: HeaderKey, JSONKey, KeyOf, or MessageID if the source fills in Message.ID")
	case cfg.Window != 0 && cfg.Window < dedup.MinWindow:
		return refuse("Window is %v, shorter than %v: redeliveries that arrive later would run again", cfg.Window,
			dedup.MinWindow)
	case cfg.Handle == nil && cfg.HandleBatch == nil:
		return refuse("Handle is required, or HandleBatch")
	case cfg.Handle != nil && cfg.HandleBatch != nil:
		return refuse("HandleBatch and Config.Handle are both set: set one of them")
	case cfg.MaxPerTransaction < 0:
		return refuse("MaxPerTransaction is %d: want 1 or more, or 0 for no limit", cfg.MaxPerTransaction)
	case cfg.Interleave && cfg.MaxPerTransaction == 1:
		return refuse("Interleave has no effect: with Config.MaxPerTransaction 1 no two messages share a transaction")
	case cfg.Interleave && cfg.HandleBatch != nil:
		return refuse("Interleave needs Config.Handle: a HandleBatch gets all messages in one call")
	case cfg.ClaimLate && cfg.HandleBatch == nil:
		return refuse("ClaimLate needs Config.HandleBatch: a Handle reads the results of its statements before COMMIT")
	case cfg.MaxAttempts < 0:
		return refuse("MaxAttempts is %d: want 1 or more", cfg.MaxAttempts)
	case cfg.HandlerTimeout != 0 && cfg.HandlerTimeout < time.Millisecond:
		return refuse("HandlerTimeout is %v: want a millisecond or more, or 0 for no limit", cfg.HandlerTimeout)
	}
	if err := cfg.storeLacks(); err != nil {
		return refuse("Store: %w", err)
	}
	if _, parks := cfg.Store.(parkingLot[TTx]); parks && cfg.RejectGivenUp {
		return refuse("RejectGivenUp is set, and a %T keeps dead letters: leave it false", cfg.Store)
	}
	if names, ok := cfg.Store.(driver.Registrar); ok {
		if err := names.NameFree(cfg.Name); err != nil {
			return refuse("Name: %w", err)
		}
	}
	if err := tokens.Limit(cfg.ParkLimit).Validate(); err != nil {
		return refuse("ParkLimit%w", err)
	}
	if late, ok := cfg.Store.(driver.LateClaimer); cfg.ClaimLate && (!ok || !late.ClaimsLate()) {
		return refuse("ClaimLate has no effect: a %T claims first. It needs a *pgxstore.Store, or a type that embeds one, "+
			"on a pool without the modes exec and simple_protocol and without PrepareConn and BeforeAcquire", cfg.Store)
	}
	if _, interleaves := cfg.Store.(driver.Interleaver[TTx]); cfg.Interleave && !interleaves {
		return refuse("Interleave is set, and a %T cannot interleave handlers: use pgxstore, or leave it false",
			cfg.Store)
	}
	if cfg.RejectGivenUp && cfg.ParkLimit != (ParkLimit{}) {
		return refuse("ParkLimit has no effect: Config.RejectGivenUp is set")
	}

	cfg.Window = cmp.Or(cfg.Window, dedup.DefaultWindow)
	if cfg.Fingerprint == nil {
		cfg.Fingerprint = wholePayload
	}
	cfg.MaxAttempts = cmp.Or(cfg.MaxAttempts, defaultMaxAttempts)
	if cfg.ParkLimit == (ParkLimit{}) {
		cfg.ParkLimit = ParkLimit{Burst: 100, PerMinute: 100}
	}
	cfg.Logger = usercode.Logger(cfg.Logger)
	usual := FullJitter(backoff.Base, backoff.Cap)
	if own := cfg.Backoff; own == nil {
		cfg.Backoff = usual
	} else {
		panics := &hooks.Panics{Logger: cfg.Logger.With("consumer", cfg.Name), Owner: "consumer"}
		cfg.Backoff = func(attempt int) time.Duration {
			return hooks.Or(panics, "Backoff", func() time.Duration { return own(attempt) },
				func() time.Duration { return usual(attempt) })
		}
	}
	cfg.Trace = cfg.Trace.Then(nil) // a copy
	return cfg, nil
}

// storeLacks returns an error if the Store does less than the Config says. A wrapper that embeds the interface
// dedup.Store has no other methods than those of the interface, whatever the Store in it can do.
func (cfg *Config[TTx]) storeLacks() error {
	const fix = "embed the type of the store (such as *pgxstore.Store) in a wrapper, and not dedup.Store"
	_, parks := cfg.Store.(parkingLot[TTx])
	_, verifies := cfg.Store.(driver.TxVerifier[TTx])
	var lacks []error
	if !parks && !cfg.RejectGivenUp {
		lacks = append(lacks, fmt.Errorf("a %T keeps no dead letters: it is no consumer/driver.ParkingLot "+
			"(Park, TakeDeadLetter and DeadLetters); %s, "+
			"or set Config.RejectGivenUp: messages that are given up are rejected then", cfg.Store, fix))
	}
	if !verifies && !cfg.TrustHandlers {
		lacks = append(lacks, fmt.Errorf("a %T cannot verify that a handler has left its transaction open: "+
			"it is no dedup/driver.TxVerifier (VerifyTx); %s, or set Config.TrustHandlers: "+
			"a handler that ends its transaction is then noticed after the later ones", cfg.Store, fix))
	}
	return errors.Join(lacks...)
}

// isNil reports a nil pointer, map, function or channel in an interface that is not nil itself.
func isNil(v any) bool {
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Func, reflect.Chan, reflect.Slice:
		return r.IsNil()
	default:
		return false
	}
}

// backoff is Config.Backoff for any number of attempts. It is never negative.
func (cfg *Config[TTx]) backoff(attempt int) time.Duration {
	return max(cfg.Backoff(max(attempt, 1)), 0)
}

// ParkLimit is a rate. The zero value means the default of Config.ParkLimit.
type ParkLimit struct {
	Burst     int  // how many messages may be parked at once
	PerMinute int  // how many more may be parked each minute, up to Burst at once
	Unlimited bool // no limit; the other fields must be 0
}
