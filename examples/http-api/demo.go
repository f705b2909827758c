package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	demoOrders = 200 // each is sent demoTwins times at once
	demoTwins  = 5
	demoCuts   = 10 // orders whose client disconnects while the bank works
)

// demo is a client that repeats its requests, and what it must find afterwards.
type demo struct {
	api        *api
	url        string
	client     *http.Client
	alice, bob demoAccount
}

type demoAccount struct{ name, token string }

// runDemo serves, sends requests, and audits. The accounts are new, so earlier runs do not matter. around is what tests
// put around the API.
func (a *api) runDemo(ctx context.Context, listener net.Listener, around func(http.Handler) http.Handler) error {
	run := "demo-" + rand.Text()[:8]
	d := &demo{
		api: a, url: "http://" + listener.Addr().String() + "/orders",
		client: &http.Client{Timeout: time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: 100}},
		alice:  demoAccount{run + "-alice", rand.Text()}, bob: demoAccount{run + "-bob", rand.Text()},
	}
	defer d.client.CloseIdleConnections()
	// The quotas are exact: a repeat that spent quota would make a later order fail.
	if err := errors.Join(a.addAccount(ctx, d.alice.name, demoOrders+demoCuts),
		a.addAccount(ctx, d.bob.name, 1)); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	served := make(chan error, 1)
	routes := a.routes(map[string]string{d.alice.token: d.alice.name, d.bob.token: d.bob.name})
	go func() { served <- a.serve(ctx, listener, around(routes)) }()
	err := d.send(ctx)
	stop()
	if err = errors.Join(err, <-served); err != nil { // all work has ended now
		return err
	}
	return d.audit(context.WithoutCancel(ctx))
}

func (d *demo) send(ctx context.Context) error {
	for _, step := range []func(context.Context) error{d.twins, d.cuts, d.refusals, d.quota} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// twins sends each order several times at once. One request runs, and the others get its response.
func (d *demo) twins(ctx context.Context) error {
	began := time.Now()
	orders, ctx := errgroup.WithContext(ctx)
	orders.SetLimit(16)
	for i := range demoOrders {
		orders.Go(func() error {
			key, replies := rand.Text(), make([]answer, demoTwins)
			var twins errgroup.Group
			for t := range replies {
				twins.Go(func() (err error) {
					replies[t], err = d.order(ctx, d.alice, key, body(i, "visa"))
					return err
				})
			}
			if err := twins.Wait(); err != nil {
				return err
			}
			first := 0 // requests that ran
			for _, r := range replies {
				if !r.replayed {
					first++
				}
				if r.status != http.StatusCreated || r.body != replies[0].body || r.orderID != replies[0].orderID {
					return fmt.Errorf("one key, different responses: %v and %v", replies[0], r)
				}
			}
			if first != 1 {
				return fmt.Errorf("%d of the requests with key %s ran, want one", first, key)
			}
			return nil
		})
	}
	if err := orders.Wait(); err != nil {
		return err
	}
	fmt.Printf("%d orders, each sent %d times at once: %d were created, %d got the same response again (%.1f s)\n",
		demoOrders, demoTwins, demoOrders, demoOrders*(demoTwins-1), time.Since(began).Seconds())
	return nil
}

// cuts disconnects while the bank works. The work is completed, and the repeat gets its response.
func (d *demo) cuts(ctx context.Context) error {
	defer d.api.bank.during(nil)
	for i := range demoCuts {
		key, content := rand.Text(), body(demoOrders+i, "visa")
		cutCtx, cut := context.WithCancel(ctx)
		gone := make(chan struct{})
		d.api.bank.during(func() { cut(); <-gone })
		r, err := d.try(cutCtx, d.alice, key, content)
		close(gone)
		if cut(); err == nil {
			return fmt.Errorf("the connection was not cut: %v", r)
		}
		r, err = d.order(ctx, d.alice, key, content)
		if err != nil {
			return err
		}
		if r.status != http.StatusCreated || !r.replayed {
			return fmt.Errorf("after a cut connection the repeat got %v; want 201 from the first request", r)
		}
	}
	fmt.Printf("%d connections cut while the bank worked: the work was completed, and each repeat got its response\n",
		demoCuts)
	return nil
}

// refusals sends what is refused, and one order. Bob has one order left, so none of the refused requests may spend it.
func (d *demo) refusals(ctx context.Context) error {
	key, declined := rand.Text(), rand.Text()
	before := d.api.bank.count()
	for _, step := range []struct {
		what     string
		from     demoAccount
		key      string
		body     string
		want     int
		replayed bool
	}{
		{"no key", d.bob, "", body(0, "visa"), http.StatusBadRequest, false},
		{"a card that is declined", d.bob, declined, body(0, "declined"), http.StatusPaymentRequired, false},
		{"its repeat", d.bob, declined, body(0, "declined"), http.StatusPaymentRequired, true},
		{"a wrong body", d.bob, key, `{"item": ""}`, http.StatusBadRequest, false},
		{"the mended body with the same key", d.bob, key, body(0, "visa"), http.StatusCreated, false},
		{"another body with that key", d.bob, key, body(1, "visa"), http.StatusUnprocessableEntity, false},
		{"a stranger", demoAccount{token: "guessed"}, key, body(0, "visa"), http.StatusUnauthorized, false},
	} {
		r, err := d.try(ctx, step.from, step.key, step.body)
		if err != nil {
			return err
		}
		if r.status != step.want || r.replayed != step.replayed {
			return fmt.Errorf("%s: got %v, want %d, replayed: %v", step.what, r, step.want, step.replayed)
		}
		fmt.Printf("%-34s %d\n", step.what+":", r.status)
	}
	if n := d.api.bank.count() - before; n != 2 {
		return fmt.Errorf("the bank was asked %d times, want 2: a repeat and a refused request must not ask it", n)
	}
	return nil
}

// quota sends one order more than each account has left. The refusal is not stored.
func (d *demo) quota(ctx context.Context) error {
	for _, from := range []demoAccount{d.alice, d.bob} {
		for range 2 {
			r, err := d.try(ctx, from, "one-order-too-many", body(0, "visa"))
			if err != nil {
				return err
			}
			if r.status != http.StatusTooManyRequests || r.replayed {
				return fmt.Errorf("with a quota that is used up: got %v, want 429, replayed: false", r)
			}
		}
	}
	fmt.Printf("%-34s %d\n", "one order more than the quota:", http.StatusTooManyRequests)
	return nil
}

// audit compares the orders in the database and the charges at the bank with the requests that were sent. It does not
// read the keys, which are under test.
func (d *demo) audit(ctx context.Context) error {
	want := map[string][]string{d.bob.name: {item(0)}}
	for i := range demoOrders + demoCuts {
		want[d.alice.name] = append(want[d.alice.name], item(i))
	}
	total := 0
	for account, items := range want {
		orders, err := queryOrders(ctx, d.api.db, account)
		if err != nil {
			return err
		}
		var got []string
		for _, o := range orders {
			got = append(got, o.Item)
		}
		slices.Sort(got)
		if slices.Sort(items); !slices.Equal(got, items) {
			return fmt.Errorf("%d orders of %s, want %d, each once: %q", len(got), account, len(items), got)
		}
		total += len(got)
	}
	if n := d.api.bank.charges(); n != total {
		return fmt.Errorf("%d charges for %d orders", n, total)
	}
	fmt.Printf("audit: %d orders and %d charges, one for each key\n", total, total)
	return nil
}
