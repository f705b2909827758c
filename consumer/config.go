package consumer

import (
	"cmp"
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

// Config configures a Consumer. TTx is the native transaction of its Store. All functions must be safe for concurrent use.
type Config[TTx any] struct {
	// Name is part of every key, so each name processes a message once. Two consumers must not share a name, and every
	// message counts as new after the name was changed. Required.
	Name string

	// Store keeps the claims and the dead letters. Required.
	Store dedup.Store[TTx]

	// RejectGivenUp says that Store keeps no dead letters, since it is not a driver.ParkingLot: messages that are given up are rejected, see
	// Processor.
	//
	// Defaults to false: New refuses such a Store.
	RejectGivenUp bool

	// TrustHandlers says that Store cannot verify the transaction between two handlers, since it is not a driver.TxVerifier. When a handler
	// in a batch ends the transaction, the handlers after it run outside of it, and nobody knows which one it was.
	//
	// Defaults to false: New refuses such a Store.
	TrustHandlers bool

	// Key finds a message's natural key: HeaderKey, JSONKey, KeyOf, MessageID for sources that fill in Message.ID, or any
	// other function. It must return the same key for every delivery of an event, and different keys for different
	// events. An ID that the producer makes anew for each publish breaks the first rule, and the payload's bytes may break
	// either. Every message counts as new after Key was changed. Required.
	Key KeyFunc

	// Tenant finds the tenant that a key belongs to, for sources where two tenants may use the same key. Message.Tenant
	// takes precedence.
	//
	// Defaults to no tenant.
	Tenant KeyFunc

	// Window is how long keys are remembered. It must be longer than the source may take to deliver a message again, such as
	// a topic's retention or a sender's retry schedule. The minimum is dedup.MinWindow.
	//
	// Defaults to dedup.DefaultWindow.
	Window time.Duration

	// Fingerprint hashes the content that is the same on every delivery, so that other content under a known key is
	// noticed: JSONFields, NoFingerprint, or any other function. Message.Fingerprint takes precedence.
	//
	// Defaults to the hash of the whole payload, for producers that send the same bytes again.
	Fingerprint FingerprintFunc

	// MismatchIsDuplicate acknowledges a message whose key was used for other content, without running it. Set it if producers
	// change a message when they send it again, and the first version is enough.
	//
	// Defaults to false: the message is parked, so that a second event with a known key is not lost.
	MismatchIsDuplicate bool

	// ParkUntimed parks a message that has no Time and no claim, once the store has forgotten keys of this consumer, with
	// observe.CauseUnprovable: it may be a very late repeat. Set it where a second run does harm and a person can decide.
	//
	// Defaults to false: the message counts as new and runs.
	ParkUntimed bool

	// Handle does the work of one message. HandleBatch does the work of several messages with fewer statements. Exactly one
	// of them is required.
	Handle      Handler[TTx]
	HandleBatch BatchHandler[TTx]

	// MaxPerTransaction is how many messages of a call of ProcessBatch share a transaction at most. The Subscriber's MaxBatch is how many
	// messages one call gets.
	//
	// With 1, each message has a transaction of its own: when it fails, no other message runs again, and locks are held for the time of
	// one handler.
	//
	// Defaults to 0: no limit.
	MaxPerTransaction int

	// ClaimLate lets a HandleBatch that only queues SQL, such as that of pgxstore.Pipeline, run before its message is
	// claimed, when the message is alone in its transaction. The claim, the statements and COMMIT then take one round trip
	// instead of three. If the message is a duplicate after all, nothing of the call is committed. So HandleBatch is called
	// for duplicates too, and twice for some messages: set ClaimLate only if it has no effect outside of its transaction.
	// pgxstore can do this; other Stores claim first.
	ClaimLate bool

	// Interleave lets the Handle calls of a batch run at the same time, in one transaction, in ProcessBatch. When all of them wait for
	// the database, their statements travel together, so a batch takes far fewer round trips. It needs a Store that is a
	// driver.Interleaver, such as pgxstore, and Handle.
	//
	// Set it only if messages that differ in Message.OrderingKey, or have none, do not depend on each other's rows: in one transaction,
	// the row lock of an UPDATE does not keep two handlers apart, and one update is lost without an error. Handlers must be safe for
	// running at the same time. Read "Interleave" in docs/performance.md first: it shows what goes wrong, which handlers gain nothing,
	// and what else differs.
	//
	// Defaults to false.
	Interleave bool

	// MaxAttempts is how many times a message may fail before it is parked. One attempt may call the handler more than
	// once: a message that fails in a batch is tried again alone, and a HandleBatch in smaller and smaller batches, unless it
	// returns a MessageError.
	//
	// Failures of the database do not count, nor do failures during a shutdown. But failures of the database do count if one
	// message meets them again and again while other messages are committed: from the second time if the server refuses
	// a statement, for example because of a missing column, and from the 21st time if the connection is lost. Deadlocks, serialization
	// failures and waits for locks never count. A limit of time that one message alone exceeds counts in the end; docs/operations.md has
	// the rules.
	//
	// Message.Attempt counts the deliveries of all processes, and may include crashes, stops and lost answers. So a failure parks
	// the message if one of these is true:
	//
	//   - Attempt is at least MaxAttempts, and this process has seen the message fail twice (once if MaxAttempts is 1).
	//   - Attempt is at least 100, and at least 10 times MaxAttempts.
	//   - Message.GiveUpAt has passed.
	//   - The error is Permanent, or another attempt could only repeat it.
	//
	// Some messages end each process that handles them. When Attempt is more than 10 above MaxAttempts and this process
	// has not seen the message before, the message is tried alone, and meanwhile there is a dead letter with observe.CauseCrashed.
	// The message is parked when three processes have ended during such a trial. This needs a source that counts deliveries which
	// ended with their process, such as SQS. The Subscribers of Kafka and RabbitMQ do not count them.
	//
	// Defaults to 3.
	MaxAttempts int

	// HandlerTimeout is how long one call of Handle or HandleBatch may run. After that its ctx ends with ErrHandlerTimeout
	// as the cause, and the call counts as a failed attempt whatever it returns. A handler that ignores its ctx is waited
	// for. In a batch of Handle only the message whose handler ran has failed; a HandleBatch is tried again in halves.
	// A handler that runs for more than a minute is logged in any case. The minimum is a millisecond.
	//
	// Defaults to 0: no limit.
	HandlerTimeout time.Duration

	// Backoff returns how long to wait after the given number of failed attempts, which is at least 1.
	//
	// Defaults to FullJitter(100*time.Millisecond, 10*time.Second), which also applies when Backoff panics.
	Backoff func(attempt int) time.Duration

	// ParkLimit limits how fast messages are parked. When it is spent, the cause is probably a faulty deployment and not the
	// messages. The consumer then pauses: it runs one message at a time as a probe, and defers the others without counting
	// an attempt. Each probe that succeeds doubles how many may run at the same time, and each that fails resets that to one.
	// Messages that are refused before their handlers run have a limit of their own of the same size: those without a usable key,
	// those that cannot be read, mismatches, known content and unprovable ones. When that is spent, they are deferred, and the other
	// messages go on. A message whose letter is there already counts for neither limit.
	//
	// Defaults to a burst of 100, and 100 a minute.
	ParkLimit ParkLimit

	// Logger gets one line at the start, one for an attempt that fails and is followed by another one, but at most one a second of these (the
	// next one says how many had none), one for each message that is given up, one for each dead letter that is replayed, one for each
	// handler that runs for more than a minute, and for each pause one when it begins, one a minute while it lasts, and one when it
	// ends. Messages that were processed and duplicates are not logged; Trace has them.
	//
	// Defaults to slog.Default().
	Logger *slog.Logger

	// Trace has hooks for metrics and spans.
	//
	// Defaults to no hooks.
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
		return refuse("Window is %v, shorter than %v: redeliveries that arrive later would run again", cfg.Window, dedup.MinWindow)
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
		return refuse("%w", err)
	}
	if names, ok := cfg.Store.(driver.Registrar); ok {
		if err := names.NameFree(cfg.Name); err != nil {
			return refuse("Name: %w", err)
		}
	}
	if err := tokens.Limit(cfg.ParkLimit).Validate(); err != nil {
		return refuse("ParkLimit%w", err)
	}
	if _, interleaves := cfg.Store.(driver.Interleaver[TTx]); cfg.Interleave && !interleaves {
		return refuse("Interleave is set, and a %T cannot interleave handlers: use pgxstore, or leave it false", cfg.Store)
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
			return hooks.Or(panics, "Backoff", func() time.Duration { return own(attempt) }, func() time.Duration { return usual(attempt) })
		}
	}
	cfg.Trace = cfg.Trace.Then(nil) // a copy
	return cfg, nil
}

