// Command apple-webhook receives App Store Server Notifications. It records each renewal once, although Apple sends a
// notification again when it did not get the answer, and keeps the latest state of each subscription, although
// notifications arrive in any order. With -demo it needs no account: it sends itself notifications,
// signed with certificates of its own, and some that are forged.
//
//	go run ./examples/apple-webhook -demo
//	go run ./examples/apple-webhook -bundle com.example.app -app 1234567890
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
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
	"github.com/txonce/txonce/adapters/webhook/applehook"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/migrations"
)

type options struct {
	listen   string // host:port
	sqlite   string // file
	postgres string // DSN; empty: SQLite
	app      applehook.Config
	key      apiKey
	apiURL   string // of the backfill; empty: Apple's
	logger   *slog.Logger
	ready    func(address string) // called when the server accepts connections
	out      io.Writer            // of the demo
}

// apiKey is an In-App Purchase key of App Store Connect, for the backfill.
type apiKey struct {
	issuer, id string
	file       string // AuthKey_….p8; empty: no backfill
}

func main() {
	o := options{logger: slog.Default(), out: os.Stdout}
	flag.StringVar(&o.listen, "listen", "127.0.0.1:8080", "`address` of the server; the endpoint is /webhooks/apple")
	flag.StringVar(&o.sqlite, "sqlite", "apple-webhook.db", "`file` of the database")
	flag.StringVar(&o.postgres, "postgres", "", "PostgreSQL's `DSN`, to use instead of SQLite")
	flag.StringVar(&o.app.BundleID, "bundle", "", "the app's bundle `identifier`")
	flag.Int64Var(&o.app.AppAppleID, "app", 0, "the app's `number` in the App Store; without it, notifications of the sandbox are received")
	flag.StringVar(&o.key.issuer, "issuer", "", "issuer `ID` of the key for the backfill")
	flag.StringVar(&o.key.id, "key-id", "", "`ID` of that key")
	flag.StringVar(&o.key.file, "key", "", "`file` of that key, AuthKey_….p8; without it there is no backfill")
	isDemo := flag.Bool("demo", false, "send notifications to a server of its own, look at the results, and exit with 0 if they are right")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o.app.Environment = applehook.Sandbox
	if o.app.AppAppleID != 0 {
		o.app.Environment = applehook.Production
	}
	o.ready = func(address string) { log.Printf("receiving at http://%s/webhooks/apple", address) }
	work := run
	if *isDemo {
		work = demo
	}
	if err := work(ctx, o); err != nil {
		log.Fatal(err)
	}
}

// subscriptions records renewals, and keeps the state of each subscription.
type subscriptions struct{ store *sqlstore.Store }

// renewed runs in the transaction that claims the notification. The claim and the rows are committed together, or none
// is.
func (s subscriptions) renewed(ctx context.Context, tx *sql.Tx, msg *consumer.Message) error {
	n, err := read(msg)
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `INSERT INTO renewals (notification, subscription, paid_until) VALUES ($1, $2, $3)`,
		n.UUID, n.Transaction.OriginalTransactionID, int64(n.Transaction.ExpiresDate)); err != nil {
		return err // rolled back, the response is 503, and Apple sends the notification again
	}
	return s.keep(ctx, tx, n, "active")
}

// expired handles EXPIRED.
func (s subscriptions) expired(ctx context.Context, tx *sql.Tx, msg *consumer.Message) error {
	n, err := read(msg)
	if err != nil {
		return err
	}
	return s.keep(ctx, tx, n, "expired")
}

