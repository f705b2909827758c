package calls_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/txonce/txonce/calls"
	"github.com/txonce/txonce/internal/test/system/engines"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/relay"
)

// misbehaving has the functions of a Config. The ID of a call says what they do wrong the first times.
type misbehaving struct {
	engine engines.Engine
	result []byte

	mu   sync.Mutex
	runs map[string]int // of Do and Done, by name and ID
	keys map[string]map[string]bool
}

func (m *misbehaving) ran(what, id, key string) (times int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.keys[id] == nil {
		m.keys[id] = map[string]bool{}
	}
	m.keys[id][key] = true
	m.runs[what+id]++
	return m.runs[what+id]
}

func (m *misbehaving) do(ctx context.Context, c calls.Call) (calls.Result, error) {
	if m.ran("Do of ", c.ID, c.IdempotencyKey) > 1 {
		return m.result, nil
	}
	switch c.ID {
	case "Do panics":
		panic("Do")
	case "Do ends its goroutine":
		runtime.Goexit()
	case "Do fails after its time":
		<-ctx.Done()
		<-time.After(100 * time.Millisecond)
		return nil, ctx.Err()
	case "Do succeeds after its time":
		<-ctx.Done()
		<-time.After(100 * time.Millisecond)
	}
	return m.result, nil
}

func (m *misbehaving) done(ctx context.Context, tx *sql.Tx, c calls.Call, r calls.Result) error {
	if !bytes.Equal(r, m.result) {
		return fmt.Errorf("the result has %d bytes, want %d", len(r), len(m.result))
	}
	insert := func() error {
		_, err := tx.ExecContext(ctx, m.engine.Insert, c.ID, "x")
		return err
	}
	if m.ran("Done of ", c.ID, c.IdempotencyKey) > 2 {
		return insert()
	}
	switch c.ID {
	case "Done fails":
		return errors.New("a constraint")
	case "Done panics":
		panic("Done")
	case "Done ends its goroutine":
		runtime.Goexit()
	case "Done rolls back":
		return tx.Rollback()
	case "Done ignores an error":
		_, _ = tx.ExecContext(ctx, "SELECT nothing FROM nowhere")
	}
	return insert()
}

// Whatever the functions of a Config do wrong, a call keeps its key and is recorded once, with its whole result.
func TestMisbehavingFunctions(t *testing.T) {
	ids := []string{
		"nothing", "Do panics", "Do ends its goroutine", "Do fails after its time", "Do succeeds after its time", "Done fails",
		"Done panics", "Done ends its goroutine", "Done rolls back", "Done ignores an error",
	}
	for _, e := range []engines.Engine{engines.Postgres, engines.MariaDB, engines.MySQL} {
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			db, store, err := settings{Driver: e.Driver, DSN: e.Create(t)}.open()
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			m := &misbehaving{
				engine: e, result: bytes.Repeat([]byte{0, 1, 0xff, 'x'}, 1<<18), runs: map[string]int{},
				keys: map[string]map[string]bool{},
			}
			charges, err := calls.New(calls.Config[*sql.Tx]{
				Name: "charge", Store: store, Do: m.do, Done: m.done, Keeps: time.Hour, Timeout: 300 * time.Millisecond,
			})
			if err != nil {
				t.Fatal(err)
			}
			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, id := range ids {
				if err := charges.Enqueue(t.Context(), tx, calls.Request{ID: id, Payload: []byte("10 EUR")}); err != nil {
					t.Fatal(err)
				}
			}
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
			relayUntil(t, relay.Config{Queue: store, Publishers: map[string]outbox.Publisher{"charge": charges}}, func() bool {
				var recorded, open int
				_ = db.QueryRowContext(t.Context(), `SELECT count(DISTINCT name), (SELECT count(*) FROM txonce_calls) FROM effects`).
					Scan(&recorded, &open) // it tries again
				return recorded == len(ids) && open == 0
			})
			for id, n := range effects(t, db) {
				if n != 1 || len(m.keys[id]) != 1 {
					t.Errorf("%s: recorded %d times, called with %d keys", id, n, len(m.keys[id]))
				}
			}
		})
	}
}

// relayUntil runs a relay until done.
func relayUntil(t *testing.T, cfg relay.Config, done func() bool) {
	t.Helper()
	cfg.PollMax, cfg.Logger = 50*time.Millisecond, slog.New(slog.DiscardHandler)
	cfg.Backoff = func(int) time.Duration { return 50 * time.Millisecond }
	r, err := relay.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	for deadline := time.Now().Add(time.Minute); !done(); <-time.After(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Error("the calls are not settled after a minute")
			break
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
