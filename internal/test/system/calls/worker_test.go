package calls_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/calls"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/test/child"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/relay"
)

func TestMain(m *testing.M) {
	child.Main(work)
	os.Exit(m.Run())
}

// settings of the workers, and of the provider.
type settings struct {
	Driver, DSN, Provider, Insert string
	Keeps                         time.Duration
	Find                          bool
	Rate                          int // one of so many boundaries strikes; 0: none
	Nth                           int
}

const (
	timeout = 400 * time.Millisecond
	settles = 300 * time.Millisecond
	late    = 500 * time.Millisecond // of the provider: longer than timeout, shorter than timeout + settles
	frozen  = 2500 * time.Millisecond
)

// writing is read-locked while a request is written, because nothing helps a process that freezes then: it has looked at
// the clock, and its request arrives when it goes on. Without keys it may charge twice (docs/calls.md, Limits). With 16
// calls at a time, 3 of 185 freezes charged twice; the requests of one of them were seen, and it was such a freeze.
var writing sync.RWMutex

// strike kills or freezes this process, at a boundary, now and then. The parent lets a frozen process go on.
func (s settings) strike() {
	if s.Rate == 0 || rand.IntN(s.Rate) > 0 {
		return
	}
	if rand.IntN(3) > 0 {
		child.KillMyself()
	}
	writing.Lock()
	defer writing.Unlock()
	child.FreezeMyself()
}

// open returns the store of a worker or of the test.
func (s settings) open() (*sql.DB, *sqlstore.Store, error) {
	db, err := sql.Open(s.Driver, s.DSN)
	if err != nil {
		return nil, nil, err
	}
	db.SetMaxOpenConns(12)
	db.SetMaxIdleConns(12)
	dialect := sqlstore.Postgres
	if s.Driver == "mysql" {
		dialect = sqlstore.MySQL
	}
	store, err := sqlstore.New(sqlstore.Config{DB: db, Dialect: dialect})
	return db, store, err
}

// striking is a store whose transactions strike around COMMIT, and whose records strike before and after they are
// written.
type striking struct {
	*sqlstore.Store
	settings
}

func (s striking) InTx(ctx context.Context, recs []dedup.Record, fn func(*sql.Tx, []dedup.Claim) error) error {
	err := s.Store.InTx(ctx, recs, func(tx *sql.Tx, claims []dedup.Claim) error {
		err := fn(tx, claims)
		s.strike() // after Done, before COMMIT
		return err
	})
	s.strike()
	return err
}

func (s striking) Calls() driver.CallKeeper[*sql.Tx] {
	return strikingKeeper{s.Store.Calls(), s.settings}
}

type strikingKeeper struct {
	driver.CallKeeper[*sql.Tx]
	settings
}

func (k strikingKeeper) BeginTry(ctx context.Context, key dedup.Key, seen driver.Call, try driver.Try) (bool, error) {
	k.strike()
	began, err := k.CallKeeper.BeginTry(ctx, key, seen, try)
	k.strike()
	return began, err
}

// config of the calls, for workers and the test.
func (s settings) config(store calls.Store[*sql.Tx]) calls.Config[*sql.Tx] {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 32}}
	send := func(ctx context.Context, method, path, body string, c calls.Call) (*http.Response, calls.Result, error) {
		r, err := http.NewRequestWithContext(ctx, method, s.Provider+path, strings.NewReader(body))
		if err != nil {
			return nil, nil, err
		}
		ends, _ := ctx.Deadline()
		r.Header.Set("Sent", fmt.Sprintf("%s by worker %d", time.Now().Format(clock), s.Nth))
		r.Header.Set("Ends", ends.Format(clock))
		if s.Keeps > 0 { // otherwise net/http would repeat the request by itself after a lost answer
			r.Header.Set("Idempotency-Key", c.IdempotencyKey)
		}
		writing.RLock()
		written := sync.OnceFunc(writing.RUnlock)
		defer written()
		if !time.Now().Before(ends) {
			return nil, nil, context.DeadlineExceeded
		}
		trace := httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { written() }}
		response, err := client.Do(r.WithContext(httptrace.WithClientTrace(ctx, &trace)))
		if err != nil {
			return nil, nil, err
		}
		defer response.Body.Close()
		var charged struct{ ID string }
		if err := json.NewDecoder(response.Body).Decode(&charged); err != nil && response.StatusCode == http.StatusOK {
			return nil, nil, err // the answer was cut
		}
		return response, calls.Result(charged.ID), nil
	}
	cfg := calls.Config[*sql.Tx]{
		Name: "charge", Store: store, Keeps: s.Keeps, Settles: settles, Timeout: timeout,
		Do: func(ctx context.Context, c calls.Call) (calls.Result, error) {
			s.strike()
			defer s.strike()
			r, result, err := send(ctx, http.MethodPost, "/charges", fmt.Sprintf(`{"reference": %q, "cents": 1000}`, c.ID), c)
			if err != nil {
				return nil, err
			}
			return result, calls.ErrorOf(r)
		},
		Done: func(ctx context.Context, tx *sql.Tx, c calls.Call, r calls.Result) error {
			s.strike()
			_, err := tx.ExecContext(ctx, s.Insert, c.ID, string(r))
			return err
		},
	}
	if s.Find {
		cfg.Find = func(ctx context.Context, c calls.Call) (calls.Result, bool, error) {
			s.strike()
			defer s.strike()
			r, result, err := send(ctx, http.MethodGet, "/charges/"+c.ID, "", c)
			switch {
			case err != nil:
				return nil, false, err
			case r.StatusCode == http.StatusNotFound:
				return nil, false, nil
			}
			return result, true, calls.ErrorOf(r)
		}
	}
	return cfg
}

// work runs a relay until the process ends.
func work(ctx context.Context, args []string) (http.Handler, error) {
	var s settings
	if err := json.Unmarshal([]byte(args[0]), &s); err != nil {
		return nil, err
	}
	_, store, err := s.open()
	if err != nil {
		return nil, err
	}
	charges, err := calls.New(s.config(striking{store, s}))
	if err != nil {
		return nil, err
	}
	r, err := relay.New(relay.Config{
		Queue: store, Publishers: map[string]outbox.Publisher{"charge": charges}, LeaseTTL: 2 * time.Second,
		PublishTimeout: 3 * timeout, BatchSize: 64, MaxAttempts: 1000, PollMax: 100 * time.Millisecond,
		Margin:  100 * time.Millisecond,
		Backoff: func(int) time.Duration { return 50 * time.Millisecond },
		Logger:  slog.New(slog.DiscardHandler), Name: fmt.Sprint("worker ", s.Nth),
	})
	if err != nil {
		return nil, err
	}
	go func() {
		if err := r.Run(ctx); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}()
	return http.NotFoundHandler(), nil
}
