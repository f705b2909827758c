package consumer

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/txonce/txonce/dedup"
)

// DefaultMaxAttempts is how often a message is tried before it is parked.
const DefaultMaxAttempts = 3

// Config of a Consumer. TTx is the native transaction of its Store.
type Config[TTx any] struct {
	// Name is part of every key: each name processes a message once. Two consumers must not share one, and a name that
	// changes makes every message new. Required.
	Name string

	// Store keeps the claims. As a ParkingLot it also keeps the messages given up on; if it is none, those are
	// rejected. Required.
	Store dedup.Store[TTx]

	// Key finds a message's natural key: HeaderKey, JSONKey, KeyOf, MessageID for sources that state Message.ID, or any
	// function. It must give the same key on every delivery, and different keys for different events: payload bytes or
	// an ID that is made while publishing do neither. Required.
	Key KeyFunc

	// Tenant finds whose key it is, where tenants' keys may be equal. Message.Tenant takes precedence. Defaults to no
	// tenant.
	Tenant KeyFunc

	// Window is how long keys are remembered. It must be longer than the source may deliver again: a topic's retention,
	// a vendor's retry schedule. Shorter than dedup.MinWindow is refused. Defaults to dedup.DefaultWindow.
	Window time.Duration

	// Fingerprint tells a redelivery from other content under the same key: WholePayload, JSONFields, NoFingerprint, or
	// any function. Message.Fingerprint takes precedence. Defaults to WholePayload.
	Fingerprint FingerprintFunc

	// OnMismatch says what becomes of a message whose key was used for other content. Defaults to ParkMismatch.
	OnMismatch OnMismatch

	// Untimed says what becomes of a message without a Time once keys of this consumer were forgotten, as the message may be a
	// very late repeat: dedup.First runs it, dedup.Unprovable parks it. Defaults to dedup.First.
	Untimed dedup.Verdict

	// Handle does the work of one message, HandleBatch that of several in one statement or few. Exactly one of them is
	// required.
	Handle      Handler[TTx]
	HandleBatch BatchHandler[TTx]

	// MaxAttempts is how often a message may fail before it is parked. One attempt may call the handler more than once: a
	// message that fails in a batch is tried again alone, and the messages of a HandleBatch in smaller and smaller batches.
	//
	// A failure that is the database's, or a shutdown's, does not count. But when a message meets such failures by itself
	// while other messages are committed, it is at fault after all: from the second time on where a statement is refused,
	// such as for a missing column, and from the 21st on where the connection is lost.
	//
	// Message.Attempt may include crashes, stops and lost answers. So it alone parks no message: this process must have seen
	// the handler fail twice (once where MaxAttempts is 1). Once Attempt has reached 10 times MaxAttempts, and at least 100,
	// one failure is enough.
	//
	// A message may end each process that handles it. When Attempt is more than 10 above MaxAttempts and this process has not
	// seen the message before, it is tried alone, and a dead letter with ReasonTrial says so meanwhile. When three processes
	// have ended over it, it is parked. Kafka does not count deliveries, so this cannot be told there.
	//
	// Defaults to DefaultMaxAttempts.
	MaxAttempts int

	// HandlerTimeout is how long one call of Handle or HandleBatch may run. Then its ctx ends with ErrHandlerTimeout as the
	// cause, and the call has failed, whatever it returns: that counts as an attempt. A handler that does not heed its ctx
	// runs on, and its message waits for it. In a batch of Handle only the message whose handler ran is at fault; a
	// HandleBatch is tried again in halves. Defaults to 0: no limit. A handler that runs for more than a minute is logged
	// all the same.
	HandlerTimeout time.Duration

	// Backoff is how long to wait after that many failed attempts, 1 or more. Defaults to
	// FullJitter(DefaultBackoffBase, DefaultBackoffCap).
	Backoff func(attempt int) time.Duration

	// ParkLimit bounds how fast messages are parked. Beyond it something is wrong with more than a message, such as a
	// deployment, and the consumer pauses: messages come back as uncounted retries before their handler runs, but for one
	// at a time, when one more may be parked. Each handler that succeeds lets twice as many run, one that fails only one
	// again. Defaults to a burst of 100 and 100 a minute.
	ParkLimit ParkLimit

	// Logger gets one line for each message given up on; for each pause one when it begins, one a minute while it lasts and
	// one when it is over; and one for each handler that runs for more than a minute. Defaults to slog.Default().
	Logger *slog.Logger

	// Trace is told what becomes of each message. Defaults to nobody.
	Trace *Trace
}

