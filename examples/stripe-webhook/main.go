// Command stripe-webhook receives the webhooks of Stripe. It records each paid invoice once, although Stripe delivers an event again
// when it did not get the answer, and keeps the latest state of each subscription, although Stripe delivers events in any order. With -demo it needs no account: it sends itself deliveries as Stripe does, and some that are forged.
//
//	go run ./examples/stripe-webhook -demo
//	STRIPE_WEBHOOK_SECRET=whsec_… go run ./examples/stripe-webhook
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"golang.org/x/sync/errgroup"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/stripehook"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/migrations"
)

type options struct {
	listen   string // host:port
	sqlite   string // file
	postgres string // DSN; empty: SQLite
	secret   string // of the endpoint
	mode     stripehook.Mode
	apiKey   string // of the backfill; empty: none
	apiURL   string // empty: Stripe's
	logger   *slog.Logger
	ready    func(address string) // called when the server accepts connections
	out      io.Writer            // of the demo
}

func main() {
	o := options{mode: stripehook.Test, secret: os.Getenv("STRIPE_WEBHOOK_SECRET"), apiKey: os.Getenv("STRIPE_API_KEY"), logger: slog.Default(), out: os.Stdout}
	flag.StringVar(&o.listen, "listen", "127.0.0.1:8080", "`address` of the server; the endpoint is /webhooks/stripe")
	flag.StringVar(&o.sqlite, "sqlite", "stripe-webhook.db", "`file` of the database")
	flag.StringVar(&o.postgres, "postgres", "", "PostgreSQL's `DSN`, to use instead of SQLite")
	live := flag.Bool("live", false, "the secret and the key are of live mode, not of test mode")
	isDemo := flag.Bool("demo", false, "send deliveries to a server of its own, look at the results, and exit with 0 if they are right")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if *live {
		o.mode = stripehook.Live
	}
	o.ready = func(address string) { log.Printf("receiving at http://%s/webhooks/stripe", address) }
	work := run
	if *isDemo {
		work = demo
	}
	if err := work(ctx, o); err != nil {
		log.Fatal(err)
	}
}

// invoicePaid is what the handler needs of an event of type invoice.paid.
type invoicePaid struct {
	Event string `json:"id"`
	Data  struct {
		Object struct {
			ID     string `json:"id"`
			Amount int64  `json:"amount_paid"`
		} `json:"object"`
	} `json:"data"`
}

// paid runs in the transaction that claims the event. The claim and the payment are committed together, or neither is.
func paid(ctx context.Context, tx *sql.Tx, e invoicePaid) error {
	invoice := e.Data.Object
	if invoice.ID == "" {
		return consumer.Permanent(errors.New("the event has no invoice")) // parked now: it would fail each time
	}
	_, err := tx.ExecContext(ctx, `INSERT INTO payments (event_id, invoice_id, cents) VALUES ($1, $2, $3)`, e.Event, invoice.ID, invoice.Amount)
	return err // not nil: rolled back, the response is 503, and Stripe delivers the event again
}

// subscriptions keeps the status of each subscription.
type subscriptions struct{ store *sqlstore.Store }

