package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/internal/test/self"
	"github.com/txonce/txonce/internal/test/testdb"
)

func TestMain(m *testing.M) { self.Main(m, main) }

func command(t *testing.T, args ...string) *exec.Cmd {
	cmd := self.Command(t.Context(), args...)
	cmd.Env = append(cmd.Env, "IDEMPOTENCY_SECRET=")
	return cmd
}

// databases calls f with arguments for each database.
func databases(t *testing.T, f func(t *testing.T, file, dsn string)) {
	t.Run("SQLite", func(t *testing.T) { f(t, filepath.Join(t.TempDir(), "orders.db"), "") })
	t.Run("PostgreSQL", func(t *testing.T) { f(t, "", testdb.Schema(t, testdb.Postgres(t))) })
}

// The demo finds one order and one charge for each key, also in a database that it has used before.
func TestDemo(t *testing.T) {
	databases(t, func(t *testing.T, file, dsn string) {
		for range 2 {
			out, err := command(t, "-demo", "-sqlite", file, "-postgres", dsn).CombinedOutput()
			if err != nil || !strings.Contains(string(out), "audit: 211 orders and 211 charges, one for each key") {
				t.Fatalf("%v\n%s", err, out)
			}
		}
	})
}

// The command exits with 1, and says what to change.
func TestFailure(t *testing.T) {
	for _, tt := range []struct {
		name string
		args []string
		want string
	}{
		{"two databases", []string{"-demo", "-sqlite", "a.db", "-postgres", "postgres://"}, "want one of them"},
		{
			"keys that the next run would not know",
			[]string{"-sqlite", filepath.Join(t.TempDir(), "a.db")},
			"set IDEMPOTENCY_SECRET",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out, err := command(t, tt.args...).CombinedOutput()
			if exit := new(exec.ExitError); !errors.As(err, &exit) || exit.ExitCode() != 1 ||
				!strings.Contains(string(out), tt.want) {
				t.Errorf("%v\n%s\nwant exit 1 and %q", err, out, tt.want)
			}
		})
	}
}

var testSecret = []byte(strings.Repeat("secret", 6))

