package verdicts_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/faults"
	"github.com/txonce/txonce/outbox"
	outboxdriver "github.com/txonce/txonce/outbox/driver"
	"github.com/txonce/txonce/outbox/relay"
)

// publisher counts publications, and refuses each message the first time if refuses is set.
type publisher struct {
	mu      sync.Mutex
	refuses bool
	times   map[string]int
}

func (p *publisher) Publish(_ context.Context, msgs []outbox.Message) []error {
	p.mu.Lock()
	defer p.mu.Unlock()
	errs := make([]error, len(msgs))
	for i, m := range msgs {
		p.times[m.OrderingKey]++
		if p.refuses && p.times[m.OrderingKey] == 1 {
			errs[i] = errors.New("refused once")
		}
	}
	return errs
}

func (p *publisher) published(key string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.times[key]
}

// upkeep are the operations of a relay, with a statement of each.
var upkeep = []struct {
	operation    faults.Operation
	table, event string
	refuses      bool
}{
	{faults.Lease, "txonce_shards", "UPDATE", false},
	{faults.Settle, "outbox_messages", "DELETE", false},
	{faults.Defer, "outbox_messages", "UPDATE", true},
}

// TestWalkRelays raises each code in the statements of a relay. The relay pauses, loses nothing, and goes on by itself.
// A message that is refused is set aside.
func TestWalkRelays(t *testing.T) {
	for name, open := range walkedDatabases() {
		for _, u := range upkeep {
			t.Run(name+"/"+string(u.operation), func(t *testing.T) {
				t.Parallel()
				d := open(t)
				var store any
				w := d.start(t, func(ctx context.Context, _ exec,
					m *consumer.Message,
				) error {
					return enqueue(ctx, m.ID)
				}, settings{store: &store})
				d.each(t, func(t *testing.T, c faults.Class, code string) {
					if reason := d.noTrigger(c); reason != "" {
						t.Logf("%s: %q: %s", d.name, c, reason)
						return
					}
					if code != d.codes[c][0] {
						return // the classes of codes are walked in the handlers, and a relay takes its time
					}
					what := fmt.Sprintf("%s, %s %s", u.operation, c, code)
					want := faults.Pause
					if c == driver.FaultData && u.operation != faults.Lease {
						want = faults.SetAside
					}
					if do := d.kind.After(c, u.operation).Do; do != want {
						t.Errorf("%s: the table says %s", what, do)
					}
					if err := w.ProcessBatch(t.Context(), []*consumer.Message{message(what)})[0]; err != nil {
						t.Fatal(err)
					}
					create, drop := d.refuse(u.table, u.event, code)
					mustExec(t, d.admin, create...)
					p := &publisher{refuses: u.refuses, times: map[string]int{}}
					r, err := relay.New(relay.Config{
						Queue: store.(outboxdriver.Queue), Publisher: p, LeaseTTL: time.Second,
						Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
					})
					if err != nil {
						t.Fatal(err)
					}
					ctx, cancel := context.WithCancel(t.Context())
					ended := make(chan error, 1)
					go func() { ended <- r.Run(ctx) }()
					select {
					case err := <-ended:
						if u.operation == faults.Lease && slices.Contains(undefined, code) &&
							errors.Is(err, outboxdriver.ErrSchema) {
							// at the start of Run
							cancel()
							mustExec(t, d.admin, append(drop, `DELETE FROM outbox_messages`)...)
							return
						}
						t.Fatalf("%s: Run has returned %v", what, err)
					case <-time.After(300 * time.Millisecond):
					}
					if want == faults.SetAside {
						d.wantSetAside(t, what, p)
						cancel()
						if err := <-ended; err != nil {
							t.Errorf("%s: Run = %v", what, err)
						}
						mustExec(t, d.admin, append(drop, `DELETE FROM outbox_messages`, `DELETE FROM outbox_parked`,
							`DELETE FROM outbox_held`)...)
						return
					}
					if u.operation == faults.Lease && p.published(what) > 0 {
						t.Errorf("%s: published without a lease", what)
					}
					if n := d.count(t, `outbox_messages`); n != 1 {
						t.Errorf("%s: %d messages in the outbox, want 1", what, n)
					}
					mustExec(t, d.admin, drop...)
					deadline := time.After(20 * time.Second)
					for tick := time.NewTicker(20 * time.Millisecond); d.count(t, `outbox_messages`) > 0; {
						select {
						case <-tick.C:
							continue
						case <-deadline:
							t.Fatalf("%s: not settled, published %d times", what, p.published(what))
						}
					}
					cancel()
					if err := <-ended; err != nil {
						t.Errorf("%s: Run = %v", what, err)
					}
					if p.published(what) == 0 || d.count(t, `outbox_parked`) > 0 {
						t.Errorf("%s: published %d times, %d parked", what, p.published(what),
							d.count(t, `outbox_parked`))
					}
				})
			})
		}
	}
}