// changed handles the events of subscriptions, which Stripe delivers in any order: it leaves out an event that is older than the status.
func (s subscriptions) changed(ctx context.Context, tx *sql.Tx, e subscriptionChanged) error {
	subscription := e.Data.Object
	if subscription.ID == "" {
		return consumer.Permanent(errors.New("the event has no subscription"))
	}
	newer, err := s.store.Newer(ctx, tx, "subscription/"+subscription.ID, e.version())
	if err != nil || !newer {
		return err
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO subscription_states (id, status) VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET status = excluded.status`,
		subscription.ID, subscription.Status)
	return err
}

// subscriptionChanged is what the handler needs of the events customer.subscription.*.
type subscriptionChanged struct {
	Type    string `json:"type"`
	Created int64  `json:"created"`
	Data    struct {
		Object struct {
			ID     string `json:"id"`
			Status string `json:"status"`
		} `json:"object"`
	} `json:"data"`
}

// version is the order of a subscription's events. Created counts seconds, so the type decides within one: a subscription is created,
// then updated, then deleted. Two updates within a second have one version: docs/versions.md says what to do where that matters.
func (e subscriptionChanged) version() int64 {
	return 4*e.Created + map[string]int64{"customer.subscription.updated": 1, "customer.subscription.deleted": 2}[e.Type]
}

const window = 40 * 24 * time.Hour // how long events are remembered; Stripe may repeat one for 34 days

// run receives webhooks until ctx ends.
func run(ctx context.Context, o options) error {
	db, store, err := open(ctx, o)
	if err != nil {
		return err
	}
	defer db.Close()
	changed := consumer.JSON(subscriptions{store}.changed)
	billing, err := consumer.New(consumer.Config[*sql.Tx]{
		Name: "billing", Store: store, Key: consumer.MessageID, Window: window, Logger: o.logger,
		Handle: webhook.ByTopic(map[string]consumer.Handler[*sql.Tx]{ // other types are acknowledged
			"invoice.paid":                  consumer.JSON(paid),
			"customer.subscription.created": changed,
			"customer.subscription.updated": changed,
			"customer.subscription.deleted": changed,
		}),
	})
	if err != nil {
		return err
	}
	verifier, err := stripehook.New(stripehook.Config{Secrets: []stripehook.Secret{{Value: o.secret, Mode: o.mode}}})
	if err != nil {
		return err
	}
	receiver, err := webhook.New(webhook.Config{Verifier: verifier, Processor: billing, Logger: o.logger})
	if err != nil {
		return err
	}
	sweeper, err := dedup.NewSweeper(dedup.SweeperConfig{Store: store, Logger: o.logger})
	if err != nil {
		return err
	}
	if err := receiver.Start(ctx); err != nil { // checks the tables
		return err
	}
	listener, err := net.Listen("tcp", o.listen)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/webhooks/stripe", receiver)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}

	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return sweeper.Run(ctx) })        // deletes keys that are older than window
	g.Go(func() error { return billing.RunReplays(ctx) }) // processes dead letters again when an operator requests it: txonce dead-letters replay
	if o.apiKey != "" {
		g.Go(func() error { return backfill(ctx, o, store, verifier, billing) })
	}
	g.Go(func() error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	g.Go(func() error {
		<-ctx.Done()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
		defer cancel()
		return errors.Join(server.Shutdown(ctx), receiver.Shutdown(ctx)) // requests end, and then handlers that outlived theirs
	})
	o.ready(listener.Addr().String())
	return g.Wait()
}

// backfill fetches events that no webhook delivered, as after a long outage. Those that did arrive are duplicates.
func backfill(ctx context.Context, o options, store *sqlstore.Store, verifier *stripehook.Verifier, billing *consumer.Consumer[*sql.Tx]) error {
	client, err := stripehook.NewClient(stripehook.ClientConfig{APIKey: o.apiKey, Mode: o.mode, BaseURL: o.apiURL})
	if err != nil {
		return err
	}
	checkpoint, err := webhook.NewCheckpoint(store, "billing stripe", window)
	if err != nil {
		return err
	}
	b, err := stripehook.NewBackfill(stripehook.BackfillConfig[*sql.Tx]{
		Client: client, Verifier: verifier, Processor: billing, Checkpoint: checkpoint, Logger: o.logger,
		Types: []string{"invoice.paid", "customer.subscription.created", "customer.subscription.updated", "customer.subscription.deleted"},
		Since: time.Date(2026, time.November, 1, 0, 0, 0, 0, time.UTC), // when billing went live: earlier events are not its own
	})
	if err != nil {
		return err
	}
	return b.Run(ctx)
}

// open returns the database, with txonce's tables, and the tables payments and subscription_states.
func open(ctx context.Context, o options) (*sql.DB, *sqlstore.Store, error) {
	driver, dsn, dialect := "sqlite", "file:"+o.sqlite+"?_pragma=journal_mode(wal)", sqlstore.SQLite
	if o.postgres != "" {
		driver, dsn, dialect = "pgx", o.postgres, sqlstore.Postgres
	}
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return nil, nil, err
	}
	store, err := sqlstore.New(sqlstore.Config{DB: db, Dialect: dialect})
	if err == nil {
		err = migrations.Apply(ctx, db, string(dialect), "")
	}
	if err == nil {
		_, err = db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS payments (event_id TEXT, invoice_id TEXT, cents BIGINT)`)
	}
	if err == nil {
		_, err = db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS subscription_states (id TEXT PRIMARY KEY, status TEXT)`)
	}
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	return db, store, nil
}
