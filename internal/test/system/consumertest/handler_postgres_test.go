package consumertest_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // registers "pgx", which testdb takes

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/test/testdb"
)

// setBased adds 1 to the balance of each message's account, which is its payload.
func setBased(from string) consumer.BatchHandler[pgx.Tx] {
	return func(ctx context.Context, tx pgx.Tx, msgs []*consumer.Message) error {
		var accounts []string
		for _, m := range msgs {
			accounts = append(accounts, string(m.Payload))
		}
		_, err := tx.Exec(ctx, `UPDATE accounts a SET balance = a.balance + m.n FROM `+from+` m WHERE m.id = a.id`,
			accounts)
		return err
	}
}

// readAndWrite decides in Go. lock is FOR UPDATE, or empty.
func readAndWrite(lock string) consumer.Handler[pgx.Tx] {
	return func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
		var balance int
		err := tx.QueryRow(ctx, `SELECT balance FROM accounts WHERE id = $1 `+lock, string(m.Payload)).Scan(&balance)
		if err == nil {
			_, err = tx.Exec(ctx, `UPDATE accounts SET balance = $2 WHERE id = $1`, string(m.Payload), balance+1)
		}
		return err
	}
}

// On PostgreSQL, HandlerTest.SameRow finds the two kinds of handler that lose effects without an error, and one that
// works only alone.
func TestHandlersOfOneRow(t *testing.T) {
	const grouped = `(SELECT id, count(*) AS n FROM unnest($1::text[]) AS u (id) GROUP BY id)`
	const ungrouped = `(SELECT id, 1 AS n FROM unnest($1::text[]) AS u (id))`
	upsert := func(ctx context.Context, tx pgx.Tx, msgs []*consumer.Message) error {
		var accounts []string
		for _, m := range msgs {
			accounts = append(accounts, string(m.Payload))
		}
		_, err := tx.Exec(ctx, `INSERT INTO accounts AS a SELECT id, 1 FROM unnest($1::text[]) AS u (id) ON CONFLICT (id) DO UPDATE SET balance = a.balance + 1`, accounts)
		return err
	}
	for _, test := range []struct {
		name string
		cfg  consumer.Config[pgx.Tx]
		says string // "": the handler is right
	}{
		{"a statement for all messages, with GROUP BY", consumer.Config[pgx.Tx]{HandleBatch: setBased(grouped)}, ""},
		{"without GROUP BY", consumer.Config[pgx.Tx]{HandleBatch: setBased(ungrouped)}, "1 effects, want 10"},
		{"ON CONFLICT without GROUP BY", consumer.Config[pgx.Tx]{HandleBatch: upsert}, "21000"},
		{"reads before it writes", consumer.Config[pgx.Tx]{Handle: readAndWrite("")}, ""},
		{"interleaved, with a lock", consumer.Config[pgx.Tx]{Handle: readAndWrite("FOR UPDATE"), Interleave: true}, ""},
		{
			"interleaved, without a lock",
			consumer.Config[pgx.Tx]{Handle: readAndWrite(""), Interleave: true},
			"effects, want 10",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			pool, err := pgxpool.New(t.Context(), testdb.Schema(t, testdb.Postgres18(t)))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(pool.Close)
			store, err := pgxstore.New(pgxstore.Config{Pool: pool})
			if err := errors.Join(err, pgxstore.Migrate(t.Context(), pool, "")); err != nil {
				t.Fatal(err)
			}
			if _, err := pool.Exec(t.Context(), `CREATE TABLE accounts (id text PRIMARY KEY, balance bigint NOT NULL)`); err != nil {
				t.Fatal(err)
			}
			for _, id := range []string{"alice", "bob"} {
				if _, err := pool.Exec(t.Context(), `INSERT INTO accounts VALUES ($1, 0)`, id); err != nil {
					t.Fatal(err)
				}
			}
			suite := consumertest.HandlerTest[pgx.Tx]{
				Store: store,
				New: func(store dedup.Store[pgx.Tx]) (*consumer.Consumer[pgx.Tx], error) {
					cfg := test.cfg
					cfg.Name, cfg.Store, cfg.Key, cfg.Logger = "billing", store, consumer.MessageID,
						slog.New(slog.DiscardHandler)
					return consumer.New(cfg)
				},
				Message: func(n int) *consumer.Message {
					return &consumer.Message{ID: fmt.Sprint("order-", n), Payload: []byte("bob")}
				},
				SameRow: func(n int) *consumer.Message {
					return &consumer.Message{ID: fmt.Sprint("payment-", n), Payload: []byte("alice")}
				},
				Effects: func(ctx context.Context) (n int, err error) {
					err = pool.QueryRow(ctx, `SELECT sum(balance) FROM accounts`).Scan(&n)
					return n, err
				},
			}
			if isChild() {
				consumertest.TestHandler(t, suite)
				return
			}
			failed := failedCases(t)
			said := failed["one row in one batch"]
			if delete(failed, "one row in one batch"); len(failed) > 0 {
				t.Errorf("cases of one message fail: %v", failed)
			}
			if !strings.Contains(said, test.says) || test.says == "" && said != "" {
				t.Errorf("it says %q, want %q", said, test.says)
			}
		})
	}
}

const child = "TXONCE_TEST_FAILING_SUITE"

// isChild reports whether this is the process that failedCases has started.
func isChild() bool { return os.Getenv(child) != "" }

// failedCases runs this test in a process where the suite may fail, and returns what each case of the suite complains
// of.
func failedCases(t *testing.T) map[string]string {
	t.Helper()
	var path []string
	for name := range strings.SplitSeq(t.Name(), "/") {
		path = append(path, "^"+regexp.QuoteMeta(name)+"$")
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run="+strings.Join(path, "/"))
	cmd.Env = append(os.Environ(), child+"=yes")
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	failed := map[string]string{}
	for _, part := range strings.Split(string(out), "--- FAIL: ") {
		if name, ok := strings.CutPrefix(part, t.Name()+"/"); ok {
			name, said, _ := strings.Cut(name, " (")
			failed[strings.ReplaceAll(name, "_", " ")] = said
		}
	}
	if len(failed) == 0 {
		t.Fatalf("%v\n%s", err, out)
	}
	return failed
}
