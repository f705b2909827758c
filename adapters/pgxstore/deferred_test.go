package pgxstore_test

import (
	"context"
	"database/sql/driver"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/test/testdb"
)

// panics is an argument whose method panics.
type panics string

func (panics) Value() (driver.Value, error) { panic("in Value") }

// Statements that travel with COMMIT are those that the handler has queued, whatever it does after Pipeline has returned.
func TestDeferredStatements(t *testing.T) {
	queue := func(args ...any) func(ctx context.Context, tx pgx.Tx, msgs []*consumer.Message) error {
		return pgxstore.Pipeline(func(_ context.Context, b *pgx.Batch, m *consumer.Message) error {
			if len(args) == 0 {
				args = []any{m.ID}
			}
			b.Queue(insertEffect, args...)
			return nil
		})
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, test := range map[string]struct {
		handle func(ctx context.Context, tx pgx.Tx, msgs []*consumer.Message) error
		want   string // the effect; empty: none
	}{
		"then a statement whose ctx has ended, which is ignored": {func(ctx context.Context, tx pgx.Tx, msgs []*consumer.Message) error {
			err := queue("kept")(ctx, tx, msgs)
			_, _ = tx.Exec(ended, `SELECT 1`)
			return err
		}, "kept"},
		"then a statement while rows are open, which is ignored": {func(ctx context.Context, tx pgx.Tx, msgs []*consumer.Message) error {
			rows, err := tx.Query(ctx, `SELECT generate_series(1, 10)`)
			if err != nil {
				return err
			}
			err = queue("kept")(ctx, tx, msgs)
			_, _ = tx.Exec(ctx, `SELECT 1`)
			rows.Close()
			return err
		}, "kept"},
		"then the argument changes": {func(ctx context.Context, tx pgx.Tx, msgs []*consumer.Message) error {
			arg := []byte("as queued")
			err := queue(arg)(ctx, tx, msgs)
			copy(arg, "XXXXXXXXX")
			return err
		}, "as queued"},
		"then what the argument points to changes": {func(ctx context.Context, tx pgx.Tx, msgs []*consumer.Message) error {
			arg := "as queued"
			err := queue(&arg)(ctx, tx, msgs)
			arg = "changed"
			return err
		}, "as queued"},
		"after the deadline that the handler has set for them": {func(ctx context.Context, tx pgx.Tx, msgs []*consumer.Message) error {
			limited, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
			defer cancel()
			err := queue("in time")(limited, tx, msgs)
			<-limited.Done()
			return err
		}, "in time"},
		"an argument panics": {queue(panics("x")), ""},
	} {
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, ClaimLate %v", name, late), func(t *testing.T) {
				t.Parallel()
				db := newOutboxDB(t, testdb.Postgres18, 2)
				handle := queue("warm")
				c := newConsumer(t, db.store, consumer.Config[pgx.Tx]{
					Name: "billing", ClaimLate: late, MaxAttempts: 1,
					HandleBatch: func(ctx context.Context, tx pgx.Tx, msgs []*consumer.Message) error { return handle(ctx, tx, msgs) },
				})
				warm(t, c)
				handle = test.handle
				if err := c.Process(t.Context(), fresh("order-1")); err != nil {
					t.Fatal(err)
				}
				var want []string
				if test.want != "" {
					want = []string{test.want}
				}
				if got := db.strings(t, `SELECT name FROM effects WHERE name <> 'warm'`); !slices.Equal(got, want) {
					t.Errorf("effects %q, want %q", got, want)
				}
				letters, err := c.DeadLetters(t.Context(), consumer.DeadLetterFilter{Limit: 10})
				if parks := test.want == ""; err != nil || (len(letters) == 1) != parks {
					t.Errorf("%d letters, %v; want one: %v", len(letters), err, parks)
				}
			})
		}
	}
}

// A message that makes a temporary table named like the user's takes no effects of the others.
func TestPipelineWithATemporaryTable(t *testing.T) {
	db := newOutboxDB(t, testdb.Postgres18, 2)
	c := newConsumer(t, db.store, consumer.Config[pgx.Tx]{
		Name: "billing", Backoff: func(int) time.Duration { return 0 },
		HandleBatch: pgxstore.Pipeline(func(_ context.Context, b *pgx.Batch, m *consumer.Message) error {
			if m.ID == "own table" {
				b.Queue(`CREATE TEMP TABLE effects (name text) ON COMMIT DROP`)
			}
			b.Queue(insertEffect, m.ID)
			return nil
		}),
	})
	var msgs []*consumer.Message
	for _, id := range []string{"a", "b", "own table", "d", "e"} {
		msgs = append(msgs, fresh(id))
	}
	for range 10 {
		var again []*consumer.Message
		for i, err := range c.ProcessBatch(t.Context(), msgs) {
			if err != nil {
				again = append(again, msgs[i])
			}
		}
		msgs = again
	}
	if got := db.strings(t, `SELECT name FROM effects ORDER BY 1`); !slices.Equal(got, []string{"a", "b", "d", "e"}) {
		t.Errorf("effects %q, want those of the other messages", got)
	}
}
