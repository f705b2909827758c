package watermilltx

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/await"
	"github.com/txonce/txonce/internal/counts"
	"github.com/txonce/txonce/outbox"
)

// Middleware makes one handler of a watermill Router effectively-once. It is safe for concurrent use.
type Middleware[TTx any] struct {
	cfg      Config[TTx]
	consumer *consumer.Consumer[TTx]
	failures counts.Counter // by identity

	mu      sync.Mutex
	handler string              // the name of the handler that it serves; empty until its first message
	next    message.HandlerFunc // that handler
	values  context.Context     // the context of its first message, with the Router's values about the handler
}

// ErrNacked means that a handler has nacked its message and returned nil. Its transaction is rolled back.
var ErrNacked = errors.New("watermilltx: the handler nacked its message, and returned no error")

// New returns a Middleware, or an error that names the field of cfg that is at fault. It does not use the database.
func New[TTx any](cfg Config[TTx]) (*Middleware[TTx], error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	m := &Middleware[TTx]{cfg: cfg}
	m.consumer, err = cfg.consumer(m.run)
	return m, err
}

// Start checks the store: its error says why every message would fail. Without Start the first message checks it.
func (m *Middleware[TTx]) Start(ctx context.Context) error { return m.consumer.Start(ctx) }

// Consumer returns the Consumer inside, for its operations on dead letters. Its Replay runs the handler in a
// transaction of the Store's own. Replay works once the Router runs. If the handler produces messages, it must have
// received a message before: from that the Middleware knows the topic.
func (m *Middleware[TTx]) Consumer() *consumer.Consumer[TTx] { return m.consumer }

// Middleware is the message.HandlerMiddleware, for Handler.AddMiddleware of one handler. It claims the message, runs
// next and writes what next produces to the Outbox, in one transaction, and returns no messages: nothing is left for
// the Router to publish after the COMMIT.
//
// nil means that the transaction is committed, now or by an earlier delivery, or that the message is parked: the Router
// acks. An error means that nothing was committed: the Router nacks, unless an outer Retry tries again, in a new
// transaction. Middlewares between this one and the handler run within the transaction; Retry must not be one of them.
func (m *Middleware[TTx]) Middleware(next message.HandlerFunc) message.HandlerFunc {
	m.mu.Lock()
	m.next = next
	m.mu.Unlock()
	return func(raw *message.Message) ([]*message.Message, error) {
		return nil, m.handle(raw, next)
	}
}

// run is one call of a Middleware. The context carries it through the consumer to the handler.
type run struct {
	raw  *message.Message
	next message.HandlerFunc
	tx   joinedTx // only with Config.Join
}

type runKey struct{}

func (m *Middleware[TTx]) handle(raw *message.Message, next message.HandlerFunc) error {
	ctx := raw.Context()
	if err := m.refuseSecondHandler(ctx); err != nil {
		return err
	}
	if isAcked(raw) {
		m.cfg.Logger.ErrorContext(ctx, "watermilltx: message was acknowledged before its handler ran, and is lost if this process ends now; "+
			"remove middleware.InstantAck", "consumer", m.cfg.Name, "topic", message.SubscribeTopicFromCtx(ctx))
	}
	msg := ToMessage(raw)
	id := identity(msg.Topic, raw)
	msg.Attempt += m.failures.Of(id)
	if m.cfg.Amend != nil {
		amend(m.cfg.Amend, msg)
	}
	r := &run{raw: raw, next: next}
	err := m.consumer.ProcessBatch(context.WithValue(ctx, runKey{}, r), []*consumer.Message{msg})[0]
	if r.tx.doomed {
		// watermill-sql then tries to commit the transaction, which fails, and delivers the message again in another
		// one
		raw.Ack()
	}
	retry, again := errors.AsType[*consumer.RetryError](err)
	switch {
	case !again:
		m.failures.Forget(id)
	case !retry.Held:
		m.failures.Add(id)
	}
	if again && !r.tx.doomed {
		_ = await.Sleep(ctx, min(retry.After, m.cfg.MaxWait))
	}
	return err
}

