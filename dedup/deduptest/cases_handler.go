package deduptest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/await"
)

// handlerCases are about what a handler may do to its transaction.
func handlerCases[TTx any]() []testCase[TTx] {
	return []testCase[TTx]{
		{name: "rollback un-claims", run: rollback[TTx]},
		{name: "panic rolls back", run: panics[TTx]},
		{name: "runtime.Goexit rolls back", run: goexits[TTx]},
		{name: "cancelled ctx rolls back", perIsolation: true, run: cancelled[TTx]},
		{name: "a handler that ends or loses its transaction leaves no effect without its claim", run: misuse[TTx]},
		{name: "the handler's lock wait is the session's", perIsolation: true, run: lockWait[TTx]},
		{
			name: "the handler waits for locks longer than a claim does", perIsolation: true,
			run: lockOutlivesClaimWait[TTx],
		},
	}
}

func rollback[TTx any](t *testing.T, e *env[TTx]) {
	s, ctx := e.node(t), bounded(t)
	want := errors.New("handler failed")
	err := s.InTx(ctx, []dedup.Record{record("k")}, func(tx TTx, _ []dedup.Claim) error {
		return errors.Join(e.Effect(ctx, tx, "lost"), want)
	})
	if !errors.Is(err, want) {
		t.Fatalf("InTx returned %v, want the handler's error in it", err)
	}
	if s.Retryable(err) {
		t.Error("the handler's own error is retryable")
	}
	e.wantEffects(t)
	e.must(t, s, record("k"), dedup.First)
	e.wantEffects(t, "k")
}

func panics[TTx any](t *testing.T, e *env[TTx]) {
	s, ctx := e.node(t), bounded(t)
	func() {
		defer func() {
			if v := recover(); v != "boom" {
				t.Errorf("recovered %v, want the handler's own panic", v)
			}
		}()
		_ = s.InTx(ctx, []dedup.Record{record("k")}, func(tx TTx, _ []dedup.Claim) error {
			if err := e.Effect(ctx, tx, "lost"); err != nil {
				t.Error(err)
			}
			panic("boom")
		})
	}()
	e.wantEffects(t)
	e.must(t, s, record("k"), dedup.First)
	e.wantEffects(t, "k")
}

func goexits[TTx any](t *testing.T, e *env[TTx]) {
	s, ctx := e.node(t), bounded(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.InTx(ctx, []dedup.Record{record("k")}, func(tx TTx, _ []dedup.Claim) error {
			if err := e.Effect(ctx, tx, "lost"); err != nil {
				t.Error(err)
			}
			runtime.Goexit() // as t.FailNow does
			return nil
		})
	}()
	<-done
	e.wantEffects(t)
	e.must(t, s, record("k"), dedup.First)
	e.wantEffects(t, "k")
}

func cancelled[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	points := []string{"before InTx", "as fn begins", "after an effect", "at any moment"}
	for i, point := range points {
		r := record(fmt.Sprintf("cancelled %d", i))
		ctx, cancel := context.WithCancel(t.Context())
		if point == "before InTx" {
			cancel()
		}
		err := s.InTx(ctx, []dedup.Record{r}, func(tx TTx, claims []dedup.Claim) error {
			switch point {
			case "as fn begins":
				cancel()
				_ = e.Effect(ctx, tx, r.Key.ID) // this handler ignores the error of the ended ctx
				return nil
			case "after an effect":
				err := e.Effect(ctx, tx, r.Key.ID)
				cancel()
				return err
			case "at any moment":
				time.AfterFunc(time.Millisecond, cancel)
				for range 200 {
					if e.Effect(ctx, tx, "many") != nil {
						break
					}
				}
				<-ctx.Done()
			}
			return nil
		})
		cancel()
		if err == nil {
			t.Errorf("cancelled %s: InTx returned nil", point)
		}
		e.wantEffects(t)
		if v := verdict(t, s, r).Verdict; v != dedup.First {
			t.Errorf("cancelled %s: claimed again: %v, want first", point, v)
		}
	}
	t.Run("while the claim waits", func(t *testing.T) { cancelledWhileWaiting(t, e) })
	t.Run("at random moments", func(t *testing.T) { cancelledAtRandom(t, e) })
}

func cancelledWhileWaiting[TTx any](t *testing.T, e *env[TTx]) {
	holder, waiter := e.node(t), e.node(t)
	r := record("held")
	release := e.hold(t, holder, r)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	err := waiter.InTx(ctx, []dedup.Record{r}, func(TTx, []dedup.Claim) error {
		t.Error("fn ran while another transaction held the key")
		return nil
	})
	if err == nil {
		t.Error("InTx returned nil")
	}
	if took := time.Since(began); took >= patience { // as it would if ctx did not end
		t.Errorf("a cancelled claim went on waiting for %v", took)
	}
	if err := release(nil); err != nil {
		t.Fatal(err)
	}
	e.settled(t, waiter, r)
}

// cancelledAtRandom cancels messages at random times, also during COMMIT.
func cancelledAtRandom[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	cut := 0
	began := time.Now()
	e.must(t, s, record("to measure"), dedup.First)
	whole := max(time.Since(began), time.Millisecond)
	for i := range 40 {
		r := record(fmt.Sprintf("random %d", i))
		ctx, cancel := context.WithTimeout(t.Context(), whole*time.Duration(i)/30)
		_, err := e.handle(ctx, s, r)
		cancel()
		if err != nil {
			cut++
		}
		if done := e.settled(t, s, r); !done && err == nil {
			t.Errorf("%v: InTx returned nil, and nothing is there", r.Key)
		}
	}
	if cut == 0 {
		t.Error("no call was cut short: this case tried nothing")
	}
}

