package watermilltx_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	watermillsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/txonce/txonce/adapters/watermilltx"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
)

// topicOf is a topic of watermill-sql with one subscriber, which a Router closes.
type topicOf struct {
	*base
	pub    *watermillsql.Publisher
	sub    *watermillsql.Subscriber
	name   string
	offset func() int64
}

func schemaAdapter() watermillsql.DefaultPostgreSQLSchema {
	return watermillsql.DefaultPostgreSQLSchema{GeneratePayloadType: func(string) string { return "BYTEA" }}
}

func newTopic(t *testing.T, b *base, ackDeadline time.Duration) *topicOf {
	t.Helper()
	pub, err := watermillsql.NewPublisher(b.db, watermillsql.PublisherConfig{
		SchemaAdapter:        schemaAdapter(),
		AutoInitializeSchema: true,
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	o := &topicOf{base: b, pub: pub, name: "orders"}
	o.sub = o.subscriber(ackDeadline)
	if err := o.sub.SubscribeInitialize(o.name); err != nil {
		t.Fatal(err)
	}
	o.offset = func() (n int64) {
		err := b.db.QueryRow(`SELECT coalesce(max(offset_acked), 0) FROM watermill_offsets_orders`).Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	return o
}

func (o *topicOf) subscriber(ackDeadline time.Duration) *watermillsql.Subscriber {
	o.t.Helper()
	sub, err := watermillsql.NewSubscriber(o.db, watermillsql.SubscriberConfig{
		ConsumerGroup: "g", AckDeadline: &ackDeadline, PollInterval: 10 * time.Millisecond,
		ResendInterval: time.Millisecond, RetryInterval: 10 * time.Millisecond,
		SchemaAdapter: schemaAdapter(), OffsetsAdapter: watermillsql.DefaultPostgreSQLOffsetsAdapter{},
	}, nil)
	if err != nil {
		o.t.Fatal(err)
	}
	return sub
}

func (o *topicOf) publish(ids ...string) {
	o.t.Helper()
	for _, id := range ids {
		if err := o.pub.Publish(o.name, order(o.t, id)); err != nil {
			o.t.Fatal(err)
		}
	}
}

// run starts a Router with one handler, behind middlewares in this order.
func (o *topicOf) run(t *testing.T, handler message.NoPublishHandlerFunc, middlewares ...message.HandlerMiddleware) {
	t.Helper()
	router := newRouter(t, watermill.NopLogger{})
	router.AddConsumerHandler("billing", o.name, o.sub, handler).AddMiddleware(middlewares...)
	startRouter(t, router)
}

// handlers of watermill-sql that know nothing of this package take the transaction like this.
func joinedExec(msg *message.Message, query string) error {
	tx, _ := watermillsql.TxFromContext(msg.Context())
	_, err := tx.ExecContext(msg.Context(), query)
	return err
}

func insertID(msg *message.Message) (id, query string) {
	id, err := byID(watermilltx.ToMessage(msg))
	if err != nil {
		panic(err)
	}
	return id, `INSERT INTO effects (id) VALUES ('` + id + `')`
}

func joinConfig(b *base) watermilltx.Config[*sql.Tx] {
	cfg := config(b, "billing")
	cfg.Join = true
	cfg.MaxAttempts = 50
	return cfg
}

func joinedExecIf(msg *message.Message, yes bool, query string) error {
	if !yes {
		return nil
	}
	return joinedExec(msg, query)
}

// Close of the subscriber commits the writes of a running handler so far, unless a cursor prevents it.
func TestJoinedClose(t *testing.T) {
	if testing.Short() {
		t.Log("-short: there is no watermill-sql without a server")
		return
	}
	for _, joins := range []bool{false, true} {
		t.Run(fmt.Sprint("with Join ", joins), func(t *testing.T) {
			o := newTopic(t, newPostgres(t), 10*time.Minute)
			o.publish("1")
			var middlewares []message.HandlerMiddleware
			if joins {
				middlewares = append(middlewares, newMiddleware(t, joinConfig(o.base)).Middleware)
			}
			running := make(chan struct{}, 1)
			router := newRouter(t, watermill.NopLogger{})
			router.AddConsumerHandler("billing", o.name, o.sub, func(msg *message.Message) error {
				_, query := insertID(msg)
				if err := joinedExec(msg, query); err != nil {
					return err
				}
				select {
				case running <- struct{}{}:
				default:
				}
				<-msg.Context().Done()
				<-time.After(200 * time.Millisecond)
				return joinedExec(msg, `INSERT INTO effects (id) VALUES ('the other half')`)
			}).AddMiddleware(middlewares...)
			done := make(chan error, 1)
			go func() { done <- router.Run(context.WithoutCancel(t.Context())) }()
			select {
			case <-running:
			case err := <-done:
				t.Fatalf("Run = %v; want it to go on", err)
			}
			// The subscriber first: a Router cancels the transaction's context as well, and chance says which is
			// faster, the rollback for that or COMMIT.
			if err := o.sub.Close(); err != nil {
				t.Error(err)
			}
			if err := router.Close(); err != nil {
				t.Error(err)
			}
			<-done
			if !joins {
				o.wantEffects("1") // the hazard: the message is not acknowledged, and half of its effect is committed
				return
			}
			o.wantEffects()

			o.sub = o.subscriber(10 * time.Minute)
			o.run(t, func(msg *message.Message) error {
				_, query := insertID(msg)
				return joinedExec(msg, query)
			}, newMiddleware(t, func() watermilltx.Config[*sql.Tx] {
				cfg := joinConfig(o.base)
				cfg.Store = o.node() // another process
				return cfg
			}()).Middleware)
			eventually(t, func() bool { return o.offset() == 1 })
			o.wantEffects("1")
		})
	}
}

// When another process claims a key after watermill-sql's transaction has begun, that transaction cannot see the claim.
// It is given up, and the next transaction sees it.
func TestJoinedSerializationFailure(t *testing.T) {
	if testing.Short() {
		t.Log("-short: there is no watermill-sql without a server")
		return
	}
	o := newTopic(t, newPostgres(t), time.Hour) // nothing waits until this has passed
	o.publish("1", "2")
	once := newMiddleware(t, joinConfig(o.base))
	claim := sync.OnceValue(func() error { // as another node does that has got message 2 from elsewhere
		rec := dedup.Record{
			Key:         dedup.Key{Consumer: "billing", ID: "2"},
			Fingerprint: dedup.FingerprintOf([]byte(`{"order_id":"2"}`)),
		}
		return o.node().InTx(context.Background(), []dedup.Record{rec}, func(tx *sql.Tx, _ []dedup.Claim) error {
			_, err := tx.Exec(`INSERT INTO effects (id) VALUES ('2 elsewhere')`)
			return err
		})
	})
	o.run(t, func(msg *message.Message) error {
		id, query := insertID(msg)
		if id == "1" {
			if err := claim(); err != nil {
				return err
			}
		}
		return joinedExec(msg, query)
	}, once.Middleware)
	eventually(t, func() bool { return o.offset() == 2 })
	o.wantEffects("1", "2 elsewhere")
}

// A message that fails for good is parked and acknowledged, and the others go on; their produced messages are in the
// outbox.
func TestJoinedParkAndProduce(t *testing.T) {
	if testing.Short() {
		t.Log("-short: there is no watermill-sql without a server")
		return
	}
	o := newTopic(t, newPostgres(t), 10*time.Minute)
	o.publish("1", "poison", "1", "2")
	cfg := joinConfig(o.base)
	cfg.Topic = nil
	once := newMiddleware(t, cfg)
	router := newRouter(t, watermill.NopLogger{})
	router.AddHandler("billing", o.name, o.sub, "charges", &recorder{}, func(msg *message.Message) ([]*message.Message, error) {
		if id, query := insertID(msg); id == "poison" {
			return nil, errors.Join(joinedExec(msg, query), consumer.Permanent(errors.New("never")))
		}
		return charge(msg)
	}).AddMiddleware(once.Middleware)
	startRouter(t, router)
	eventually(t, func() bool { return o.offset() == 4 })
	o.wantEffects("1", "2")
	all := letters(t, once)
	if len(all) != 1 || all[0].Record.Key.ID != "poison" {
		t.Errorf("letters %+v", all)
	}
	var payloads []string
	for _, m := range o.wantPublished(2) {
		payloads = append(payloads, string(m.Payload))
	}
	slices.Sort(payloads)
	if !slices.Equal(payloads, []string{"charged 1", "charged 2"}) {
		t.Errorf("published %q", payloads)
	}
}

// Join needs a message with a transaction, and says so.
func TestJoinWithoutTransaction(t *testing.T) {
	b := newSQLite(t)
	cfg := config(b, "billing")
	cfg.Join = true
	_, err := newMiddleware(t, cfg).Middleware(charge)(order(t, "1"))
	wantRetry(t, err, true)
	if !strings.Contains(err.Error(), "watermill-sql/v3's subscriber") {
		t.Errorf("error %v", err)
	}
	b.wantEffects()
}

// A hook that panics within the attempt, and a log handler that panics for the line about it, have no effect.
func TestJoinWithAHookAndALogHandlerThatPanic(t *testing.T) {
	if testing.Short() {
		t.Log("-short: there is no watermill-sql without a server")
		return
	}
	t.Parallel()
	o := newTopic(t, newPostgres(t), 10*time.Minute)
	o.publish("1")
	cfg := joinConfig(o.base)
	cfg.Trace = &consumer.Trace{Claimed: func(context.Context, *consumer.Delivery, []*consumer.Message) { panic("a bug of the hook") }}
	cfg.Logger = slog.New(panicking{slog.DiscardHandler, func(string) bool { return true }})
	once := newMiddleware(t, cfg)
	var failed atomic.Int32
	count := func(next message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			produced, err := next(msg)
			if err != nil {
				failed.Add(1)
			}
			return produced, err
		}
	}
	o.run(t, func(msg *message.Message) error {
		_, query := insertID(msg)
		return joinedExec(msg, query)
	}, count, once.Middleware)
	eventually(t, func() bool { return o.offset() == 1 })
	o.wantEffects("1")
	if n := failed.Load(); n > 0 {
		t.Errorf("%d attempts failed", n)
	}
}

// panicking is a log handler that panics at some lines.
type panicking struct {
	slog.Handler
	at func(line string) bool
}

func (p panicking) Enabled(context.Context, slog.Level) bool { return true }

func (p panicking) Handle(ctx context.Context, r slog.Record) error {
	if p.at(r.Message) {
		panic("a nil pointer or so")
	}
	return p.Handler.Handle(ctx, r)
}

func (p panicking) WithAttrs([]slog.Attr) slog.Handler { return p }