// refuseSecondHandler returns an error if m serves another handler already: two handlers under one name would take each
// other's messages for duplicates.
func (m *Middleware[TTx]) refuseSecondHandler(ctx context.Context) error {
	handler := message.HandlerNameFromCtx(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.values == nil {
		m.handler, m.values = handler, context.WithoutCancel(ctx)
	}
	if m.handler != handler {
		return &consumer.RetryError{Held: true, Err: fmt.Errorf("watermilltx: Middleware %q serves handler %q, and cannot serve %q as well: "+
			"make one for each handler, with a Name of its own, and add it with Handler.AddMiddleware", m.cfg.Name,
			m.handler, handler)}
	}
	return nil
}

// run is the consumer's handler. The watermill handler gets a copy of the message: acking the copy acknowledges
// nothing.
func (m *Middleware[TTx]) run(ctx context.Context, tx TTx, msg *consumer.Message) error {
	r, _ := ctx.Value(runKey{}).(*run)
	if r == nil {
		var err error
		if r, err = m.replayed(msg); err != nil {
			return err
		}
	}
	inner, cancel := context.WithCancel(context.WithValue(ctx, txKey{}, tx))
	defer cancel()
	given := message.NewMessage(r.raw.UUID, bytes.Clone(r.raw.Payload))
	maps.Copy(given.Metadata, r.raw.Metadata)
	given.SetContext(inner)
	produced, err := r.next(given)
	if err != nil {
		return err
	}
	if isNacked(given) {
		return ErrNacked
	}
	return m.enqueue(ctx, tx, r.raw, produced)
}

// replayed returns a run for a dead letter.
func (m *Middleware[TTx]) replayed(msg *consumer.Message) (*run, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.next == nil {
		return nil, errors.New("watermilltx: replay: the Router does not run yet, so there is no handler")
	}
	raw := message.NewMessage(msg.Position[strings.LastIndex(msg.Position, "/")+1:], msg.Payload)
	raw.Metadata = encodeMetadata(msg.Headers, msg.OrderingKey)
	if m.values != nil {
		raw.SetContext(m.values)
	}
	return &run{raw: raw, next: m.next}, nil
}

// enqueue writes the produced messages to the outbox. If it cannot, that is the program's fault and not the message's:
// the message is not parked for it.
func (m *Middleware[TTx]) enqueue(ctx context.Context, tx TTx, in *message.Message, produced []*message.Message) error {
	if len(produced) == 0 {
		return nil
	}
	refuse := func(format string, args ...any) error {
		return &consumer.RetryError{Held: true, Err: fmt.Errorf("watermilltx: "+format, args...)}
	}
	if m.cfg.Outbox == nil {
		return refuse("the handler of %q produced %d messages, and Config.Outbox is not set", m.cfg.Name, len(produced))
	}
	msgs := make([]outbox.Message, 0, len(produced))
	for _, p := range produced {
		if p == nil {
			return refuse("the handler of %q produced a nil message", m.cfg.Name)
		}
		topic := m.cfg.Topic(in, p)
		if topic == "" {
			return refuse("the handler of %q produced a message, and its topic is empty: add the handler with a publish topic, or set Config.Topic", m.cfg.Name)
		}
		msgs = append(msgs, toOutbox(p, topic, m.cfg.OrderingKey(p)))
	}
	return m.cfg.Outbox.Enqueue(ctx, tx, msgs...)
}

// toOutbox leaves the ID empty: the outbox derives one that is the same in every attempt.
func toOutbox(p *message.Message, topic, key string) outbox.Message {
	headers := make(map[string]string, len(p.Metadata)+1)
	for name, value := range p.Metadata {
		if !strings.HasPrefix(strings.ToLower(name), "txonce-") {
			// the relay's header of the received message, if the handler copied its metadata
			headers[name] = value
		}
	}
	if p.UUID != "" {
		headers[MetadataUUID] = p.UUID
	}
	return outbox.Message{Topic: topic, OrderingKey: key, Payload: p.Payload, Headers: headers}
}

func isAcked(msg *message.Message) bool {
	select {
	case <-msg.Acked():
		return true
	default:
		return false
	}
}

func isNacked(msg *message.Message) bool {
	select {
	case <-msg.Nacked():
		return true
	default:
		return false
	}
}

// IsPoison is the filter for middleware.PoisonQueueWithFilter, and for nothing else. It is false for an error of a
// Middleware or a Handler when a later delivery may succeed, for example because the database is away. A store that is
// a ParkingLot parks a poison message before a poison queue gets it.
func IsPoison(err error) bool {
	_, again := errors.AsType[*consumer.RetryError](err)
	return !again && !errors.Is(err, context.Canceled)
}
