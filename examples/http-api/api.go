package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"log"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/txonce/txonce/adapters/httpidem"
	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/dedup"
)

// name is part of each key. After a change of it, every request counts as new.
const name = "orders-api"

// window is how long a client may repeat a request.
const window = 24 * time.Hour

type api struct {
	db    *sql.DB
	store *sqlstore.Store
	guard *httpidem.Guard[*sql.Tx]
	bank  *bank

	endWork context.CancelFunc // ends the contexts of all running handlers
	grace   time.Duration      // how long serve waits for them
}

func newAPI(ctx context.Context, db *sql.DB, dialect sqlstore.Dialect, secret []byte) (*api, error) {
	a := &api{db: db, bank: newBank(), grace: 15 * time.Second}
	var err error
	if a.store, err = sqlstore.New(sqlstore.Config{DB: db, Dialect: dialect}); err != nil {
		return nil, err
	}
	if err := a.store.Register(ctx, name, window); err != nil {
		// finds a wrong database now, and not at the first request
		return nil, err
	}
	base, endWork := context.WithCancel(context.WithoutCancel(ctx)) // work goes on after SIGTERM
	a.endWork = endWork
	a.guard, err = httpidem.New(httpidem.Config[*sql.Tx]{
		Name: name, Store: a.store, Secrets: [][]byte{secret}, Window: window, Base: base,
		Principal: func(r *http.Request) (string, error) { return accountOf(r.Context()), nil },
		Headers:   []string{"X-Order-Id"}, // stored with the response, so that a repeat gets it too
	})
	return a, err
}

// routes shows the order of the layers: authentication, a cheap limit per client, the Guard, and last the quota, which
// is in createOrder. A repeat must be authenticated again, and it spends no quota.
func (a *api) routes(accounts map[string]string) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /orders", authenticate(accounts, limit(100, a.guard.Handle(a.createOrder))))
	mux.Handle("GET /orders", authenticate(accounts, limit(100, http.HandlerFunc(a.listOrders))))
	return mux
}

type order struct {
	ID    string `json:"id"`
	Item  string `json:"item"`
	Cents int64  `json:"cents"`
	Card  string `json:"card,omitempty"`
}

// createOrder runs in the transaction that holds the Idempotency-Key. The order, the quota and the response are
// committed together. A status of 400 or more rolls all of it back.
func (a *api) createOrder(ctx context.Context, tx *sql.Tx, w http.ResponseWriter, r *http.Request) error {
	var o order
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil || o.Item == "" || o.Cents <= 0 || o.Card == "" {
		// 400 is not stored: the client may send a correct body with the same key.
		return reply(w, http.StatusBadRequest, failure{"want an item, cents above 0 and a card"})
	}
	account := accountOf(ctx)
	quota, err := tx.ExecContext(ctx, `UPDATE accounts SET orders_left = orders_left - 1 WHERE name = $1 AND orders_left > 0`, account)
	if err != nil {
		return err
	}
	if n, err := quota.RowsAffected(); err != nil {
		return err
	} else if n == 0 {
		return reply(w, http.StatusTooManyRequests, failure{"no orders are left"}) // 429 is not stored either
	}

	// The handler runs again if COMMIT fails, and when the client repeats a request after a crash. The bank is not part
	// of the transaction, but it knows this key from the first run, and charges once.
	charge, err := httpidem.DownstreamKey(ctx, "charge")
	if err != nil {
		return err
	}
	o.ID = "order-" + rand.Text()[:10]
	if _, err := tx.ExecContext(ctx, `INSERT INTO orders (id, account, item, cents, charge) VALUES ($1, $2, $3, $4, $5)`,
		o.ID, account, o.Item, o.Cents, charge); err != nil {
		return err
	}
	switch err := a.bank.charge(ctx, charge, o.Card, o.Cents); { // last: only COMMIT can fail now
	case errors.Is(err, errDeclined):
		// 402 is stored: a repeat gets it without asking the bank
		return reply(w, http.StatusPaymentRequired, failure{err.Error()})
	case err != nil:
		return err // 500; a repeat runs
	}
	o.Card = ""
	w.Header().Set("X-Order-Id", o.ID)
	return reply(w, http.StatusCreated, o)
}

func (a *api) listOrders(w http.ResponseWriter, r *http.Request) {
	orders, err := queryOrders(r.Context(), a.db, accountOf(r.Context()))
	if err != nil {
		log.Print(err)
		http.Error(w, "the database failed", http.StatusInternalServerError)
		return
	}
	_ = reply(w, http.StatusOK, orders)
}

type failure struct {
	Error string `json:"error"`
}

func reply(w http.ResponseWriter, status int, body any) error {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	return json.NewEncoder(w).Encode(body)
}

// serve answers requests until ctx ends, and then completes those in progress.
func (a *api) serve(ctx context.Context, listener net.Listener, routes http.Handler) error {
	defer a.endWork()
	sweeper, err := dedup.NewSweeper(dedup.SweeperConfig{Store: a.store})
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler: routes, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 20 * time.Second,
		WriteTimeout: time.Minute, // longer than the Guard's Wait and Timeout together, or a client gets no answer
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return sweeper.Run(ctx) }) // deletes keys that are older than the window
	g.Go(func() error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	g.Go(func() error {
		<-ctx.Done()
		// Shutdown waits for running handlers, also for those whose client is gone.
		if shutdown(ctx, server, a.grace) == nil {
			return nil
		}
		a.endWork() // rolls back what still runs; the clients' repeats run again
		return shutdown(ctx, server, 5*time.Second)
	})
	return g.Wait()
}

func shutdown(ctx context.Context, server *http.Server, d time.Duration) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), d)
	defer cancel()
	return server.Shutdown(ctx)
}
