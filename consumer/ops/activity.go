package ops

import (
	"context"
	"crypto/rand"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/observe"
)

// ActivityKeeper keeps what consumers have done lately, for dashboards. It is never evidence: claims are.
type ActivityKeeper interface {
	// RecordActivity replaces the rows with the same Minute, Consumer and Node. Now and then it deletes rows that are
	// older than ActivityKept.
	RecordActivity(ctx context.Context, rows []Activity) error

	// Activity lists the rows since a time, oldest first.
	Activity(ctx context.Context, since time.Time) ([]Activity, error)
}

// ActivityKept is how long activity is kept.
const ActivityKept = 48 * time.Hour

// Activity is what one process has done for one consumer in one minute, by the process's own clock.
type Activity struct {
	Minute   time.Time // its begin
	Consumer string
	Node     string // the process
	Messages map[observe.Outcome]int64
	Paused   observe.Cause // why the consumer is paused; empty: it is not. Of several causes, the one that began first.
}

// ActivityFresh is how long a process may write nothing before its rows say nothing about its state: it has ended, or
// it does not reach the database.
const ActivityFresh = 2 * time.Minute

// Paused returns why consumers are paused. A consumer that is not paused in any process has no entry. rows are those of
// ActivityKeeper.Activity, and now is the database's clock. Of several processes it takes the cause of any.
func Paused(rows []Activity, now time.Time) map[string]observe.Cause {
	type process struct{ consumer, node string }
	latest := map[process]Activity{}
	for _, row := range rows { // sorted by minute
		latest[process{row.Consumer, row.Node}] = row
	}
	paused := map[string]observe.Cause{}
	for _, row := range latest {
		if row.Paused != "" && now.Truncate(time.Minute).Sub(row.Minute) < ActivityFresh {
			paused[row.Consumer] = row.Paused
		}
	}
	return paused
}

// Recorder counts what the consumers of this process do, and writes it to the database every ten seconds, so that a
// dashboard shows rates without a metrics system. A message costs it a lock and an addition. After a crash, up to ten
// seconds of the rates are missing. It is safe for concurrent use.
type Recorder struct {
	store ActivityKeeper
	node  string

	mu     sync.Mutex
	seen   map[string]*Activity       // by consumer: the minute that goes on
	pauses map[string][]observe.Cause // by consumer: why it is paused, the first cause first
	past   []Activity                 // minutes that have ended and are not written yet
}

const recordEvery = 10 * time.Second

// maxPast limits how many entries are kept while the database is away.
const maxPast = 1000

// NewRecorder returns a Recorder. pgxstore.Store and sqlstore.Store return one with their method Activity.
func NewRecorder(store ActivityKeeper) *Recorder {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	// A container that starts again may have the same name and process ID. Its rows would replace those of its
	// predecessor.
	node := host + "/" + strconv.Itoa(os.Getpid()) + "/" + rand.Text()[:6]
	return &Recorder{store: store, node: node, seen: map[string]*Activity{}, pauses: map[string][]observe.Cause{}}
}

// Trace returns the hooks for consumer.Config.Trace. Join it with your own: r.Trace().Then(own).
func (r *Recorder) Trace() *consumer.Trace {
	return &consumer.Trace{
		Done: func(_ context.Context, d *consumer.Delivery, outcomes []consumer.MessageOutcome) {
			r.change(d.Consumer, func(a *Activity) {
				for _, o := range outcomes {
					a.Messages[o.Outcome]++
				}
			})
		},
		Paused: func(_ context.Context, p observe.Pause) {
			r.change(p.Name, func(a *Activity) { r.paused(a, append(r.pauses[p.Name], p.Cause)) })
		},
		Resumed: func(_ context.Context, p observe.Pause) {
			r.change(p.Name, func(a *Activity) {
				r.paused(a, slices.DeleteFunc(r.pauses[p.Name], func(c observe.Cause) bool { return c == p.Cause }))
			})
		},
	}
}

// paused sets why the consumer of a is paused. r.mu is held.
func (r *Recorder) paused(a *Activity, causes []observe.Cause) {
	r.pauses[a.Consumer], a.Paused = causes, ""
	if len(causes) > 0 {
		a.Paused = causes[0]
	}
}

func (r *Recorder) change(name string, f func(*Activity)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.seen[name]
	if a == nil {
		a = &Activity{
			Consumer: name, Node: r.node, Minute: time.Now().Truncate(time.Minute),
			Messages: map[observe.Outcome]int64{},
		}
		r.seen[name] = a
	}
	r.turn(a)
	f(a)
}

// turn begins a new minute if the one of a has ended. r.mu is held.
func (r *Recorder) turn(a *Activity) {
	minute := time.Now().Truncate(time.Minute)
	if a.Minute.Equal(minute) {
		return
	}
	r.past = append(r.past, *a)
	r.past = r.past[max(0, len(r.past)-maxPast):]
	a.Minute, a.Messages = minute, map[observe.Outcome]int64{}
}

// Run writes until ctx ends, and once more then. It returns nil. A database that is away is logged; counts of that time
// are written later. A consumer is written from its first message or pause on, also when it is idle, so that a
// dashboard can tell idle from dead.
func (r *Recorder) Run(ctx context.Context) error {
	ticker := time.NewTicker(recordEvery)
	defer ticker.Stop()
	failing := false
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordEvery)
			defer cancel()
			_ = r.write(last) // nobody needs the last seconds
			return nil
		}
		err := r.write(ctx)
		if err != nil && !failing {
			slog.WarnContext(ctx, "ops: the activity of consumers is not written; it is only for dashboards",
				"err", err)
		}
		failing = err != nil
	}
}

// write writes the minutes that have ended and those that go on.
func (r *Recorder) write(ctx context.Context) error {
	r.mu.Lock()
	for _, a := range r.seen {
		r.turn(a)
	}
	past := len(r.past)
	rows := slices.Clone(r.past)
	for _, a := range r.seen {
		row := *a
		row.Messages = map[observe.Outcome]int64{}
		for o, n := range a.Messages {
			row.Messages[o] = n
		}
		rows = append(rows, row)
	}
	r.mu.Unlock()
	if len(rows) == 0 {
		return nil
	}
	if err := r.store.RecordActivity(ctx, rows); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.past = r.past[min(past, len(r.past)):]
	return nil
}