// storeLacks returns an error if the Store does less than the Config says. A wrapper that embeds the interface dedup.Store has no other
// methods than those of the interface, whatever the Store in it can do.
func (cfg *Config[TTx]) storeLacks() error {
	const fix = "embed the type of the store (such as *pgxstore.Store) in a wrapper, and not dedup.Store"
	_, parks := cfg.Store.(parkingLot[TTx])
	_, verifies := cfg.Store.(driver.TxVerifier[TTx])
	switch {
	case !parks && !cfg.RejectGivenUp:
		return fmt.Errorf("Store: a %T keeps no dead letters: it lacks some of the methods Park, TakeDeadLetter and DeadLetters of driver.ParkingLot; %s, "+
			"or set Config.RejectGivenUp: messages that are given up are rejected then", cfg.Store, fix)
	case !verifies && !cfg.TrustHandlers:
		return fmt.Errorf("Store: a %T cannot verify that a handler has left its transaction open: it lacks the method VerifyTx of driver.TxVerifier; %s, "+
			"or set Config.TrustHandlers: a handler that ends its transaction is then noticed after the later ones", cfg.Store, fix)
	case parks && cfg.RejectGivenUp:
		return fmt.Errorf("RejectGivenUp is set, and a %T keeps dead letters: leave it false", cfg.Store)
	}
	return nil
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
