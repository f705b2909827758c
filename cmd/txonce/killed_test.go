package main

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/migrations"
)

var lettersFlag = flag.Int("replay.letters", 100, "how many dead letters TestReplaySurvivesKills replays")

// Processes of these tests: workers and command lines.
const (
	envRole = "TXONCE_TEST_ROLE" // worker, billing, shell or txonce
	// dialect, driver and DSN, in lines; of billing: DSN, brokers, topics of orders and of charges
	envDB = "TXONCE_TEST_DB"
)

// childMain is what a process that a test starts does.
func childMain() {
	switch os.Getenv(envRole) {
	case "txonce":
		os.Exit(run())
	case "shell":
		if err := serveScript(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	case "worker":
		fmt.Fprintln(os.Stderr, replayForEver(context.Background()))
		os.Exit(1)
	case "billing":
		fmt.Fprintln(os.Stderr, bill(context.Background()))
		os.Exit(1)
	}
}

func replayForEver(ctx context.Context) error {
	go func() { // the parent's end is this process's end
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	of := strings.Split(os.Getenv(envDB), "\n")
	db, err := sql.Open(of[1], of[2])
	if err != nil {
		return err
	}
	s := &seeds{db: db, dialect: sqlstore.Dialect(of[0])}
	c, err := s.consumer("billing", s.charge)
	if err != nil {
		return err
	}
	return c.RunReplays(ctx)
}

// charge takes a while, so that kills meet transactions.
func (s *seeds) charge(ctx context.Context, tx *sql.Tx, m *consumer.Message) error {
	if err := s.write(ctx, tx, m.ID); err != nil {
		return err
	}
	timer := time.NewTimer(time.Duration(rand.IntN(10)) * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// TestReplaySurvivesKills replays dead letters while workers and command lines are killed, and while the messages are
// delivered again. Each message has one effect, and no letter is left.
func TestReplaySurvivesKills(t *testing.T) {
	for name, s := range servers() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newKills(t, s)
			k.run(t, *lettersFlag)
		})
	}
}

type kills struct {
	*planted
	env []string
}

// newKills opens an empty database.
func newKills(t *testing.T, s server) *kills {
	t.Helper()
	line, driver := s.dsn(t, t.TempDir())
	db, err := sql.Open(s.driver, driver)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return &kills{
		planted: &planted{seeds: &seeds{t: t, db: db, dialect: s.dialect}, line: line},
		env:     append(os.Environ(), "TXONCE_DSN="+line, envDB+"="+string(s.dialect)+"\n"+s.driver+"\n"+driver),
	}
}

func (k *kills) run(t *testing.T, n int) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	if err := migrations.Apply(ctx, k.db, string(k.dialect), ""); err != nil {
		t.Fatal(err)
	}
	k.exec(t, `CREATE TABLE ledger (id varchar(100) NOT NULL)`)
	msgs := k.parkAll(t, n)

	background, stop := context.WithCancel(ctx)
	defer stop()
	var others sync.WaitGroup
	for range 2 {
		others.Go(func() { k.workers(background, t) })
	}
	others.Go(func() { k.redeliver(background, t, msgs) })

	store, err := k.store()
	if err != nil {
		t.Fatal(err)
	}
	action := k.request(ctx, t, store.Operator(), n)
	for action.Ended.IsZero() {
		k.follow(ctx, t, action)
		k.exec(t, k.expireLeases())
		found, err := store.Operator().Actions(ctx, ops.ActionFilter{ID: action.ID})
		if err != nil || len(found) != 1 {
			t.Fatalf("%d actions, %v", len(found), err)
		}
		action = found[0]
	}
	stop()
	others.Wait()
	k.audit(t, action, n)
}

