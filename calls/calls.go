package calls

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/outgoing"
	"github.com/txonce/txonce/outbox"
	outboxdriver "github.com/txonce/txonce/outbox/driver"
)

// Calls makes calls of one kind. It is the outbox.Publisher of the topic Config.Name. It is safe for concurrent use.
type Calls[TTx any] struct {
	cfg    Config[TTx]
	keeper driver.CallKeeper[TTx]
	slots  chan struct{} // a value for each call under way

	sightings sightings

	registering sync.Mutex
	registered  bool
}

// New returns a Calls. An error names the field of cfg that is wrong.
func New[TTx any](cfg Config[TTx]) (*Calls[TTx], error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	return &Calls[TTx]{cfg: cfg, keeper: cfg.Store.Calls(), slots: make(chan struct{}, cfg.Concurrency)}, nil
}

// Request is a call to make.
type Request struct {
	// ID is the same for each run of a handler that requests the call, and another one for each call. Two calls of one
	// order are two IDs. Within a handler, an empty ID is derived, as that of an outbox.Message.
	ID string
	// OrderingKey lets calls with the same key be made in their order, one after the other. Empty: no order.
	OrderingKey string
	Payload     []byte
	Headers     map[string]string
	NotBefore   time.Time // the earliest time of the call; zero: at once
}

// headerNotBefore keeps Request.NotBefore, because a leased message does not tell it.
const headerNotBefore = "calls-not-before"

// Enqueue requests calls as part of tx: after COMMIT they are made, and after ROLLBACK they are not. Its errors are
// those of outbox.Writer.
func (c *Calls[TTx]) Enqueue(ctx context.Context, tx TTx, requests ...Request) error {
	msgs := make([]outbox.Message, len(requests))
	for i, r := range requests {
		headers := make(map[string]string, len(r.Headers)+1)
		for name, value := range r.Headers {
			headers[name] = value
		}
		if !r.NotBefore.IsZero() {
			headers[headerNotBefore] = r.NotBefore.UTC().Format(time.RFC3339Nano)
		}
		msgs[i] = outbox.Message{
			ID: r.ID, Topic: c.cfg.Name, OrderingKey: r.OrderingKey, Payload: r.Payload, Headers: headers,
			NotBefore: r.NotBefore,
		}
	}
	if err := c.cfg.Store.Enqueue(ctx, tx, msgs...); err != nil {
		return fmt.Errorf("calls: %s: %w", c.cfg.Name, err)
	}
	return nil
}

// Call is a call that Config's functions get. They must not change what it refers to.
type Call struct {
	ID             string
	OrderingKey    string
	Payload        []byte
	Headers        map[string]string // those of the Request, and those of relay.Config.HeaderFormat
	IdempotencyKey string            // a UUID: the same in each try, derived from Config.Name and ID
	Enqueued       time.Time         // by the database's clock
	Attempts       int               // that failed and were counted

	key         dedup.Key
	fingerprint dedup.Fingerprint
	due         time.Time
}

// Result is what Do or Find gives to Done, such as the body of the response. It may be empty.
type Result []byte

// callOf returns the call of a message.
func (c *Calls[TTx]) callOf(m outboxdriver.Leased) Call {
	key := KeyOf(c.cfg.Name, m.ID)
	call := Call{
		ID: m.ID, OrderingKey: m.OrderingKey, Payload: m.Payload, Headers: m.Headers, Enqueued: m.Enqueued,
		Attempts: m.Attempts, IdempotencyKey: outgoing.DownstreamKey(outgoing.Seed(key.Hash(), key.ID), "call"),
		key: key, fingerprint: FingerprintOf(m.Payload), due: m.Enqueued,
	}
	if at, err := time.Parse(time.RFC3339Nano, m.Headers[headerNotBefore]); err == nil && at.After(call.due) {
		call.due = at
	}
	return call
}

// KeyOf returns the key of the claim that settles a call, for txonce explain and for tests.
func KeyOf(name, id string) dedup.Key { return dedup.Key{Consumer: name, ID: id} }

// FingerprintOf returns the fingerprint of that claim.
func FingerprintOf(payload []byte) dedup.Fingerprint { return dedup.FingerprintOf(payload) }

// source is recorded as the source of the messages of Config.Name.
const source = "calls to another system"

// register makes the checks of driver.Registrar, once. A consumer with the same name, in another service, would take
// calls for its own messages, and the calls would never be made.
func (c *Calls[TTx]) register(ctx context.Context) error {
	c.registering.Lock()
	defer c.registering.Unlock()
	r, ok := c.cfg.Store.(driver.Registrar)
	if c.registered || !ok {
		return nil
	}
	err := r.RegisterSources(ctx, c.cfg.Name, []string{source})
	if err == nil {
		err = r.Register(ctx, c.cfg.Name, c.cfg.window())
	}
	c.registered = err == nil
	return err
}
