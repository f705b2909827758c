package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/calls"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/relay"
)

// Order is a message of the topic orders.
type Order struct {
	ID    string `json:"order_id"`
	Cents int64  `json:"cents"`
}

// shop takes orders, charges cards, and records payments.
type shop struct {
	store    *sqlstore.Store
	provider string // URL of the payment provider
	client   *http.Client
	charges  *calls.Calls[*sql.Tx]
}

func newShop(store *sqlstore.Store, provider string) (*shop, error) {
	s := &shop{store: store, provider: provider, client: &http.Client{Timeout: 10 * time.Second}}
	var err error
	s.charges, err = calls.New(calls.Config[*sql.Tx]{
		Name: "charge", Store: store, Do: s.charge, Find: s.find, Done: s.paid,
		Keeps: 24 * time.Hour,
	})
	return s, err
}

// order is the handler. The order and the request to charge are committed together, or not at all.
func (s *shop) order(ctx context.Context, tx *sql.Tx, o Order) error {
	if _, err := tx.ExecContext(ctx, `INSERT INTO orders (id, cents) VALUES (?, ?)`, o.ID, o.Cents); err != nil {
		return err
	}
	body, err := json.Marshal(map[string]any{"reference": o.ID, "cents": o.Cents})
	if err != nil {
		return err
	}
	return s.charges.Enqueue(ctx, tx, calls.Request{ID: "charge-" + o.ID, OrderingKey: o.ID, Payload: body})
}

// charge calls the provider. It may run several times, always with the same key.
func (s *shop) charge(ctx context.Context, c calls.Call) (calls.Result, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.provider+"/charges", bytes.NewReader(c.Payload))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Idempotency-Key", c.IdempotencyKey)
	response, err := s.client.Do(r)
	if err != nil {
		return nil, err // the outcome is not known
	}
	defer response.Body.Close()
	if err := calls.ErrorOf(response); err != nil {
		return nil, err
	}
	return io.ReadAll(response.Body) // an error: the answer was cut
}

// find asks the provider whether it has charged. Calls asks only when the provider may have forgotten the key.
func (s *shop) find(ctx context.Context, c calls.Call) (calls.Result, bool, error) {
	var charge struct{ Reference string }
	if err := json.Unmarshal(c.Payload, &charge); err != nil {
		return nil, false, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.provider+"/charges/"+charge.Reference, nil)
	if err != nil {
		return nil, false, err
	}
	response, err := s.client.Do(r)
	if err != nil {
		return nil, false, err
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusNotFound {
		return nil, false, nil
	}
	if err := calls.ErrorOf(response); err != nil {
		return nil, false, err
	}
	body, err := io.ReadAll(response.Body)
	return body, true, err
}

// paid records the result, in the transaction that settles the call.
func (s *shop) paid(ctx context.Context, tx *sql.Tx, c calls.Call, r calls.Result) error {
	var charged struct{ ID string }
	if err := json.Unmarshal(r, &charged); err != nil {
		return fmt.Errorf("the provider's answer: %w", err)
	}
	_, err := tx.ExecContext(ctx, `INSERT INTO payments (order_id, charge_id) VALUES (?, ?)`, c.OrderingKey, charged.ID)
	return err
}

// consumer returns the consumer of orders, and relay what makes the calls.
func (s *shop) consumer() (*consumer.Consumer[*sql.Tx], error) {
	return consumer.New(consumer.Config[*sql.Tx]{
		Name: "shop", Store: s.store, Key: consumer.JSONKey("order_id"), Handle: consumer.JSON(s.order),
	})
}

func (s *shop) relay() (*relay.Relay, error) {
	return relay.New(relay.Config{Queue: s.store, Publishers: map[string]outbox.Publisher{"charge": s.charges}})
}
