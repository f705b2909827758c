package pgxstore_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/internal/test/testdb"
)

// mutex is a mutex that gives up when ctx ends, so that a deadlock ends with the test.
type mutex chan struct{}

func (m mutex) lock(ctx context.Context) error {
	select {
	case m <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (m mutex) unlock() { <-m }

// A handler that holds a mutex gets its results although the others wait for the mutex.
func TestInterleaveOfHandlersThatShareAMutex(t *testing.T) {
	h := newHandlerTest(t, testdb.Postgres(t), pgxstore.Config{})
	shared := make(mutex, 1)
	if _, err := h.interleave(nil, alike(10, func(ctx context.Context, tx pgx.Tx, i int) error {
		if err := shared.lock(ctx); err != nil {
			return err
		}
		defer shared.unlock()
		return errors.Join(effect(ctx, tx, "one"), effect(ctx, tx, "two"))
	})...); err != nil {
		t.Fatal(err)
	}
	if n := len(h.effects()); n != 20 {
		t.Errorf("%d effects", n)
	}
}

// A handler that has the transaction for itself may wait for a mutex that another one holds, which waits for the
// transaction. Then nothing is committed, no handler is named, and none waits forever.
func TestInterleaveOfHandlersThatWaitForEachOther(t *testing.T) {
	for name, handlers := range map[string]func(m mutex, locked chan struct{}) []interleaveHandler{
		"alone and a statement": func(m mutex, locked chan struct{}) []interleaveHandler {
			turned := make(chan struct{})
			return []interleaveHandler{
				func(ctx context.Context, tx pgx.Tx) error {
					<-locked
					if err := second(tx.Exec(ctx, `LOCK TABLE effects`)); err != nil {
						return err
					}
					close(turned)
					return m.lock(ctx)
				},
				func(ctx context.Context, tx pgx.Tx) error {
					_ = m.lock(ctx)
					defer m.unlock()
					close(locked)
					<-turned
					return effect(ctx, tx, "x")
				},
			}
		},
		"two alone": func(m mutex, locked chan struct{}) []interleaveHandler {
			return []interleaveHandler{
				func(ctx context.Context, tx pgx.Tx) error {
					<-locked
					return m.lock(ctx)
				},
				func(ctx context.Context, tx pgx.Tx) error {
					_ = m.lock(ctx)
					close(locked)
					return second(tx.Exec(ctx, `LOCK TABLE effects`))
				},
			}
		},
		"an argument": func(m mutex, locked chan struct{}) []interleaveHandler {
			return []interleaveHandler{
				func(ctx context.Context, tx pgx.Tx) error {
					_ = m.lock(ctx)
					defer m.unlock()
					close(locked)
					return effect(ctx, tx, "x")
				},
				func(ctx context.Context, tx pgx.Tx) error {
					<-locked
					return second(tx.Exec(ctx, insertEffect, lazy{t, m}))
				},
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHandlerTest(t, testdb.Postgres(t), pgxstore.Config{})
			pgxstore.SetStallsAfter(h.store, 200*time.Millisecond)
			failed, err := h.interleave(nil, handlers(make(mutex, 1), make(chan struct{}))...)
			if failed != -1 || err == nil || !strings.Contains(err.Error(), "nothing happened") {
				t.Errorf("failed = %d: %v", failed, err)
			}
		})
	}
}

// lazy is an argument that needs a mutex.
type lazy struct {
	t *testing.T
	m mutex
}

func (l lazy) Value() (driver.Value, error) {
	select {
	case l.m <- struct{}{}:
		l.m.unlock()
		return "lazy", nil
	case <-time.After(20 * time.Second):
		l.t.Error("the handler that has the mutex still waits after 20 s")
		return nil, errors.New("no mutex")
	}
}

// A handler uses its transaction in two goroutines, which is its fault, and the argument of the first call waits for
// the handler. The first call gets an error too, although its own ctx never ends.
func TestInterleaveOfTwoCallsWhenAnArgumentWaits(t *testing.T) {
	h := newHandlerTest(t, testdb.Postgres(t), pgxstore.Config{})
	pgxstore.SetStallsAfter(h.store, 200*time.Millisecond)
	v := slowValue{make(chan struct{}, 1), make(chan struct{})}
	failed, err := h.interleave(nil, func(_ context.Context, tx pgx.Tx) error {
		defer close(v.given)
		defer func() {
			if v := recover(); v != nil {
				t.Error("panic:", v)
			}
		}()
		own, second := context.Background(), make(chan error, 1)
		go func() {
			<-v.asked
			second <- effect(own, tx, "x")
		}()
		_, first := tx.Exec(own, insertEffect, v)
		if first == nil || <-second == nil {
			t.Error("a call succeeds")
		}
		return nil
	})
	if failed != 0 || err == nil || !strings.Contains(err.Error(), "in two goroutines") {
		t.Errorf("failed = %d: %v", failed, err)
	}
}

// A handler that sends statements until it sees the effect of an earlier handler does not keep that handler waiting.
func TestInterleaveOfAHandlerThatSendsStatementsWithoutEnd(t *testing.T) {
	h := newHandlerTest(t, testdb.Postgres(t), pgxstore.Config{})
	// otherwise the earlier handler gets the transaction when the other one is slow for a moment
	pgxstore.SetLingers(h.store, 20*time.Second)
	started := make(chan struct{})
	if _, err := h.interleave(nil,
		func(ctx context.Context, tx pgx.Tx) error {
			<-started
			return errors.Join(second(tx.Exec(ctx, `LOCK TABLE effects`)), effect(ctx, tx, "x"))
		},
		func(ctx context.Context, tx pgx.Tx) error {
			close(started)
			for range 1000 {
				var seen bool
				if err := tx.QueryRow(ctx, `SELECT count(*) > 0 FROM effects`).Scan(&seen); err != nil || seen {
					return err
				}
			}
			return errors.New("the earlier handler still waits for the transaction after 1000 statements")
		},
	); err != nil {
		t.Fatal(err)
	}
}

// A handler that takes long keeps nobody waiting, and is waited for.
func TestInterleaveOfASlowHandler(t *testing.T) {
	h := newHandlerTest(t, testdb.Postgres(t), pgxstore.Config{})
	pgxstore.SetStallsAfter(h.store, 400*time.Millisecond)
	done := make(chan struct{})
	if _, err := h.interleave(nil,
		func(ctx context.Context, tx pgx.Tx) error {
			<-done
			// it is alone, and the database takes long
			return second(tx.Exec(ctx, `SELECT pg_sleep(1) FROM (SELECT 1) AS x FOR UPDATE`))
		},
		func(ctx context.Context, tx pgx.Tx) error { defer close(done); return effect(ctx, tx, "x") },
		func(ctx context.Context, tx pgx.Tx) error {
			<-done
			<-time.After(100 * time.Millisecond)
			return effect(ctx, tx, "x")
		},
	); err != nil {
		t.Fatal(err)
	}
}

// A goroutine that a handler leaves behind gets an error, and never another handler's transaction.
func TestInterleaveOfAHandlerThatLeavesAGoroutine(t *testing.T) {
	for name, use := range map[string]func(ctx context.Context, tx pgx.Tx) error{
		"Exec":     func(ctx context.Context, tx pgx.Tx) error { return effect(ctx, tx, "late") },
		"QueryRow": func(ctx context.Context, tx pgx.Tx) error { return tx.QueryRow(ctx, `SELECT 1`).Scan(new(int)) },
		"Begin":    func(ctx context.Context, tx pgx.Tx) error { return second(tx.Begin(ctx)) },
		"CopyFrom": func(ctx context.Context, tx pgx.Tx) error {
			return second(tx.CopyFrom(ctx, pgx.Identifier{"effects"}, []string{"name"},
				pgx.CopyFromRows([][]any{{"late"}})))
		},
		"a nested transaction": nil,
	} {
		for _, alone := range []bool{false, true} {
			t.Run(map[bool]string{false: name, true: name + " after being alone"}[alone], func(t *testing.T) {
				t.Parallel()
				h := newHandlerTest(t, testdb.Postgres(t), pgxstore.Config{})
				var left pgx.Tx
				late, returned := make(chan error, 1), make(chan struct{})
				if _, err := h.interleave(nil,
					func(ctx context.Context, tx pgx.Tx) (err error) {
						defer close(returned)
						left = tx
						if use == nil {
							left, err = tx.Begin(ctx)
							return err
						}
						if alone {
							return second(tx.Exec(ctx, `LOCK TABLE effects`))
						}
						return nil
					},
					func(ctx context.Context, tx pgx.Tx) error {
						<-returned
						if err := effect(ctx, tx, "x"); err != nil { // an answer comes after the first handler's end
							return err
						}
						go func() {
							if use == nil {
								late <- effect(context.Background(), left, "late")
							} else {
								late <- use(context.Background(), left)
							}
						}()
						if err := <-late; err == nil || !strings.Contains(err.Error(), "has returned") {
							t.Errorf("used after the handler returned: %v", err)
						}
						return effect(ctx, tx, "x")
					},
				); err != nil {
					t.Fatal(err)
				}
				if n := len(h.effects()); n != 2 {
					t.Errorf("%d effects", n)
				}
			})
		}
	}
}

// The goroutine that asks for the connection after its handler has returned ends: the connection is in use by others.
func TestNobodyGetsTheConnectionLater(t *testing.T) {
	h := newHandlerTest(t, testdb.Postgres(t), pgxstore.Config{})
	for name, handle := range map[string]func(do func(ctx context.Context, tx pgx.Tx) error) error{
		"InTx":       func(do func(ctx context.Context, tx pgx.Tx) error) error { return h.handle("k", do) },
		"Interleave": func(do func(ctx context.Context, tx pgx.Tx) error) error { return second(h.interleave(nil, do)) },
	} {
		var left pgx.Tx
		var rows pgx.Rows
		err := handle(func(ctx context.Context, tx pgx.Tx) (err error) {
			left = tx
			rows, err = tx.Query(ctx, `SELECT 1`) //nolint:sqlclosecheck // closed in the next lines
			if err == nil {
				rows.Close()
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		for asks, use := range map[string]func(){
			"Conn":         func() { left.Conn() },
			"LargeObjects": func() { left.LargeObjects() },
		} {
			if returns(use) {
				t.Errorf("%s: %s returns after the handler has returned", name, asks)
			}
		}
		if rows.Conn() != nil {
			t.Errorf("%s: rows give the connection after the handler has returned", name)
		}
	}
}

// returns calls f on a goroutine of its own, and reports whether f returns or panics. Otherwise it ends its goroutine.
func returns(f func()) (yes bool) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer func() { yes = recover() != nil || yes }()
		f()
		yes = true
	}()
	<-ended
	return yes
}

// A statement whose ctx has ended before is not sent, and changes nothing else, as without Interleave.
func TestInterleaveOfAnEndedContext(t *testing.T) {
	h := newHandlerTest(t, testdb.Postgres(t), pgxstore.Config{})
	if _, err := h.interleave(nil, alike(3, func(ctx context.Context, tx pgx.Tx, _ int) error {
		ended, cancel := context.WithCancel(ctx)
		cancel()
		if err := effect(ended, tx, "not sent"); !errors.Is(err, context.Canceled) {
			t.Errorf("err = %v", err)
		}
		return effect(ctx, tx, "x")
	})...); err != nil {
		t.Fatal(err)
	}
	if n := len(h.effects()); n != 3 {
		t.Errorf("%d effects", n)
	}
}
