package wire

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/outbox"
)

const (
	claimTimeout = 300 * time.Millisecond
	leaseTTL     = 500 * time.Millisecond
	limit        = time.Minute // for all deliveries of a case

	longest   = 120 * time.Millisecond                        // stall or delay, unless it is longer than a claim's
	latest    = longest + claimTimeout + 200*time.Millisecond // after this, what was late has arrived
	pollEvery = 10 * time.Millisecond
)

// world is a database, the lanes that work on it, and what they have published.
type world struct {
	seed    uint64
	direct  *sql.DB
	name    func(n int) string // of the n-th parameter of a statement
	lanes   []*lane            // that consume
	relays  []*lane
	clean   node // consumes without faults
	runs    atomic.Int64
	logger  *slog.Logger
	publish publisher

	failures atomic.Int64 // of publishers in memory
	looking  sync.RWMutex // is held for reading while acknowledged messages are looked at, and while a late frame is sent

	// what was published: where each payload came first, in an order that holds for each ordering key
	published func(context.Context) (map[string]int64, error)
}

// node is a consumer of a process.
type node interface {
	ProcessBatch(ctx context.Context, msgs []*consumer.Message) []error
	Start(ctx context.Context) error
}

// body is the payload of a message.
type body struct {
	ID    string `json:"id"`
	Fails int    `json:"fails"` // its first runs fail; -1: all, for good
	Out   string `json:"out"`   // the topic of the outbox message that its handler enqueues; empty: none
	Key   string `json:"key"`   // of that message
}

// order is a message and what became of it.
type order struct {
	body
	twin bool
}

func (w *world) message(o *order, attempt int) *consumer.Message {
	payload, _ := json.Marshal(o.body) // cannot fail
	return &consumer.Message{ID: o.ID, Topic: "orders", Position: o.ID, Payload: payload, Time: time.Now(), Attempt: attempt}
}

// work is what a run of a handler does.
type work struct {
	id, run string
	out     *outbox.Message
}

var errPlanned = errors.New("planned failure")

// run decides what a run of the handler does.
func (w *world) run(msg *consumer.Message) (work, error) {
	var b body
	if err := json.Unmarshal(msg.Payload, &b); err != nil {
		return work{}, consumer.Permanent(err)
	}
	do := work{id: b.ID, run: fmt.Sprint(w.runs.Add(1))}
	if b.Out != "" {
		do.out = &outbox.Message{Topic: b.Out, OrderingKey: b.Key, Payload: []byte(b.ID + " " + do.run)}
	}
	switch {
	case b.Fails < 0:
		return do, consumer.Permanent(errPlanned)
	case msg.Attempt <= b.Fails:
		return do, errPlanned
	}
	return do, nil
}

// config is the consumer's Config but for its Store and its handler.
func config[TTx any](w *world) consumer.Config[TTx] {
	return consumer.Config[TTx]{
		Name: "wire", Key: consumer.MessageID, Logger: w.logger, ParkLimit: consumer.ParkLimit{Unlimited: true},
		Backoff:     func(attempt int) time.Duration { return time.Duration(min(attempt, 10)) * 2 * time.Millisecond },
		MaxAttempts: 8, // more than the faults of a case, its planned failure, and those of the other lane
	}
}

// started returns c after Start, which suffers no fault.
func started[TTx any](t *testing.T, cfg consumer.Config[TTx]) node {
	t.Helper()
	c, err := consumer.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

// publisher remembers what is published.
type publisher struct {
	mu sync.Mutex
	n  int64
	at map[string]int64 // where a payload came first
}

func (p *publisher) add(payload string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.n++; p.at[payload] == 0 {
		p.at[payload] = p.n
	}
}

func (p *publisher) all(context.Context) (map[string]int64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.at), nil
}

func newLogger(shown bool) *slog.Logger {
	if shown {
		return slog.Default()
	}
	return slog.New(slog.NewTextHandler(io.Discard, nil))
}

// in returns names of n parameters, separated by commas.
func (w *world) in(n int) (list string) {
	for i := range n {
		if i > 0 {
			list += ", "
		}
		list += w.name(i + 1)
	}
	return list
}

// strings runs a query that returns one column.
func (w *world) strings(ctx context.Context, query string, args ...any) (all []string, err error) {
	rows, err := w.direct.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, rows.Err()
}
