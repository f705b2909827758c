package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/observe"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

// seeds fills the database of a script.
type seeds struct {
	t       *testing.T
	db      *sql.DB
	dialect sqlstore.Dialect
	held    func()   // ends what hold began
	handled sync.Map // what workers have had: "ID PAYLOAD"
}

func seedsOf(ts *testscript.TestScript) *seeds { return ts.Value(seedKey{}).(*seeds) }

func (s *seeds) store() (*sqlstore.Store, error) {
	return sqlstore.New(sqlstore.Config{DB: s.db, Dialect: s.dialect})
}

func (s *seeds) consumer(name string, handle consumer.Handler[*sql.Tx]) (*consumer.Consumer[*sql.Tx], error) {
	store, err := s.store()
	if err != nil {
		return nil, err
	}
	return consumer.New(consumer.Config[*sql.Tx]{
		Name: name, Store: store, Key: consumer.MessageID, ParkLimit: consumer.ParkLimit{Unlimited: true},
		Logger: slog.New(slog.DiscardHandler), Handle: handle,
	})
}

func delivery(id, payload string) *consumer.Message {
	return &consumer.Message{
		ID: id, Topic: "orders", OrderingKey: "customer-7", Position: "orders/3/" + strings.TrimPrefix(id, "order-"),
		Payload: []byte(payload), Headers: map[string]string{"type": "paid"}, Time: time.Now(),
	}
}

// park CONSUMER ERROR ID [PAYLOAD]: a message whose handler fails for good.
func park(ts *testscript.TestScript, _ bool, args []string) {
	deliver(ts, append(args[:0:0], args[0], args[2]), args[3:], func(context.Context, *sql.Tx, *consumer.Message) error {
		return consumer.Permanent(errors.New(args[1]))
	})
}

// tenant TENANT CONSUMER ERROR ID: as park, of a tenant.
func parkOfTenant(ts *testscript.TestScript, _ bool, args []string) {
	s := seedsOf(ts)
	store, err := s.store()
	ts.Check(err)
	c, err := consumer.New(consumer.Config[*sql.Tx]{
		Name: args[1], Store: store, Key: consumer.MessageID, Logger: slog.New(slog.DiscardHandler),
		Tenant: func(*consumer.Message) (string, error) { return args[0], nil },
		Handle: func(context.Context, *sql.Tx, *consumer.Message) error {
			return consumer.Permanent(errors.New(args[2]))
		},
	})
	ts.Check(err)
	defer c.Close()
	ts.Check(c.Process(s.t.Context(), delivery(args[3], "x")))
}

// process CONSUMER ID [PAYLOAD]: a message that is processed.
func process(ts *testscript.TestScript, _ bool, args []string) {
	deliver(ts, args[:2], args[2:], func(context.Context, *sql.Tx, *consumer.Message) error { return nil })
}

func deliver(ts *testscript.TestScript, args, payload []string, handle consumer.Handler[*sql.Tx]) {
	s := seedsOf(ts)
	c, err := s.consumer(args[0], handle)
	ts.Check(err)
	defer c.Close()
	text := `{"order":"` + args[1] + `"}`
	if len(payload) > 0 {
		text = payload[0]
	}
	ts.Check(c.Process(s.t.Context(), delivery(args[1], text)))
}

// worker CONSUMER [FAILING]: a worker that carries out replays until the script ends. The message with the ID FAILING
// fails.
func worker(ts *testscript.TestScript, _ bool, args []string) {
	c, err := seedsOf(ts).consumer(args[0], func(_ context.Context, _ *sql.Tx, m *consumer.Message) error {
		seedsOf(ts).handled.Store(m.ID+" "+strings.TrimSpace(string(m.Payload)), true)
		if len(args) > 1 && m.ID == args[1] {
			return consumer.Permanent(errors.New("still broken"))
		}
		return nil
	})
	ts.Check(err)
	ctx, cancel := context.WithCancel(seedsOf(ts).t.Context())
	done := make(chan error, 1)
	go func() { done <- c.RunReplays(ctx) }()
	ts.Defer(func() {
		cancel()
		if err := <-done; err != nil {
			ts.Logf("RunReplays: %v", err)
		}
		c.Close()
	})
}

// parkoutbox TOPIC N [ERROR]: messages that the broker refuses.
func parkOutbox(ts *testscript.TestScript, _ bool, args []string) {
	s := seedsOf(ts)
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	refusal := errors.New("message too large")
	if len(args) > 2 {
		refusal = errors.New(args[2])
	}
	store, err := s.store()
	ts.Check(err)
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	for i := range n {
		id := fmt.Sprintf("%s-%d", args[0], i)
		tx, err := s.db.BeginTx(ctx, nil)
		ts.Check(err)
		ts.Check(store.Enqueue(ctx, tx, outbox.Message{ID: id, Topic: args[0], OrderingKey: fmt.Sprintf("%s-key-%d", args[0], i), Payload: []byte(`{"id":"` + id + `"}`)}))
		ts.Check(tx.Commit())
	}
	session, err := store.Open(ctx, driver.SessionOptions{Name: "seed", TTL: time.Minute})
	ts.Check(err)
	left := n
	for left > 0 {
		_, err := session.Renew(ctx)
		ts.Check(err)
		leased, err := session.Lease(ctx, driver.Want{Limit: 100})
		ts.Check(err)
		outcomes := []driver.Outcome{}
		for _, m := range leased {
			outcomes = append(outcomes, driver.Outcome{Leased: m, Verdict: driver.Parked, Err: refusal})
		}
		ts.Check(session.Settle(ctx, outcomes))
		left -= len(leased)
	}
	ts.Check(session.Close(ctx))
}

