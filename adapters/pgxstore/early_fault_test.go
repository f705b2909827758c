package pgxstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/internal/test/wireproxy"
)

// Every fourth COMMIT is cut, so that the only round trip of a message is cut too, before and after the server has it.
// Each message is delivered until it is acknowledged, and has one effect and one outbox message in the end.
func TestClaimLateCommitUnknown(t *testing.T) {
	for _, f := range []deduptest.Fault{deduptest.CommitLost, deduptest.AnswerLost, deduptest.CommitLate} {
		t.Run(f.String(), func(t *testing.T) {
			t.Parallel()
			db := newOutboxDB(t, testdb.Postgres18, 2)
			var commits atomic.Int64
			cut := wireproxy.PostgresEach(t, db.dsn, func() (deduptest.Fault, bool) { return f, commits.Add(1)%4 == 0 })
			store := newStore(t, pgxstore.Config{Pool: testPool(t, cut, 1), ClaimTimeout: time.Minute})
			c := db.late(t, store, consumer.Config[pgx.Tx]{Backoff: func(int) time.Duration { return 0 }}, nil)
			const messages = 20
			var want []string
			open := 0
			for i := range messages {
				m := fresh(fmt.Sprintf("order-%02d", i))
				m.Topic = "charged"
				want = append(want, m.ID)
				for tries := 0; ; tries++ {
					err := c.ProcessBatch(t.Context(), []*consumer.Message{m})[0]
					if err == nil {
						break
					}
					open++
					if retry, ok := errors.AsType[*consumer.RetryError](err); !ok || !retry.Held || tries == 50 {
						t.Fatalf("%s: %v", m.ID, err)
					}
				}
			}
			if open == 0 {
				t.Error("no message was delivered again: no fault was seen")
			}
			if got := db.strings(t, `SELECT name FROM effects ORDER BY name`); !slices.Equal(got, want) {
				t.Errorf("effects %v, want one of each message", got)
			}
			if n := len(db.ids(t)); n != messages {
				t.Errorf("%d outbox messages, want %d", n, messages)
			}
		})
	}
}

// HandlerTimeout also limits statements that travel with COMMIT, with and without ClaimLate.
func TestHandlerTimeoutLimitsDeferredStatements(t *testing.T) {
	for _, late := range []bool{false, true} {
		t.Run(fmt.Sprintf("ClaimLate %v", late), func(t *testing.T) {
			t.Parallel()
			db := newOutboxDB(t, testdb.Postgres18, 2)
			c := newConsumer(t, db.store, consumer.Config[pgx.Tx]{
				Name: "billing", ClaimLate: late, HandlerTimeout: time.Second, MaxAttempts: 1,
				HandleBatch: pgxstore.Pipeline(func(_ context.Context, b *pgx.Batch, m *consumer.Message) error {
					b.Queue(insertEffect, m.ID)
					if string(m.Payload) == "slow" {
						b.Queue(`SELECT pg_sleep(120)`)
					}
					return nil
				}),
			})
			for i := range 4 {
				if err := c.Process(t.Context(), fresh(fmt.Sprint("warm-", i))); err != nil {
					t.Fatal(err)
				}
			}
			m := fresh("slow")
			m.Payload = []byte("slow")
			if err := c.Process(t.Context(), m); err != nil {
				t.Fatalf("Process = %v, want nil: parked", err)
			}
			letters, err := c.DeadLetters(t.Context(), consumer.DeadLetterFilter{Limit: 10})
			if err != nil || len(letters) != 1 || !strings.Contains(letters[0].Error, "HandlerTimeout") {
				t.Errorf("parked: %+v, %v; want one whose error names HandlerTimeout", letters, err)
			}
			if got := db.strings(t, `SELECT name FROM effects`); len(got) != 4 {
				t.Errorf("effects %v, want those of the first four", got)
			}
		})
	}
}

// Behind a pooler, each transaction may meet another session.
func TestClaimLateBehindPgBouncer(t *testing.T) {
	for _, mode := range []string{"cache_describe"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			pooled, _ := testdb.ReusedPgBouncer(t, outboxTables)
			oneEffectEach(t, openOutboxDB(t, pooled+"&default_query_exec_mode="+mode, 4))
		})
	}
}

// Another client of the pooler changes the only session. No message commits there without waiting for the disk.
func TestClaimLateFindsAChangedSession(t *testing.T) {
	_, direct := testdb.ReusedPgBouncer(t, outboxTables)
	pooled, _ := testdb.StartPgBouncer(t, direct, "default_pool_size = 1")
	db := openOutboxDB(t, pooled+"&default_query_exec_mode=cache_describe", 1)
	c := db.late(t, db.store, consumer.Config[pgx.Tx]{}, nil)
	for i := range 4 {
		if err := c.Process(t.Context(), fresh(fmt.Sprint("warm-", i))); err != nil {
			t.Fatal(err)
		}
	}
	neighbour := testPool(t, pooled+"&default_query_exec_mode=exec", 1)
	if _, err := neighbour.Exec(t.Context(), `SET synchronous_commit = off`); err != nil {
		t.Fatal(err)
	}
	m := fresh("durable")
	err := c.ProcessBatch(t.Context(), []*consumer.Message{m})[0]
	if retry, ok := errors.AsType[*consumer.RetryError](err); ok && retry.Held { // the Store has closed the session
		err = c.ProcessBatch(t.Context(), []*consumer.Message{m})[0]
	}
	if got := db.strings(t, `SELECT name || current_setting('synchronous_commit') FROM effects WHERE name = 'durable'`); err != nil || !slices.Equal(got, []string{"durableon"}) {
		t.Errorf("Process = %v, effects and session %v, want durable and on", err, got)
	}
}
