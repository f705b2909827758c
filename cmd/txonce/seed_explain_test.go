package main

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/txonce/txonce/adapters/cli"
	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

// mounted is a program of a user's own with the same commands. Its consumer billing fails for the message order-bad.
func mounted(ctx context.Context) int {
	root := cli.New(cli.Config{Open: open, Replayer: func(_ context.Context, db *cli.Database, name string) (cli.Replayer, error) {
		if name != "billing" {
			return nil, fmt.Errorf("this program has no consumer %s", name)
		}
		store, err := sqlstore.New(sqlstore.Config{DB: db.SQL, Dialect: sqlstore.Dialect(db.Dialect)})
		if err != nil {
			return nil, err
		}
		return consumer.New(consumer.Config[*sql.Tx]{Name: name, Store: store, Key: consumer.MessageID, Logger: quiet(), Handle: func(_ context.Context, _ *sql.Tx, m *consumer.Message) error {
			if m.ID == "order-bad" {
				return consumer.Permanent(errors.New("still broken"))
			}
			return nil
		}})
	}})
	err := root.ExecuteContext(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "mounted:", err)
	}
	return cli.ExitCode(err)
}

// enqueue CONSUMER ID TOPIC N: a message whose handler enqueues N messages without an ID, with the payloads TOPIC-0,
// TOPIC-1 and so on.
func enqueue(ts *testscript.TestScript, _ bool, args []string) {
	store, err := seedsOf(ts).store()
	ts.Check(err)
	n, err := strconv.Atoi(args[3])
	ts.Check(err)
	deliver(ts, args[:2], nil, func(ctx context.Context, tx *sql.Tx, _ *consumer.Message) error {
		for i := range n {
			if err := store.Enqueue(ctx, tx, outbox.Message{Topic: args[2], Payload: fmt.Appendf(nil, "%s-%d", args[2], i)}); err != nil {
				return err
			}
		}
		return nil
	})
}

// settle PAYLOAD=VERDICT...: what a relay does with pending messages.
func settle(ts *testscript.TestScript, _ bool, args []string) {
	verdicts := map[string]driver.Verdict{"sent": driver.Sent, "parked": driver.Parked, "returned": driver.Returned}
	want := map[string]driver.Verdict{}
	for _, arg := range args {
		payload, verdict, _ := strings.Cut(arg, "=")
		want[payload] = verdicts[verdict]
	}
	store, err := seedsOf(ts).store()
	ts.Check(err)
	ctx, cancel := context.WithTimeout(seedsOf(ts).t.Context(), time.Minute)
	defer cancel()
	session, err := store.Open(ctx, driver.SessionOptions{Name: "seed", TTL: time.Minute})
	ts.Check(err)
	for len(want) > 0 {
		_, err := session.Renew(ctx)
		ts.Check(err)
		leased, err := session.Lease(ctx, driver.Want{Limit: 100})
		ts.Check(err)
		outcomes := []driver.Outcome{}
		for _, m := range leased {
			outcomes = append(outcomes, driver.Outcome{
				Leased: m, Verdict: want[string(m.Payload)],
				Err: errors.New("message too large"),
			})
			delete(want, string(m.Payload))
		}
		ts.Check(session.Settle(ctx, outcomes))
	}
	ts.Check(session.Close(ctx))
}

// hidden KEY: $HIDDEN becomes what --hide-keys shows in place of the key.
func hiddenKey(ts *testscript.TestScript, _ bool, args []string) {
	ts.Setenv("HIDDEN", ops.HideKeys{Secret: []byte(ts.Getenv("TXONCE_KEY_SECRET"))}.Key(args[0]))
}

// rowkey CONSUMER KEY: $ROWKEY becomes the digits of the column processed_messages.key.
func rowKey(ts *testscript.TestScript, _ bool, args []string) {
	hash := dedup.Key{Consumer: args[0], ID: args[1]}.Hash()
	ts.Setenv("ROWKEY", hex.EncodeToString(hash[:]))
}

// hold CONSUMER ID: a handler that runs until release, and then fails.
func holdKey(ts *testscript.TestScript, _ bool, args []string) {
	s := seedsOf(ts)
	store, err := s.store()
	ts.Check(err)
	running, free, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		done <- store.InTx(s.t.Context(), []dedup.Record{{Key: dedup.Key{Consumer: args[0], ID: args[1]}}}, func(*sql.Tx, []dedup.Claim) error {
			close(running)
			<-free
			return errReleased
		})
	}()
	select {
	case <-running:
	case err := <-done:
		ts.Fatalf("hold: %v", err)
	}
	s.held = func() {
		close(free)
		if err := <-done; !errors.Is(err, errReleased) {
			ts.Fatalf("hold: %v", err)
		}
	}
}

var errReleased = errors.New("released")

func releaseKey(ts *testscript.TestScript, _ bool, _ []string) { seedsOf(ts).held() }

// inflight: the output of explain says who holds the key, as far as the database knows it.
func inFlight(ts *testscript.TestScript, _ bool, _ []string) {
	out, knows := ts.ReadFile("stdout"), seedsOf(ts).dialect != sqlstore.SQLite
	if strings.Contains(out, "holder   pid ") != knows || strings.Contains(out, "idle in transaction") != knows ||
		strings.Contains(out, "for another one") == knows {
		ts.Fatalf("%s", out)
	}
}

// handled CONSUMER ID PAYLOAD: the worker of the script has had a message with this payload.
func handled(ts *testscript.TestScript, _ bool, args []string) {
	if _, had := seedsOf(ts).handled.Load(args[1] + " " + args[2]); !had {
		ts.Fatalf("no handler has had %s with the payload %s", args[1], args[2])
	}
}