func misuse[TTx any](t *testing.T, e *env[TTx]) {
	hook(t, "Misuse", len(e.Misuse) == 0)
	for i, m := range e.Misuse {
		t.Run(m.Name, func(t *testing.T) {
			e := e
			if i > 0 {
				e = e.fresh(t)
			}
			m := e.Misuse[i] // of the new database
			s, ctx := e.node(t), bounded(t)
			r := record("k")
			kept := map[string]bool{} // effects whose write returned nil
			err := s.InTx(ctx, []dedup.Record{r}, func(tx TTx, _ []dedup.Claim) error {
				kept["before"] = e.Effect(ctx, tx, "before") == nil
				_ = m.Do(ctx, tx)
				kept["after"] = e.Effect(ctx, tx, "after") == nil
				return nil
			})
			before, after := e.count(t, "before"), e.count(t, "after")
			claimed := verdict(t, s, r).Verdict == dedup.Duplicate
			t.Logf("error %v; claimed %v; effects before %d, after %d", err, claimed, before, after)
			switch reported := m.Reported != "" && errors.Is(err, dedup.ErrTxEnded); {
			case !claimed && after > 0 && before == 0 && reported:
				t.Logf("the effect after it is committed without a claim: %s", m.Reported)
			case !claimed && before+after > 0:
				t.Errorf("effects stand without a claim: before %d, after %d (reported: %v)", before, after, err)
			}
			if err == nil && (!claimed || (before == 1) != kept["before"] || (after == 1) != kept["after"]) {
				t.Errorf("InTx returned nil: claimed %v, effects before %d, after %d, written without error %v",
					claimed, before, after, kept)
			}
			if m.Ends && !errors.Is(err, dedup.ErrTxEnded) {
				t.Errorf("InTx returned %v, want ErrTxEnded", err)
			}
			if errors.Is(err, dedup.ErrTxEnded) && s.Retryable(err) {
				t.Error("ErrTxEnded is retryable")
			}
			if errors.Is(err, dedup.ErrRolledBack) && (claimed || before+after > 0 ||
				!errors.Is(err, dedup.ErrTxEnded)) {
				t.Errorf("claimed %v, effects before %d, after %d, though the error says that nothing was committed: %v", claimed, before, after, err)
			}

			// The connection, which the next message gets, must show no trace of it.
			for range 3 {
				e.must(t, s, record("next"+fmt.Sprint(time.Now().UnixNano())), dedup.First)
			}
			e.must(t, s, r, map[bool]dedup.Verdict{true: dedup.Duplicate, false: dedup.First}[claimed])
			e.must(t, s, r, dedup.Duplicate)
		})
	}
}

func lockWait[TTx any](t *testing.T, e *env[TTx]) {
	hook(t, "LockWait", e.LockWait == nil)
	ctx := bounded(t)
	var want string
	err := e.Tx(ctx, e.options(), func(tx TTx) (err error) {
		want, err = e.LockWait(ctx, tx)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	o := e.options()
	o.Wait = 123 * time.Millisecond
	s := e.Open(t, o)
	check := func(what string, tx TTx) {
		t.Helper()
		if got, err := e.LockWait(ctx, tx); err != nil || got != want {
			t.Errorf("lock wait %s: %q, want %q (error %v)", what, got, want, err)
		}
	}
	for _, recs := range [][]dedup.Record{
		{record("a")}, {record("a")}, {record("b")}, {record("c"), record("d")}, {record("a"), record("e")}, nil,
	} {
		err = retry(ctx, s, func() error { // such a short wait may end before the claim on a busy machine
			return s.InTx(ctx, recs, func(tx TTx, _ []dedup.Claim) error {
				check("in fn of InTx", tx)
				return nil
			})
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, recs := range [][]dedup.Record{{record("own")}, {record("x"), record("y")}, {record("a"), record("z")}} {
		err = retry(ctx, s, func() error {
			return e.Tx(ctx, e.options(), func(tx TTx) error {
				if _, err := s.Claim(ctx, tx, recs); err != nil {
					return err
				}
				check("after Claim", tx)
				return nil
			})
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func lockOutlivesClaimWait[TTx any](t *testing.T, e *env[TTx]) {
	hook(t, "Lock", e.Lock == nil)
	o := e.options()
	o.Wait = 100 * time.Millisecond
	s, ctx := e.Open(t, o), bounded(t)
	locked, asks, freed := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		freed <- e.Tx(ctx, Options{}, func(tx TTx) error {
			defer close(locked)
			if err := e.Lock(ctx, tx, "row"); err != nil {
				return err
			}
			locked <- struct{}{}
			select {
			case <-asks:
			case <-ctx.Done():
			}
			_ = await.Sleep(ctx, 6*o.Wait)
			return errUndo
		})
	}()
	<-locked
	var began time.Time
	err := retry(ctx, s, func() error {
		err := s.InTx(ctx, []dedup.Record{record("k")}, func(tx TTx, _ []dedup.Claim) error {
			began = time.Now()
			close(asks)
			return e.Lock(ctx, tx, "row")
		})
		if err != nil && !began.IsZero() { // an error of the handler must not be tried again
			return fmt.Errorf("%v", err) //nolint:errorlint // as text, so that it is not Retryable
		}
		return err
	})
	if err != nil {
		t.Errorf("a handler that waits %v for a row, with claims bounded to %v: %v", 6*o.Wait, o.Wait, err)
	}
	if took := time.Since(began); took < 3*o.Wait {
		t.Errorf("the handler got the lock after %v, so it did not wait for the holder", took)
	}
	if err := <-freed; !errors.Is(err, errUndo) {
		t.Fatal(err)
	}
}
