package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
)

// A worker that starts while its database is away, as in a rolling restart, waits for it.
func TestStartWaitsOutAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, log := consumertest.NewStore(), &logs{}
		store.Database().Stop()
		time.AfterFunc(10*time.Minute, store.Database().Start)
		c := newConsumer(t, config{Store: store, Logger: log.logger()})
		began := time.Now()
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(began); waited < 10*time.Minute || waited > 10*time.Minute+10*time.Second {
			t.Errorf("started after %v; the database was away for 10 minutes", waited)
		}
		if log.lines("does not start yet") != 1 || log.lines("goes on: the database answers") != 1 ||
			log.lines("consumer starts") != 1 {
			t.Errorf("want a line when it begins, when it is over, and the usual one; got:\n%s", log.buf.String())
		}
		process(t, c, msg("1", ""))
		wantCount(t, store.Database(), "1", 1)
	})
}

// A fault is logged again if it is a different one, but not if only a port differs.
func TestStartSaysWhenTheFaultChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, calls := &logs{}, 0
		store := &faulty{Store: consumertest.NewStore()}
		c := newConsumer(t, config{Store: &registrarOf{faulty: store, fail: func() error {
			switch calls++; {
			case calls <= 20:
				return fmt.Errorf("127.0.0.1:%d: connection refused: %w", 40_000+calls, errFault)
			case calls <= 30:
				return fmt.Errorf("the database system is starting up: %w", errFault)
			}
			return nil
		}}, Logger: log.logger()})
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if calls != 31 || log.lines("does not start yet") != 2 || log.lines("starting up") != 1 {
			t.Errorf("%d attempts; want one line for each of two faults; got:\n%s", calls, log.buf.String())
		}
	})
}

// registrarOf is a faulty store whose Register fails with an error of the test.
type registrarOf struct {
	*faulty
	fail func() error
}

func (r *registrarOf) Register(ctx context.Context, name string, window time.Duration) error {
	if err := r.fail(); err != nil {
		return err
	}
	return r.faulty.Register(ctx, name, window)
}

func TestStartDoesNotWaitForAPerson(t *testing.T) {
	retryable := func(err error) error { return fmt.Errorf("%w: %w", errFault, err) } // as stores call a missing table
	for _, final := range []error{
		retryable(dedup.ErrSchema), retryable(dedup.ErrAccess), dedup.ErrNotDurable, dedup.ErrNameTaken,
		retryable(fmt.Errorf("%w: by another Consumer", dedup.ErrNameTaken)),
		errors.New("this driver is of no use"),
	} {
		t.Run(final.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newConsumer(t, config{Store: &registrarOf{faulty: &faulty{Store: consumertest.NewStore()}, fail: func() error { return final }}})
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				began := time.Now()
				if err := c.Start(ctx); !errors.Is(err, final) || time.Since(began) != 0 {
					t.Errorf("Start = %v after %v, want %v at once", err, time.Since(began), final)
				}
			})
		})
	}
}

// A database that never answers is logged, and Start returns when its context ends.
func TestStartOnASilentDatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &logs{}
		store := &silent{Store: consumertest.NewStore(), calls: 3}
		c := newConsumer(t, config{Store: store, Logger: log.logger()})
		if err := c.Start(t.Context()); err != nil || log.lines("does not start yet") != 1 {
			t.Errorf("Start = %v; want it to go on. Log:\n%s", err, log.buf.String())
		}
	})
	synctest.Test(t, func(t *testing.T) {
		c := newConsumer(t, config{Store: &silent{Store: consumertest.NewStore(), calls: 1000}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		if err := c.Start(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Minute {
			t.Errorf("Start = %v after %v; want it to end with its context", err, time.Since(began))
		}
	})
}

// silent is a store that does not answer the first registrations.
type silent struct {
	*consumertest.Store
	calls int
}

func (s *silent) Register(ctx context.Context, name string, window time.Duration) error {
	if s.calls--; s.calls >= 0 {
		<-ctx.Done()
		return ctx.Err()
	}
	return s.Store.Register(ctx, name, window)
}

var _ dedup.Store[*deduptest.Tx] = (*registrarOf)(nil)

// A first message that meets a start that is refused pauses the consumer. The log says what is wrong: the database does
// not fail.
func TestAPauseNamesItsCause(t *testing.T) {
	for _, refused := range []error{dedup.ErrNameTaken, dedup.ErrSchema, dedup.ErrAccess, dedup.ErrNotDurable} {
		t.Run(refused.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := &logs{}
				store := &registrarOf{
					faulty: &faulty{Store: consumertest.NewStore()},
					fail:   func() error { return refused },
				}
				c := newConsumer(t, config{Store: store, Logger: log.logger()})
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
				defer cancel()
				if err := c.Process(ctx, msg("1", "x")); !errors.Is(err, refused) {
					t.Errorf("Process = %v", err)
				}
				if log.lines("consumer paused") != 1 || log.lines("still paused") == 0 ||
					log.lines("the database fails") != 0 {
					t.Errorf("want the cause, and not that the database fails:\n%s", log.buf.String())
				}
			})
		})
	}
}
