package watermilltx_test

import (
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	watermillsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/txonce/txonce/adapters/watermilltx"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/outboxtest"
)

// inMemory is a watermill publisher and its broker.
type inMemory struct {
	mu     sync.Mutex
	topics map[string][]*message.Message
	down   bool
	silent chan struct{} // closed when it speaks again; nil: it does
	calls  int           // that run
}

var (
	errTooLarge = errors.New("message too large")
	errNoTopic  = errors.New("no such topic")
)

const tooLarge = 100_000

// Publish hangs as a broker's client without a context does.
func (b *inMemory) Publish(topic string, msgs ...*message.Message) error {
	b.mu.Lock()
	silent := b.silent
	b.calls++
	b.mu.Unlock()
	if silent != nil {
		<-silent
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls--
	if b.down {
		return fmt.Errorf("dial: %w", syscall.ECONNREFUSED)
	}
	if b.topics[topic] == nil {
		return errNoTopic
	}
	for _, m := range msgs {
		if len(m.Payload) >= tooLarge {
			return errTooLarge
		}
		b.topics[topic] = append(b.topics[topic], m)
	}
	return nil
}

func (b *inMemory) Close() error { return nil }

func (b *inMemory) set(down bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.down = down
}

func (b *inMemory) hush() (resume func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	silent := make(chan struct{})
	b.silent = silent
	return func() {
		b.mu.Lock()
		b.silent = nil
		b.mu.Unlock()
		close(silent)
	}
}

// permanent classifies the permanent refusals of the tests' brokers.
func permanent(topic string, err error) error {
	var refused *pgconn.PgError
	if errors.Is(err, errTooLarge) || errors.As(err, &refused) && refused.Code == "23514" {
		return outbox.Permanent(fmt.Errorf("topic %q: %w", topic, err))
	}
	if errors.Is(err, errNoTopic) {
		return &outbox.TopicError{Err: fmt.Errorf("topic %q: %w", topic, err)}
	}
	return watermilltx.Classify(topic, err)
}

// toOutbox is a message as a reader finds it.
func toOutbox(topic string, raw *message.Message) outbox.Message {
	msg := watermilltx.ToMessage(raw)
	return outbox.Message{Topic: topic, OrderingKey: msg.OrderingKey, Payload: msg.Payload, Headers: msg.Headers}
}

func unsafePublishers() []outboxtest.Unsafe {
	refused := func(p message.Publisher) func(*testing.T) error {
		return func(*testing.T) error {
			_, err := watermilltx.NewPublisher(watermilltx.PublisherConfig{Publisher: p})
			return err
		}
	}
	return []outboxtest.Unsafe{
		{Setting: "gochannel.GoChannel", New: refused(gochannel.NewGoChannel(gochannel.Config{Persistent: true}, nil))},
		{Setting: "Publish.ConfirmDelivery", New: refused(&inMemory{})},
		{Setting: "Producer.RequiredAcks", New: refused(&inMemory{})},
	}
}

func oversize(m outbox.Message) outbox.Message {
	m.Payload = make([]byte, tooLarge)
	return m
}

// TestPublisher is the suite, on a publisher in memory and on watermill-sql.
func TestPublisher(t *testing.T) {
	t.Run("in memory", func(t *testing.T) {
		var broker *inMemory
		outboxtest.TestPublisher(t, outboxtest.PublisherHarness{
			New: func(t *testing.T) outbox.Publisher {
				broker = &inMemory{topics: map[string][]*message.Message{}}
				return newPublisher(t, watermilltx.PublisherConfig{
					Publisher: broker, Confirms: true,
					Classify: permanent,
				})
			},
			Topic: func(t *testing.T) string {
				broker.topics[t.Name()] = []*message.Message{}
				return t.Name()
			},
			Read: func(_ *testing.T, topic string, _ int) (msgs []outbox.Message) {
				broker.mu.Lock()
				defer broker.mu.Unlock()
				for _, m := range broker.topics[topic] {
					msgs = append(msgs, toOutbox(topic, m))
				}
				return msgs
			},
			Oversize: oversize, Unroutable: func(t *testing.T) string { return t.Name() + "-missing" },
			Unsafe: unsafePublishers(),
			Pause:  func(*testing.T) func() { return broker.hush() },
			Stop: func(*testing.T) func() {
				broker.set(true)
				return func() { broker.set(false) }
			},
			Run: synctest.Test,
		})
	})
	t.Run("watermill-sql", func(t *testing.T) {
		if testing.Short() {
			t.Log("-short: there is no watermill-sql without a server")
			return
		}
		dsn := testdb.Schema(t, testdb.Postgres(t))
		control, err := sql.Open("pgx", dsn)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { control.Close() })
		var way *gate // of the case that runs
		table := schemaAdapter()
		outboxtest.TestPublisher(t, outboxtest.PublisherHarness{
			New: func(t *testing.T) outbox.Publisher {
				way = &gate{}
				cfg, err := pgx.ParseConfig(dsn)
				if err != nil {
					t.Fatal(err)
				}
				cfg.DialFunc = way.dial
				db := stdlib.OpenDB(*cfg)
				t.Cleanup(func() { db.Close() })
				pub, err := watermillsql.NewPublisher(db, watermillsql.PublisherConfig{SchemaAdapter: table}, nil)
				if err != nil {
					t.Fatal(err)
				}
				return newPublisher(t, watermilltx.PublisherConfig{Publisher: pub, Confirms: true, Classify: permanent})
			},
			Topic: func(t *testing.T) string {
				topic := "t" + strings.ReplaceAll(newUUID(), "-", "")
				for _, q := range table.SchemaInitializingQueries(topic) {
					if _, err := control.Exec(q.Query); err != nil {
						t.Fatal(err)
					}
				}
				if _, err := control.Exec(fmt.Sprintf(`ALTER TABLE %s ADD CHECK (length(payload) < %d)`,
					table.MessagesTable(topic), tooLarge)); err != nil {
					t.Fatal(err)
				}
				return topic
			},
			Read: func(t *testing.T, topic string, _ int) (msgs []outbox.Message) {
				<-time.After(100 * time.Millisecond) // what was on its way when it was given up
				rows, err := control.Query(`SELECT "offset", 1, uuid, payload, metadata FROM ` +
					table.MessagesTable(topic) + ` ORDER BY "offset"`)
				if err != nil {
					t.Fatal(err)
				}
				defer rows.Close()
				for rows.Next() {
					row, err := table.UnmarshalMessage(rows)
					if err != nil {
						t.Fatal(err)
					}
					msgs = append(msgs, toOutbox(topic, row.Msg))
				}
				if err := rows.Err(); err != nil {
					t.Fatal(err)
				}
				return msgs
			},
			Oversize: oversize, Unroutable: func(*testing.T) string { return "missing" }, Unsafe: unsafePublishers(),
			Pause: func(t *testing.T) func() {
				tx, err := control.Begin()
				if err != nil {
					t.Fatal(err)
				}
				rows, err := control.Query(`SELECT quote_ident(relname) FROM pg_class WHERE relname LIKE 'watermill_t%' AND relkind = 'r' AND pg_table_is_visible(oid)`)
				if err != nil {
					t.Fatal(err)
				}
				defer rows.Close()
				for rows.Next() {
					var name string
					if err := rows.Scan(&name); err != nil {
						t.Fatal(err)
					}
					if _, err := tx.Exec(`LOCK TABLE ` + name + ` IN ACCESS EXCLUSIVE MODE`); err != nil {
						t.Fatal(err)
					}
				}
				if err := rows.Err(); err != nil {
					t.Fatal(err)
				}
				return func() {
					if err := tx.Rollback(); err != nil {
						t.Error(err)
					}
				}
			},
			Stop: func(*testing.T) func() { return way.close() },
		})
	})
}