// parkAll parks n messages whose handler fails.
func (k *kills) parkAll(t *testing.T, n int) (msgs []*consumer.Message) {
	t.Helper()
	c, err := k.consumer("billing", func(context.Context, *sql.Tx, *consumer.Message) error {
		return consumer.Permanent(errors.New("the deployment is broken"))
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for i := range n {
		msgs = append(msgs, delivery(fmt.Sprintf("order-%d", i), "x"))
		msgs[i].OrderingKey = ""
	}
	for part := range slices.Chunk(msgs, 100) {
		for _, err := range c.ProcessBatch(t.Context(), part) {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	return msgs
}

// child starts a process of this binary, which is killed after a random while unless it ends before.
func (k *kills) child(ctx context.Context, role string, most time.Duration, args ...string) (out string, err error) {
	limited, cancel := context.WithTimeout(ctx, time.Duration(rand.Int64N(int64(most)))+most/10)
	defer cancel()
	cmd := exec.CommandContext(limited, os.Args[0], args...) // kills with SIGKILL
	cmd.Env = append(slices.Clone(k.env), envRole+"="+role)
	var text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &text, &text
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return "", err
	}
	defer stdin.Close()
	err = cmd.Run()
	if errors.Is(err, context.DeadlineExceeded) { // it ended with success just before it was killed
		err = nil
	}
	return text.String(), err
}

// workers starts one worker after the other, and kills each.
func (k *kills) workers(ctx context.Context, t *testing.T) {
	for ctx.Err() == nil {
		out, err := k.child(ctx, "worker", 2*time.Second)
		if ctx.Err() == nil && (err == nil || !strings.Contains(err.Error(), "killed")) {
			t.Errorf("a worker ended by itself: %v: %s", err, out)
			return
		}
	}
}

// redeliver delivers the messages again.
func (k *kills) redeliver(ctx context.Context, t *testing.T, msgs []*consumer.Message) {
	c, err := k.consumer("billing", k.charge)
	if err != nil {
		t.Error(err)
		return
	}
	defer c.Close()
	for ctx.Err() == nil {
		m := *msgs[rand.IntN(len(msgs))]
		m.Attempt++
		if err := c.Process(ctx, &m); err != nil && ctx.Err() == nil {
			t.Error(err)
			return
		}
		timer := time.NewTimer(50 * time.Millisecond)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

// request runs command lines that are killed, until one of them has made the request.
func (k *kills) request(ctx context.Context, t *testing.T, s ops.Store, n int) ops.Action {
	t.Helper()
	for range 1000 {
		out, err := k.child(ctx, "txonce", time.Second, "dead-letters", "replay", "--consumer", "billing", "--reason",
			"the deployment is mended",
			"--max-failures", "0", "--yes", "--expect", fmt.Sprint(n), "--wait")
		actions, listErr := s.Actions(ctx, ops.ActionFilter{Kind: ops.Replay})
		switch {
		case listErr != nil:
			t.Fatal(listErr)
		case len(actions) > 1:
			t.Fatalf("%d requests were made", len(actions))
		case len(actions) == 1:
			return actions[0]
		case err == nil || !strings.Contains(err.Error(), "killed"):
			t.Fatalf("%v: %s", err, out)
		}
	}
	t.Fatal("no request was made")
	return ops.Action{}
}

// follow waits with a command line, which is killed.
func (k *kills) follow(ctx context.Context, t *testing.T, action ops.Action) {
	t.Helper()
	out, err := k.child(ctx, "txonce", 2*time.Second, "actions", "show", action.ID.String(), "--wait")
	if err != nil && !strings.Contains(err.Error(), "killed") {
		t.Fatalf("%v: %s", err, out)
	}
}

// expireLeases ends the leases of letters that killed workers have taken, and those of living workers too.
func (k *kills) expireLeases() string {
	return `UPDATE operator_results SET taken_until = ` + k.ago(time.Hour) + ` WHERE outcome = ''`
}

func (k *kills) audit(t *testing.T, action ops.Action, n int) {
	t.Helper()
	for what, q := range map[string]string{
		"effects":                  `SELECT count(*) FROM ledger`,
		"messages with effects":    `SELECT count(DISTINCT id) FROM ledger`,
		"claims":                   `SELECT count(*) FROM processed_messages`,
		"dead letters and results": `SELECT (SELECT count(*) FROM dead_letters) + (SELECT count(*) FROM operator_results WHERE outcome IN ('processed', 'duplicate'))`,
	} {
		var got int
		if err := k.db.QueryRowContext(t.Context(), q).Scan(&got); err != nil {
			t.Fatal(err)
		}
		if got != n {
			t.Errorf("%d %s, want %d", got, what, n)
		}
	}
	var left int
	if err := k.db.QueryRowContext(t.Context(), `SELECT count(*) FROM dead_letters`).Scan(&left); err != nil ||
		left != 0 {
		t.Errorf("%d letters are left, %v; action %+v", left, err, action)
	}
}
