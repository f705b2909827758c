package httpidem_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/internal/test/testdb"
)

// untilAnswered sends q until the answer is not 409 or 503, as clients do.
func untilAnswered(t testing.TB, h http.Handler, q request) *httptest.ResponseRecorder {
	t.Helper()
	for began := time.Now(); ; <-time.After(20 * time.Millisecond) {
		w := serve(h, q.make(t.Context()))
		if w.Code != http.StatusConflict && w.Code != http.StatusServiceUnavailable || time.Since(began) > time.Minute {
			return w
		}
	}
}

// The network fails during COMMIT.
func TestCommitFaults(t *testing.T) {
	eachEngine(t, func(t *testing.T, e engine) {
		if e.Faulty == nil {
			t.Skip("no connection lies between the store and its file, so a COMMIT has no answer to lose")
		}
		for _, fault := range []deduptest.Fault{deduptest.CommitLost, deduptest.AnswerLost, deduptest.CommitLate} {
			t.Run("case 24: "+fault.String(), func(t *testing.T) {
				t.Parallel()
				dsn := e.Create(t)
				sound := e.node(t, dsn, settings{})
				for _, tt := range []struct {
					name string
					h    func(n *node) http.Handler
					wrap bool
				}{
					{"Handle", func(n *node) http.Handler { return n.handle(e.order) }, false},
					{"Wrap", func(n *node) http.Handler { return n.wrap(e.order) }, true},
				} {
					faulty := e.node(t, e.Faulty(t, dsn, fault), settings{wait: 10 * time.Second})
					q := request{key: tt.name, body: "x"}
					w := serve(tt.h(faulty), q.make(t.Context()))
					if tt.wrap && w.Code != http.StatusServiceUnavailable ||
						w.Code != http.StatusCreated && w.Code != http.StatusServiceUnavailable {
						t.Errorf("%s: status %d", tt.name, w.Code)
					}
					if !tt.wrap && w.Code == http.StatusCreated && isReplay(w) != (fault != deduptest.CommitLost) {
						t.Errorf("%s: replayed %v: the handler ran twice, or not at all", tt.name, isReplay(w))
					}
					w = untilAnswered(t, sound.handle(e.order), q)
					if w.Code != http.StatusCreated || w.Body.String() != "ordered x" {
						t.Errorf("%s: then status %d: %s", tt.name, w.Code, w.Body)
					}
				}
				sound.wantEffects(t, 2)
			})
		}
	})
}

// Transactions that the database refuses because of each other run again.
func TestSerializationFailures(t *testing.T) {
	eachEngine(t, func(t *testing.T, e engine) {
		if e.Name == "sqlite" {
			t.Skip("SQLite lets one transaction write at a time, so none fails because of another")
		}
		n := e.node(t, e.Create(t), settings{serializable: true})
		var runs, reads atomic.Int64
		both := make(chan struct{}) // closed when both transactions have read
		h := n.handle(func(ctx context.Context, exec func(string, ...any) error, w http.ResponseWriter, r *http.Request) error {
			runs.Add(1)
			if err := exec(`SELECT count(*) FROM effects`); err != nil {
				return err
			}
			if reads.Add(1) == 2 {
				close(both)
			}
			select {
			case <-both:
			case <-ctx.Done():
				return ctx.Err()
			}
			return e.order(ctx, exec, w, r)
		})
		var wg sync.WaitGroup
		for _, key := range []string{"case-23-a", "case-23-b"} {
			wg.Go(func() { wantStatus(t, h, request{key: key}, http.StatusCreated, false) })
		}
		wg.Wait()
		if n := runs.Load(); n < 3 {
			t.Errorf("case 23: %d runs: the transactions did not conflict", n)
		}
		n.wantEffects(t, 2)
	})
}

// Case 38, E8: there is no lease that runs out, and so no take-over that needs Recover. The key, the work and the
// response are one transaction, so a handler that loses the claim, here because the server ended an idle session,
// cannot commit what comes late.
func TestLateFinisher(t *testing.T) {
	eachEngine(t, func(t *testing.T, e engine) {
		if e.Name == "sqlite" {
			t.Skip("case 38: a SQLite transaction has no session that somebody else could end; only its process's death frees the key")
		}
		dsn := e.Create(t)
		first, second := e.node(t, dsn, settings{}), e.node(t, dsn, settings{})
		overtaken := false
		late := first.handle(func(ctx context.Context, exec func(string, ...any) error, w http.ResponseWriter, r *http.Request) error {
			if err := exec(e.Insert, "late", "late"); err != nil {
				return err
			}
			if !overtaken {
				overtaken = true
				if err := endOtherSessions(ctx, t, e, second); err != nil {
					t.Error(err)
				}
				w2 := untilAnswered(t, second.handle(e.order), request{key: "case-38", body: "x"})
				if w2.Code != http.StatusCreated || isReplay(w2) {
					t.Errorf("E8: the take-over got %d", w2.Code)
				}
			}
			w.WriteHeader(http.StatusCreated)
			_, err := w.Write([]byte("late"))
			return err
		})
		w := serve(late, request{key: "case-38", body: "x"}.make(t.Context()))
		if w.Code == http.StatusCreated && (w.Body.String() != "ordered x" || !isReplay(w)) ||
			w.Code != http.StatusCreated && w.Code < 500 {
			t.Errorf("case 38: the late finisher got %d %s, replayed %v; want the winner's response or 5xx", w.Code,
				w.Body, isReplay(w))
		}
		second.wantEffects(t, 1)
		wantStatus(t, first.handle(e.order), request{key: "case-38", body: "x"}, http.StatusCreated, true)
	})
}

// endOtherSessions makes the server end the sessions that are in a transaction on this test's database or schema.
func endOtherSessions(ctx context.Context, t *testing.T, e engine, n *node) error {
	if e.Name == "postgres" {
		ended, err := n.count(ctx, `SELECT count(*) FROM (SELECT DISTINCT pid FROM pg_locks WHERE relation = 'effects'::regclass AND pid <> pg_backend_pid()) held
			WHERE pg_terminate_backend(pid, 10000)`)
		if err == nil && ended != 1 {
			err = errors.New("not one session was ended")
		}
		return err
	}
	for { // the server refreshes innodb_trx only every 100 ms
		id, err := n.count(ctx, `SELECT coalesce(max(id), 0) FROM `+testdb.MySQLSessions(t)+
			` WHERE transaction AND db = database() AND id <> connection_id()`)
		if err != nil {
			return err
		}
		if id != 0 {
			return n.exec(ctx, `KILL CONNECTION `+strconv.Itoa(id))
		}
		<-time.After(50 * time.Millisecond)
	}
}