// keep writes the state of the subscription, unless a later notification has written it. The date of the purchase tells
// which renewal a notification is about. The date of the signature would not: Apple's history may sign an old
// notification anew.
func (s subscriptions) keep(ctx context.Context, tx *sql.Tx, n *applehook.Notification, state string) error {
	version := 2 * int64(n.Transaction.PurchaseDate)
	if state == "expired" { // it comes after the renewal that has expired
		version++
	}
	newer, err := s.store.Newer(ctx, tx, "subscription/"+n.Transaction.OriginalTransactionID, version)
	if err != nil || !newer {
		return err
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO subscription_states (id, state, paid_until) VALUES ($1, $2, $3)
ON CONFLICT (id) DO UPDATE SET state = excluded.state, paid_until = excluded.paid_until`,
		n.Transaction.OriginalTransactionID, state, int64(n.Transaction.ExpiresDate))
	return err
}

// read returns a notification that has a transaction.
func read(msg *consumer.Message) (*applehook.Notification, error) {
	n, err := applehook.Decode(msg)
	if err != nil {
		return nil, err
	}
	if len(n.Unread) > 0 { // Apple has changed a field, which is zero here: a person looks before it is booked
		return nil, consumer.Permanent(fmt.Errorf("the field %s cannot be read", n.Unread[0].Path))
	}
	if n.Transaction == nil {
		// parked now: it would fail each time
		return nil, consumer.Permanent(errors.New("the notification has no transaction"))
	}
	return n, nil
}

const window = 200 * 24 * time.Hour // how long notifications are remembered; Apple's history has them for 180 days

// run receives notifications until ctx ends.
func run(ctx context.Context, o options) error {
	db, store, err := open(ctx, o)
	if err != nil {
		return err
	}
	defer db.Close()
	book := subscriptions{store}
	notifications, err := consumer.New(consumer.Config[*sql.Tx]{
		Name: "subscriptions", Store: store, Key: consumer.MessageID, Window: window, Logger: o.logger,
		Handle: webhook.ByTopic(map[string]consumer.Handler[*sql.Tx]{ // other types are acknowledged
			"SUBSCRIBED": book.renewed,
			"DID_RENEW":  book.renewed,
			"EXPIRED":    book.expired,
		}),
	})
	if err != nil {
		return err
	}
	verifier, err := applehook.New(o.app)
	if err != nil {
		return err
	}
	receiver, err := webhook.New(webhook.Config{Verifier: verifier, Processor: notifications, Logger: o.logger})
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
	mux.Handle("/webhooks/apple", receiver)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}

	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return sweeper.Run(ctx) }) // deletes keys that are older than window
	// processes dead letters again when an operator requests it: txonce dead-letters replay
	g.Go(func() error { return notifications.RunReplays(ctx) })
	if o.key.file != "" {
		g.Go(func() error { return backfill(ctx, o, store, verifier, notifications) })
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
		// requests end, and then handlers that outlived theirs
		return errors.Join(server.Shutdown(ctx), receiver.Shutdown(ctx))
	})
	o.ready(listener.Addr().String())
	return g.Wait()
}

// backfill fetches notifications that did not arrive, as after a long outage. Those that did are duplicates.
func backfill(ctx context.Context, o options, store *sqlstore.Store, verifier *applehook.Verifier,
	notifications *consumer.Consumer[*sql.Tx],
) error {
	key, err := os.ReadFile(o.key.file)
	if err != nil {
		return err
	}
	b, err := applehook.NewBackfill(applehook.BackfillConfig[*sql.Tx]{
		Name: "subscriptions", Verifier: verifier, Processor: notifications, Store: store,
		IssuerID: o.key.issuer, KeyID: o.key.id, PrivateKey: key, URL: o.apiURL, Logger: o.logger,
		// when subscriptions went live: earlier notifications are not its own
		Since: time.Date(2026, time.November, 1, 0, 0, 0, 0, time.UTC),
	})
	if err != nil {
		return err
	}
	return b.Run(ctx)
}

// open returns the database, with txonce's tables, and the tables renewals and subscription_states.
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
		_, err = db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS renewals (notification TEXT, subscription TEXT, paid_until BIGINT)`)
	}
	if err == nil {
		_, err = db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS subscription_states (id TEXT PRIMARY KEY, state TEXT, paid_until BIGINT)`)
	}
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	return db, store, nil
}