func newPublisher(t *testing.T, cfg watermilltx.PublisherConfig) *watermilltx.Publisher {
	t.Helper()
	p, err := watermilltx.NewPublisher(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Each row of an outbox has a UUID of its own, which fits the column of watermill-sql, and a repeat of the row has the
// same.
func TestUUID(t *testing.T) {
	broker := &inMemory{topics: map[string][]*message.Message{"t": {}}}
	p := newPublisher(t, watermilltx.PublisherConfig{Publisher: broker, Confirms: true})
	row := func(id string, seq int64) outbox.Message {
		m := outbox.Message{ID: id, Topic: "t"}
		m.Headers = outbox.PlainHeaders(outbox.Stored{Message: m, Seq: seq})
		return m
	}
	short, long := "order-1:charged", strings.Repeat("order-1:charged", 10)
	rows := []outbox.Message{row(short, 1), row(short, 2), row(long, 3)}
	for range 2 {
		for _, m := range rows {
			if errs := p.Publish(t.Context(), []outbox.Message{m}); errs[0] != nil {
				t.Fatal(errs)
			}
		}
	}
	var uuids []string
	for _, m := range broker.topics["t"] {
		if uuids = append(uuids, m.UUID); len(m.UUID) != 36 {
			t.Errorf("UUID %q", m.UUID)
		}
	}
	if uuids[0] == uuids[1] || !slices.Equal(uuids[:3], uuids[3:]) {
		t.Errorf("UUIDs %q: want another one for each row, and the same for a repeat", uuids)
	}
}

func TestPublisherConfigRefused(t *testing.T) {
	fine := &inMemory{}
	for _, test := range []struct {
		want string
		cfg  watermilltx.PublisherConfig
	}{
		{"Publisher is required", watermilltx.PublisherConfig{}},
		{"Concurrency", watermilltx.PublisherConfig{Publisher: fine, Concurrency: -1}},
		{
			"Confirms is false: set it to true if Publish of your *watermilltx_test.inMemory",
			watermilltx.PublisherConfig{Publisher: fine},
		},
		{"Publisher is a gochannel.GoChannel", watermilltx.PublisherConfig{Publisher: gochannel.NewGoChannel(gochannel.Config{}, nil), Confirms: true}},
		{"AcceptedRisks", watermilltx.PublisherConfig{Publisher: fine, AcceptedRisks: []watermilltx.Risk{"x"}}},
	} {
		if _, err := watermilltx.NewPublisher(test.cfg); err == nil || !strings.Contains(err.Error(),
			"PublisherConfig."+test.want) {
			t.Errorf("%s: %v", test.want, err)
		}
	}
	for risk, p := range map[watermilltx.Risk]message.Publisher{
		watermilltx.RiskInMemory: gochannel.NewGoChannel(gochannel.Config{}, nil), watermilltx.RiskUnconfirmed: fine,
	} {
		if _, err := watermilltx.NewPublisher(watermilltx.PublisherConfig{Publisher: p, AcceptedRisks: []watermilltx.Risk{risk}}); err != nil {
			t.Errorf("%s is accepted, and the Publisher is refused: %v", risk, err)
		}
	}
}