// query WANT SQL: the query's only value.
func query(ts *testscript.TestScript, _ bool, args []string) {
	var got string
	ts.Check(seedsOf(ts).db.QueryRowContext(seedsOf(ts).t.Context(), strings.Join(args[1:], " ")).Scan(&got))
	if got != args[0] {
		ts.Fatalf("%s: %s, want %s", args[1:], got, args[0])
	}
}

// paused CONSUMER CAUSE: a worker reports a pause.
func paused(ts *testscript.TestScript, _ bool, args []string) {
	s := seedsOf(ts)
	store, err := s.store()
	ts.Check(err)
	ts.Check(store.Activity().RecordActivity(s.t.Context(), []ops.Activity{{
		Minute: time.Now().Truncate(time.Minute), Consumer: args[0], Node: "worker", Paused: observe.Cause(args[1]),
	}}))
}

// letterid CONSUMER ID: $LETTER becomes the id of the newest dead letter with this business key.
func letterID(ts *testscript.TestScript, _ bool, args []string) {
	s := seedsOf(ts)
	store, err := s.store()
	ts.Check(err)
	found, err := store.DeadLetters(s.t.Context(), consumer.DeadLetterFilter{Consumer: args[0], MessageID: args[1]})
	ts.Check(err)
	if len(found) == 0 {
		ts.Fatalf("no letter of %s", args)
	}
	ts.Setenv("LETTER", found[0].ID.String())
}

// actionid: $ACTION becomes the id in the output of the last command.
func actionID(ts *testscript.TestScript, _ bool, _ []string) {
	_, rest, _ := strings.Cut(ts.ReadFile("stdout"), "action ")
	if len(rest) < 32 {
		ts.Fatalf("no action in the output")
	}
	ts.Setenv("ACTION", rest[:32])
}

// after: $AFTER becomes the value for the next page in the output of the last command.
func after(ts *testscript.TestScript, _ bool, _ []string) {
	_, rest, _ := strings.Cut(ts.ReadFile("stdout"), "--after ")
	ts.Setenv("AFTER", strings.TrimSpace(rest))
}

// expire makes all claims expire, and the windows as old as if they had run since.
func expire(ts *testscript.TestScript, _ bool, _ []string) {
	s := seedsOf(ts)
	statements := []string{
		`UPDATE processed_messages SET expires_at = expires_at - 20 * 86400000000`,
		`UPDATE txonce_windows SET first_run = first_run - 40 * 86400000000`,
	}
	if s.dialect == sqlstore.Postgres {
		statements = []string{
			`UPDATE processed_messages SET expires_at = expires_at - interval '20 days'`,
			`UPDATE txonce_windows SET first_run = first_run - interval '40 days'`,
		}
	}
	for _, q := range statements {
		_, err := s.db.ExecContext(s.t.Context(), q)
		ts.Check(err)
	}
}

// oldletters makes the messages of all dead letters older than keys that were deleted.
func oldLetters(ts *testscript.TestScript, _ bool, _ []string) {
	p := &planted{seeds: seedsOf(ts)}
	execute(ts, `UPDATE dead_letters SET message_time = `+p.ago(30*24*time.Hour))
	execute(ts, `UPDATE txonce_windows SET first_run = `+p.ago(60*24*time.Hour))
	execute(ts, `UPDATE txonce_sweep SET forgotten_until = `+p.ago(10*24*time.Hour))
}

// ledger makes a table for effects.
func ledger(ts *testscript.TestScript, _ bool, _ []string) {
	execute(ts, `CREATE TABLE ledger (id varchar(100) NOT NULL)`)
}

// pay CONSUMER ID: a message whose effect is a row of the ledger.
func pay(ts *testscript.TestScript, _ bool, args []string) {
	s := seedsOf(ts)
	deliver(ts, args, nil, func(ctx context.Context, tx *sql.Tx,
		m *consumer.Message,
	) error {
		return s.write(ctx, tx, m.ID)
	})
}

func (s *seeds) write(ctx context.Context, tx *sql.Tx, id string) error {
	q := `INSERT INTO ledger VALUES (?)`
	if s.dialect == sqlstore.Postgres {
		q = `INSERT INTO ledger VALUES ($1)`
	}
	_, err := tx.ExecContext(ctx, q, id)
	return err
}

// sql STATEMENT
func statement(ts *testscript.TestScript, _ bool, args []string) {
	execute(ts, strings.Join(args, " "))
}

func execute(ts *testscript.TestScript, q string) {
	_, err := seedsOf(ts).db.ExecContext(seedsOf(ts).t.Context(), q)
	ts.Check(err)
}