func openTest(t *testing.T, file, dsn string) *api {
	t.Helper()
	db, dialect, closeDB, err := open(t.Context(), file, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(closeDB)
	a, err := newAPI(t.Context(), db, dialect, testSecret)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return listener
}

// The demo fails for an API whose repeats do not get the first response.
func TestDemoFindsAFault(t *testing.T) {
	for _, tt := range []struct {
		name   string
		around func(next http.Handler) http.Handler
		want   string
	}{
		{
			"every request counts as new", func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					r.Header.Set("Idempotency-Key", rand.Text())
					next.ServeHTTP(w, r)
				})
			}, "one key, different responses",
		},
		{
			"a header that is lost", func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					rec := httptest.NewRecorder()
					next.ServeHTTP(rec, r)
					w.WriteHeader(rec.Code)
					_, _ = rec.Body.WriteTo(w)
				})
			}, "requests with key",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := openTest(t, "", "")
			if err := a.runDemo(t.Context(), listen(t), tt.around); err == nil || !strings.Contains(err.Error(),
				tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// The audit notices each fault.
func TestAudit(t *testing.T) {
	for _, tt := range []struct {
		name, fault, want string
		charges           int
	}{
		{"nothing is wrong", "", "", 0},
		{"an order is missing", `DELETE FROM orders WHERE id = 'alice-3'`, "209 orders of alice, want 210", 0},
		{"an order is there twice", `INSERT INTO orders SELECT 'again', account, item, cents, charge FROM orders WHERE id = 'alice-3'`, "211 orders of alice", 0},
		{
			"an order took the place of another", `UPDATE orders SET item = 'book 4' WHERE id = 'alice-3'`,
			"210 orders of alice, want 210, each once", 0,
		},
		{
			"a refused order is there", `INSERT INTO orders VALUES ('refused', 'bob', 'book 1', 1001, '')`,
			"2 orders of bob, want 1", 0,
		},
		{"a charge too many", "", "212 charges for 211 orders", 1},
		{"a charge is missing", "", "210 charges for 211 orders", -1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := openTest(t, "", "")
			d := &demo{api: a, alice: demoAccount{name: "alice"}, bob: demoAccount{name: "bob"}}
			tx, err := a.db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback()
			insert(t, tx, "bob", 0)
			for i := range demoOrders + demoCuts {
				insert(t, tx, "alice", i)
			}
			if _, err := tx.ExecContext(t.Context(), tt.fault); err != nil {
				t.Fatal(err)
			}
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
			for i := range demoOrders + demoCuts + 1 + tt.charges {
				a.bank.charged[fmt.Sprint(i)] = 1
			}
			if err := d.audit(t.Context()); tt.want == "" && err != nil || tt.want != "" && (err == nil ||
				!strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func insert(t *testing.T, tx *sql.Tx, account string, i int) {
	t.Helper()
	if _, err := tx.ExecContext(t.Context(), `INSERT INTO orders VALUES ($1, $2, $3, 1, '')`,
		fmt.Sprintf("%s-%d", account, i), account, item(i)); err != nil {
		t.Fatal(err)
	}
}

// served is a running API whose only client has disconnected while the bank works. The bank goes on when resume is
// closed.
type served struct {
	api    *api
	stop   context.CancelFunc
	ended  chan error
	resume chan struct{}
}

func serveAndCut(t *testing.T, a *api) *served {
	t.Helper()
	if err := a.addAccount(t.Context(), "alice", 10); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	s := &served{api: a, stop: stop, ended: make(chan error, 1), resume: make(chan struct{})}
	listener := listen(t)
	go func() { s.ended <- a.serve(ctx, listener, a.routes(map[string]string{"t": "alice"})) }()
	cutCtx, cut := context.WithCancel(t.Context())
	a.bank.during(func() { cut(); <-s.resume })
	d := &demo{
		url:    "http://" + listener.Addr().String() + "/orders",
		client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}},
	}
	if r, err := d.try(cutCtx, demoAccount{token: "t"}, "k", body(0, "visa")); err == nil {
		t.Fatalf("the connection was not cut: %v", r)
	}
	return s
}

// After SIGTERM the server completes the order of a client that is gone. The client's repeat gets the response from the
// next process.
func TestShutdownCompletesWork(t *testing.T) {
	databases(t, func(t *testing.T, file, dsn string) {
		s := serveAndCut(t, openTest(t, file, dsn))
		s.stop()
		select {
		case err := <-s.ended:
			t.Fatalf("the server ended before its work: %v", err)
		case <-time.After(200 * time.Millisecond):
		}
		close(s.resume)
		if err := <-s.ended; err != nil {
			t.Fatal(err)
		}
		orders, err := queryOrders(t.Context(), s.api.db, "alice")
		if err != nil || len(orders) != 1 {
			t.Fatalf("%v, %v; want one order", orders, err)
		}

		next := openTest(t, file, dsn)
		server := httptest.NewServer(next.routes(map[string]string{"t": "alice"}))
		defer server.Close()
		d := &demo{url: server.URL + "/orders", client: server.Client()}
		r, err := d.try(t.Context(), demoAccount{token: "t"}, "k", body(0, "visa"))
		if err != nil || r.status != http.StatusCreated || !r.replayed || r.orderID != orders[0].ID {
			t.Errorf("the repeat got %v, %v; want the response of %s", r, err, orders[0].ID)
		}
		if n := next.bank.count(); n != 0 {
			t.Errorf("the bank was asked %d times for the repeat", n)
		}
	})
}

// Work that takes too long is rolled back, so that the process can end.
func TestShutdownEndsWork(t *testing.T) {
	a := openTest(t, "", "")
	a.grace, a.bank.delay = time.Millisecond, time.Hour
	s := serveAndCut(t, a)
	close(s.resume)
	s.stop()
	if err := <-s.ended; err != nil {
		t.Fatal(err)
	}
	if orders, err := queryOrders(t.Context(), a.db, "alice"); err != nil || len(orders) != 0 {
		t.Errorf("%v, %v; want no order", orders, err)
	}
	if n := a.bank.charges(); n != 0 {
		t.Errorf("%d charges", n)
	}
}

// The README shows the commands that the program prints.
func TestREADME(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	var printed bytes.Buffer
	printCommands(&printed, "http://127.0.0.1:8080", "GHYJHCMLKCPD")
	if want := strings.TrimSpace(printed.String()); !strings.Contains(string(readme), want) {
		t.Errorf("README.md does not show\n%s", want)
	}
}
