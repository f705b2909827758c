package wire

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/txonce/txonce/internal/test/wireproxy"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
	"github.com/txonce/txonce/outbox/relay"
)

func dollars(n int) string { return fmt.Sprint("$", n) }
func marks(int) string     { return "?" }

func newWorld(t *testing.T, seed uint64, driver, dsn string) *world {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	db.SetMaxIdleConns(16)
	w := &world{seed: seed, direct: db, logger: newLogger(*logged), publish: publisher{at: map[string]int64{}}}
	w.published = w.publish.all
	return w
}

func newLane(name string, r *role, codes []string) *lane {
	most := 3
	if name == single || name == claimLate {
		most = 1
	}
	return &lane{name: name, role: r, codes: codes, most: most, reset: func() {}}
}

// through starts the lane's proxy, and returns a DSN through it.
func (l *lane) through(t *testing.T, dsn string,
	start func(testing.TB, string, wireproxy.Config) (string, *wireproxy.Proxy),
) (through string) {
	t.Helper()
	through, l.proxy = start(t, dsn, wireproxy.Config{Decide: l.decide, Recycle: recycle})
	return through
}

// relay runs a relay until the test ends.
func (w *world) relay(t *testing.T, l *lane, queue driver.Queue, p outbox.Publisher) {
	t.Helper()
	r, err := relay.New(relay.Config{
		Queue: queue, Publisher: publishing{l, p}, Name: l.name, LeaseTTL: leaseTTL, Logger: w.logger, BatchSize: 20,
		Backoff: func(int) time.Duration { return 5 * time.Millisecond }, PollMax: 50 * time.Millisecond,
		ParkLimit: relay.ParkLimit{Unlimited: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.relays = append(w.relays, l)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := r.Run(ctx); err != nil {
			t.Errorf("%s: %v", l.name, err)
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}
