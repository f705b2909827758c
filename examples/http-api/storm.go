package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/txonce/txonce/adapters/httpidem/storm"
)

// runStorm serves and lets clients repeat orders at once, with cut connections, without and with jitter. If guarded is
// false, the handler has no Guard, and the storm shows what the Guard is for.
func (a *api) runStorm(ctx context.Context, listener net.Listener, guarded bool, keys int, out io.Writer) error {
	account := "storm-" + rand.Text()[:8]
	if err := a.addAccount(ctx, account, 1_000_000); err != nil {
		return err
	}
	token := rand.Text()
	routes := a.routes(map[string]string{token: account})
	if !guarded {
		routes = authenticate(map[string]string{token: account}, http.HandlerFunc(a.createUnguarded))
	}
	serveCtx, stop := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() { served <- a.serve(serveCtx, listener, routes) }()
	findings := 0
	var err error
	for _, jitter := range []bool{false, true} {
		var r storm.Report
		r, err = storm.Run(ctx, storm.Config{
			URL:     "http://" + listener.Addr().String() + "/orders",
			Headers: http.Header{"Authorization": {"Bearer " + token}},
			Body:    `{"item": "book {n}", "cents": 1999, "card": "visa"}`,
			Keys:    keys, Clients: 20, Tries: 10, Cuts: .3, CutWithin: 2 * a.bank.delay, Backoff: 20 * time.Millisecond,
			Jitter: jitter, Settle: 200 * time.Millisecond,
			Effects: func(ctx context.Context) (int, error) {
				orders, err := queryOrders(ctx, a.db, account)
				return len(orders), err
			},
		})
		if err != nil {
			break
		}
		findings += len(r.Findings)
		text, encoding := json.MarshalIndent(r, "", "  ")
		if err = encoding; err == nil {
			_, err = fmt.Fprintf(out, "%s\n", text)
		}
		if err != nil {
			break
		}
	}
	stop()
	if err = errors.Join(err, <-served); err == nil && findings > 0 {
		err = fmt.Errorf("%d findings", findings)
	}
	return err
}

// createUnguarded is createOrder without a Guard, as it is often written: each request is an order and a charge.
func (a *api) createUnguarded(w http.ResponseWriter, r *http.Request) {
	var o order
	err := json.NewDecoder(r.Body).Decode(&o)
	if err == nil {
		o.ID = "order-" + rand.Text()[:10]
		err = a.bank.charge(r.Context(), strings.ToLower(rand.Text()), o.Card, o.Cents)
	}
	if err == nil {
		_, err = a.db.ExecContext(r.Context(), `INSERT INTO orders (id, account, item, cents, charge) VALUES ($1, $2, $3, $4, '')`,
			o.ID, accountOf(r.Context()), o.Item, o.Cents)
	}
	if err != nil {
		_ = reply(w, http.StatusInternalServerError, failure{"failed"})
		return
	}
	_ = reply(w, http.StatusCreated, o)
}
