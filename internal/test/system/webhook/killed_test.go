package webhook_test

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/test/child"
	"github.com/txonce/txonce/internal/test/leaktest"
	"github.com/txonce/txonce/internal/test/matrix"
	"github.com/txonce/txonce/internal/test/system/engines"
	"github.com/txonce/txonce/observe"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
	"github.com/txonce/txonce/outbox/relay"
)

var stormEvents = flag.Int("webhook.events", 10, "events of TestRedeliveryStormOfKilledProcesses; the full run has 1000")

func TestMain(m *testing.M) {
	_ = mysql.SetLogger(new(mysql.NopLogger)) // it would log the connections of killed processes
	child.Main(serveChild)
	leaktest.Main(m)
}

// The modes of a child.
const (
	inline = "inline"
	stored = "stored and forwarded" // by a relay and a Worker in the same process
)

// serveChild returns a Receiver. args are an engine, a mode, a DSN, and a number n: one in n events kills the process
// around its COMMIT.
func serveChild(ctx context.Context, args []string) (http.Handler, error) {
	engine, mode, dsn := args[0], args[1], args[2]
	n, err := strconv.Atoi(args[3])
	if err != nil {
		return nil, err
	}
	switch engine {
	case engines.Postgres.Name:
		pool, err := pgxpool.New(ctx, dsn)
		if err != nil {
			return nil, err
		}
		store, err := pgxstore.New(pgxstore.Config{Pool: pool, ClaimTimeout: 2 * time.Minute, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			return nil, err
		}
		return mortal(ctx, store, mode, n, func(ctx context.Context, tx pgx.Tx, args ...any) error {
			_, err := tx.Exec(ctx, engines.Postgres.Insert, args...)
			return err
		})
	case engines.MariaDB.Name, engines.MySQL.Name:
		return mortalSQL(ctx, engines.MariaDB, sqlstore.MySQL, mode, dsn, n)
	default:
		return mortalSQL(ctx, engines.SQLite, sqlstore.SQLite, mode, dsn, n)
	}
}

func mortalSQL(ctx context.Context, e engines.Engine, dialect sqlstore.Dialect, mode, dsn string,
	n int,
) (http.Handler, error) {
	db, err := sql.Open(e.Driver, dsn)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(10)
	db.SetMaxIdleConns(10) // a new connection costs the server more than most statements do
	store, err := sqlstore.New(sqlstore.Config{DB: db, Dialect: dialect, ClaimTimeout: 2 * time.Minute})
	if err != nil {
		return nil, err
	}
	return mortal(ctx, store, mode, n, func(ctx context.Context, tx *sql.Tx, args ...any) error {
		_, err := tx.ExecContext(ctx, e.Insert, args...)
		return err
	})
}

// mortal returns a Receiver in a process that kills itself. insert writes an effect.
func mortal[TTx any](ctx context.Context, store interface {
	dedup.Store[TTx]
	outbox.Writer[TTx]
	driver.Queue
}, mode string, n int, insert func(ctx context.Context, tx TTx, args ...any) error,
) (http.Handler, error) {
	s, logger := newShop(), slog.New(slog.DiscardHandler)
	death := &consumer.Trace{
		Claimed: func(context.Context, *consumer.Delivery, []*consumer.Message) {
			// the handler's statement and COMMIT take a few milliseconds
			if rand.IntN(n) == 0 {
				time.AfterFunc(rand.N(5*time.Millisecond), child.KillMyself)
			}
		},
		Done: func(_ context.Context, _ *consumer.Delivery, outcomes []consumer.MessageOutcome) {
			// committed, and the sender has no answer yet
			if outcomes[0].Outcome == observe.Processed && rand.IntN(n) == 0 {
				child.KillMyself()
			}
		},
	}
	c, err := consumer.New(consumer.Config[TTx]{
		Name: "billing", Store: store, Key: consumer.MessageID, Logger: logger, Trace: death,
		Handle: func(ctx context.Context, tx TTx, m *consumer.Message) error {
			return insert(ctx, tx, m.ID, strconv.Itoa(os.Getpid()))
		},
	})
	if err != nil || mode == inline {
		r, newErr := webhook.New(webhook.Config{Verifier: s, Processor: c, Logger: logger})
		return r, errors.Join(err, newErr)
	}
	s.source.GiveUpAfter = 0
	in, err := webhook.NewInbox(webhook.InboxConfig[TTx]{Name: "billing", Store: store, Logger: logger, Trace: death})
	if err != nil {
		return nil, err
	}
	worker, err := webhook.NewWorker(webhook.WorkerConfig{Processor: c, MaxBatch: 3})
	if err != nil {
		return nil, err
	}
	rl, err := relay.New(relay.Config{
		Queue: store, Publishers: map[string]outbox.Publisher{in.Topic(): worker},
		LeaseTTL: time.Second, Logger: logger,
	})
	if err != nil {
		return nil, err
	}
	go func() {
		err := rl.Run(ctx)
		fmt.Fprintln(os.Stderr, "the relay ended:", err) // go test shows it
		os.Exit(1)
	}()
	return webhook.New(webhook.Config{Verifier: s, Processor: in, Logger: logger})
}

// Each event arrives 20 times, out of order, from 16 clients that sometimes hang up, at processes that are killed
// around COMMIT and started again. Each 2xx is for something that is committed at that moment. At the end each event is
// delivered until it is accepted, and has one effect.
func TestRedeliveryStormOfKilledProcesses(t *testing.T) {
	for _, e := range []engines.Engine{engines.Postgres, engines.MariaDB, engines.MySQL, engines.SQLite} {
		for _, mode := range []string{inline, stored} {
			if !matrix.RunsOn(e.Name, mode) {
				continue
			}
			t.Run(e.Name+", "+mode, func(t *testing.T) {
				if testing.Short() {
					t.Skip("needs servers, or writes to disk")
				}
				t.Parallel()
				dsn := e.Create(t)
				db, err := sql.Open(e.Driver, dsn)
				if err != nil {
					t.Fatal(err)
				}
				defer db.Close()
				a := &attack{t: t, db: db, shop: newShop(), created: time.Now()}
				a.accepted = `SELECT count(*) FROM effects WHERE name = '%d'`
				claims := []string{"billing"}
				if mode == stored {
					a.accepted = `SELECT count(*) FROM processed_messages WHERE consumer = 'billing/inbox' AND id = '%d'`
					claims = append(claims, "billing/inbox")
				}
				a.children = child.StartGroup(t, 2, func(nth int) []string {
					const often, always = "8", "1"
					if nth < 2 {
						return []string{e.Name, mode, dsn, always}
					}
					return []string{e.Name, mode, dsn, often}
				})
				defer a.children.Stop()
				a.storm(*stormEvents)
				if mode == stored {
					a.untilHandled(*stormEvents)
				}
				deaths := a.children.Stop()
				a.audit(*stormEvents, claims)
				t.Logf("%d events, %d deliveries: %d accepted, %d sent away, %d without a response; %d processes died",
					*stormEvents, a.ok.Load()+a.later.Load()+a.cut.Load(), a.ok.Load(), a.later.Load(),
					a.cut.Load(), deaths)
				if deaths < 2 || a.cut.Load() == 0 {
					t.Error("too few processes died, so this test has shown nothing")
				}
			})
		}
	}
}

// attack is one storm.
type attack struct {
	t        *testing.T
	children *child.Group
	client   *http.Client
	db       *sql.DB
	shop     *shop
	created  time.Time // of all events
	accepted string    // a query: how often the event with this number is committed

	ok, later, cut atomic.Int64 // deliveries with a 2xx, a 503 and no response
	progress       atomic.Int64 // when something was accepted or handled last, in Unix nanoseconds
}

func (a *attack) storm(events int) {
	const copies, clients = 20, 16
	a.progress.Store(time.Now().UnixNano())
	transport := &http.Transport{MaxIdleConnsPerHost: clients}
	defer transport.CloseIdleConnections()
	a.client = &http.Client{Transport: transport, Timeout: 20 * time.Second}
	all := rand.Perm(events * copies)
	var wg sync.WaitGroup
	for client := range clients {
		wg.Go(func() {
			for i := client; i < len(all); i += clients {
				a.deliver(all[i]%events, func(status int) bool { return status != 0 })
			}
		})
	}
	wg.Wait()
	for client := range clients {
		wg.Go(func() {
			for i := client; i < events; i += clients {
				a.deliver(i, func(status int) bool { return status == http.StatusOK })
			}
		})
	}
	wg.Wait()
}

// hopeful returns false when no event was accepted or handled for two minutes. A limit for the whole storm would depend
// on the machine.
func (a *attack) hopeful() bool { return time.Since(time.Unix(0, a.progress.Load())) < 2*time.Minute }

// untilHandled waits until each event has left the outbox.
func (a *attack) untilHandled(events int) {
	for left := events; left > 0 && a.hopeful(); <-time.After(20 * time.Millisecond) {
		if n := a.count("SELECT count(*) FROM outbox_messages"); n < left {
			left = n
			a.progress.Store(time.Now().UnixNano())
		}
	}
}

// deliver delivers an event until enough is true for the status; 0: there was no response.
func (a *attack) deliver(event int, enough func(status int) bool) {
	for ; a.hopeful(); <-time.After(rand.N(20 * time.Millisecond)) {
		ctx, cancel := context.WithCancel(a.t.Context())
		if rand.IntN(20) == 0 {
			ctx, cancel = context.WithTimeout(ctx, rand.N(5*time.Millisecond))
		}
		status := a.send(ctx, event)
		cancel()
		switch status {
		case 0:
			a.cut.Add(1)
		case http.StatusServiceUnavailable:
			a.later.Add(1)
		case http.StatusOK:
			a.ok.Add(1)
			a.progress.Store(time.Now().UnixNano())
			if n := a.count(fmt.Sprintf(a.accepted, event)); n != 1 {
				a.t.Errorf("event %d was accepted, and is committed %d times", event, n)
			}
		default:
			a.t.Errorf("event %d: status %d", event, status)
		}
		if enough(status) {
			return
		}
	}
	a.t.Errorf("event %d is never accepted", event)
}

func (a *attack) send(ctx context.Context, event int) (status int) {
	req := a.shop.request(ctx, shopEvent{
		ID: strconv.Itoa(event), Type: "paid", Created: a.created,
		Key: strconv.Itoa(event % 7),
	})
	out, err := http.NewRequestWithContext(ctx, http.MethodPost, a.children.Any().URL, req.Body)
	if err != nil {
		a.t.Error(err)
		return 0
	}
	out.Header = req.Header
	res, err := a.client.Do(out)
	if err != nil {
		return 0
	}
	res.Body.Close()
	return res.StatusCode
}

func (a *attack) count(query string) (n int) {
	a.t.Helper()
	var err error
	for began := time.Now(); time.Since(began) < 20*time.Second; { // SQLite recovers its file after a kill
		if err = a.db.QueryRowContext(context.WithoutCancel(a.t.Context()), query).Scan(&n); err == nil {
			return n
		}
	}
	a.t.Errorf("%s: %v", query, err)
	return -1
}

// audit looks for events without an effect or with two, for effects without a claim, and for anything that was given
// up.
func (a *attack) audit(events int, claims []string) {
	a.t.Helper()
	want := func(n int, query string) {
		a.t.Helper()
		if got := a.count(query); got != n {
			a.t.Errorf("%s: %d, want %d", query, got, n)
		}
	}
	want(events, "SELECT count(*) FROM effects")
	want(events, "SELECT count(DISTINCT name) FROM effects")
	for _, name := range claims {
		want(events, "SELECT count(*) FROM processed_messages WHERE consumer = '"+name+"'")
	}
	want(0, "SELECT count(*) FROM outbox_messages")
	want(0, "SELECT count(*) FROM dead_letters")
	want(0, "SELECT count(*) FROM outbox_parked")
}