// wantSetAside waits until the only message is parked, or waits for another try. It must not be published again.
func (d *walked) wantSetAside(t *testing.T, what string, p *publisher) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for tick := time.NewTicker(20 * time.Millisecond); d.count(t, `outbox_parked`) == 0 &&
		d.count(t, `outbox_held`) == 0; {
		select {
		case <-tick.C:
			continue
		case <-deadline:
			t.Fatalf("%s: not set aside, published %d times", what, p.published(what))
		}
	}
	if n := p.published(what); n != 1 {
		t.Errorf("%s: published %d times, want once", what, n)
	}
}

func (d *database) count(t *testing.T, table string) (n int) {
	t.Helper()
	if err := d.admin.QueryRowContext(t.Context(), `SELECT count(*) FROM `+table).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestWalkSweepsAndStarts raises each code in a sweep, which fails and goes on later, and in Start, which returns what
// only a person can mend, and otherwise tries again.
func TestWalkSweepsAndStarts(t *testing.T) {
	for name, open := range walkedDatabases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t)
			start := func(store *any) worker {
				return d.start(t, func(context.Context, exec, *consumer.Message) error { return nil },
					settings{store: store, backoff: func(int) time.Duration { return time.Millisecond }})
			}
			var store any
			start(&store)
			sweep := dedup.Sweep{Owner: "walk", Lease: time.Minute, Limit: 10}
			d.each(t, func(t *testing.T, c faults.Class, code string) {
				if reason := d.noTrigger(c); reason != "" {
					t.Logf("%s: %q: %s", d.name, c, reason)
					return
				}
				create, drop := d.refuse("txonce_sweep", "UPDATE", code)
				mustExec(t, d.admin, create...)
				if _, err := store.(dedup.Purger).Purge(t.Context(), sweep); err == nil {
					t.Errorf("sweep, %s %s: no error", c, code)
				}
				mustExec(t, d.admin, drop...)
				if _, err := store.(dedup.Purger).Purge(t.Context(), sweep); err != nil {
					t.Errorf("sweep, %s %s, afterwards: %v", c, code, err)
				}

				mustExec(t, d.admin, `DELETE FROM txonce_windows`)
				create, drop = d.refuse("txonce_windows", "INSERT", code)
				mustExec(t, d.admin, create...)
				w := start(nil)
				ended := make(chan error, 1)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				go func() { ended <- w.Start(ctx) }()
				want := d.kind.After(c, faults.Register).Do
				window := 300 * time.Millisecond
				if want == faults.Refuse {
					window = 30 * time.Second
				}
				refused, err := false, error(nil)
				select {
				case err = <-ended:
					refused = true
				case <-time.After(window):
				}
				if refused != (want == faults.Refuse) || refused && err == nil {
					t.Errorf("start, %s %s: returned %v: %v; want %s", c, code, refused, err, want)
				}
				mustExec(t, d.admin, drop...)
				if refused {
					return
				}
				if err := <-ended; err != nil {
					t.Errorf("start, %s %s, afterwards: %v", c, code, err)
				}
			})
		})
	}
}