// OnMismatch says what becomes of a message whose key was used for other content.
type OnMismatch uint8

const (
	// ParkMismatch parks it: a second event under an old key must not be lost, and only a person can tell.
	ParkMismatch OnMismatch = iota
	// MismatchIsDuplicate acknowledges it without running. Use it where producers change a message while sending it
	// again, and nothing is lost by trusting the first.
	MismatchIsDuplicate
)

// complete returns cfg with its defaults filled in, or an error that names the field at fault.
func (cfg Config[TTx]) complete() (Config[TTx], error) {
	refuse := func(format string, args ...any) (Config[TTx], error) {
		return cfg, fmt.Errorf("consumer: Config."+format, args...)
	}
	switch err := (dedup.Key{Consumer: cfg.Name, ID: "-"}).Validate(); {
	case cfg.Name == "":
		return refuse("Name is required: it is part of every key")
	case err != nil:
		return refuse("Name: %w", err)
	case strings.TrimSpace(cfg.Name) == "":
		return refuse("Name is %q: it is part of every key, and has to be one that people can read", cfg.Name)
	case cfg.Store == nil:
		return refuse("Store is required")
	case cfg.Key == nil:
		return refuse("Key is required: HeaderKey, JSONKey, KeyOf, or MessageID where the source states Message.ID")
	case cfg.Window != 0 && cfg.Window < dedup.MinWindow:
		return refuse("Window is %v, shorter than %v: redeliveries that arrive later would run again", cfg.Window, dedup.MinWindow)
	case cfg.OnMismatch > MismatchIsDuplicate:
		return refuse("OnMismatch is %d: want ParkMismatch or MismatchIsDuplicate", cfg.OnMismatch)
	case cfg.Untimed != 0 && cfg.Untimed != dedup.First && cfg.Untimed != dedup.Unprovable:
		return refuse("Untimed is %v: want dedup.First or dedup.Unprovable", cfg.Untimed)
	case cfg.Handle == nil && cfg.HandleBatch == nil:
		return refuse("Handle is required, or HandleBatch")
	case cfg.Handle != nil && cfg.HandleBatch != nil:
		return refuse("HandleBatch is set beside Config.Handle: set one of them")
	case cfg.MaxAttempts < 0:
		return refuse("MaxAttempts is %d: want 1 or more", cfg.MaxAttempts)
	case cfg.HandlerTimeout != 0 && cfg.HandlerTimeout < time.Millisecond:
		return refuse("HandlerTimeout is %v: want a millisecond or more, or 0 for no limit", cfg.HandlerTimeout)
	}
	if err := cfg.ParkLimit.validate(); err != nil {
		return refuse("ParkLimit%w", err)
	}
	if _, parks := cfg.Store.(ParkingLot[TTx]); !parks && cfg.ParkLimit != (ParkLimit{}) {
		return refuse("ParkLimit limits nothing: Config.Store is no ParkingLot")
	}

	if cfg.Window == 0 {
		cfg.Window = dedup.DefaultWindow
	}
	if cfg.Fingerprint == nil {
		cfg.Fingerprint = WholePayload
	}
	if cfg.Untimed == 0 {
		cfg.Untimed = dedup.First
	}
	if cfg.MaxAttempts == 0 {
		cfg.MaxAttempts = DefaultMaxAttempts
	}
	if cfg.Backoff == nil {
		cfg.Backoff = FullJitter(DefaultBackoffBase, DefaultBackoffCap)
	}
	if cfg.ParkLimit == (ParkLimit{}) {
		cfg.ParkLimit = ParkLimit{Burst: 100, PerMinute: 100}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	return cfg, nil
}

// ParkLimit is a rate. The zero value stands for the default of Config.ParkLimit.
type ParkLimit struct {
	Burst     int // how many at once
	PerMinute int // and how many of them come back in a minute
	Unlimited bool
}

func (l ParkLimit) validate() error {
	switch {
	case l == ParkLimit{} || l == ParkLimit{Unlimited: true}:
		return nil
	case l.Unlimited:
		return errors.New(".Unlimited is set beside a limit: set one of them")
	case l.Burst < 1:
		return fmt.Errorf(".Burst is %d: want 1 or more, or Unlimited", l.Burst)
	case l.PerMinute < 1:
		return fmt.Errorf(".PerMinute is %d: want 1 or more, or Unlimited", l.PerMinute)
	}
	return nil
}
