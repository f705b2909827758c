package pgxstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/test/testdb"
)

// A temporary table hides the handlers' table of the same name for the rest of the transaction, also with ON COMMIT
// DROP. So no other handler may run in it.
func TestATemporaryTableOfANeighbour(t *testing.T) {
	for _, create := range []string{
		`CREATE TEMP TABLE effects (name text)`,
		`CREATE TEMP TABLE effects (name text) ON COMMIT DROP`,
		`SELECT 'x' AS name INTO TEMP effects`,
		`DO $$ BEGIN EXECUTE 'CREATE TEMP' || ' TABLE effects (name text) ON COMMIT DROP'; END $$`,
	} {
		for _, interleave := range []bool{false, true} {
			t.Run(fmt.Sprint(create, " interleave ", interleave), func(t *testing.T) {
				t.Parallel()
				h := newHandlerTest(t, testdb.Postgres(t), pgxstore.Config{})
				c := newConsumer(t, h.store, consumer.Config[pgx.Tx]{Name: "suite", Interleave: interleave, Handle: func(ctx context.Context, tx pgx.Tx, msg *consumer.Message) error {
					_, err := tx.Exec(ctx, `INSERT INTO effects (name) VALUES ($1)`, msg.ID)
					if err == nil && (msg.ID == "b" || msg.ID == "e") {
						_, err = tx.Exec(ctx, create)
					}
					return err
				}})
				want := []string{"a", "b", "c", "d", "e", "f"}
				for i, err := range c.ProcessBatch(t.Context(), deliveriesOf(want...)) {
					if err != nil {
						t.Errorf("%s: %v", want[i], err)
					}
				}
				got := h.db.strings(t, `SELECT name FROM effects ORDER BY name`)
				if !slices.Equal(got, want) {
					t.Errorf("the effects are %v, want %v", got, want)
				}
			})
		}
	}
}

// A handler may use a temporary table and drop it. Then its neighbours stay in its transaction.
func TestATemporaryTableThatIsDropped(t *testing.T) {
	t.Parallel()
	h := newHandlerTest(t, testdb.Postgres(t), pgxstore.Config{})
	var transactions []string
	c := newConsumer(t, h.store, consumer.Config[pgx.Tx]{Name: "suite", Handle: func(ctx context.Context, tx pgx.Tx, msg *consumer.Message) error {
		for _, sql := range []string{`CREATE TEMP TABLE staged (name text)`, `DROP TABLE staged`} {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
		var xid string
		err := tx.QueryRow(ctx, `SELECT pg_current_xact_id()::text`).Scan(&xid)
		transactions = append(transactions, xid)
		return err
	}})
	for _, err := range c.ProcessBatch(t.Context(), deliveriesOf("a", "b", "c")) {
		if err != nil {
			t.Error(err)
		}
	}
	if len(transactions) != 3 || len(slices.Compact(transactions)) != 1 {
		t.Errorf("the handlers ran in the transactions %v, want one for three", transactions)
	}
}

// A replay is one handler's transaction, so it may leave a temporary table. Then the letter is removed in the same
// transaction.
func TestAReplayMayLeaveATemporaryTable(t *testing.T) {
	t.Parallel()
	h := newHandlerTest(t, testdb.Postgres(t), pgxstore.Config{})
	broken := true
	c := newConsumer(t, h.store, consumer.Config[pgx.Tx]{Name: "suite", Handle: func(ctx context.Context, tx pgx.Tx, msg *consumer.Message) error {
		if broken {
			return consumer.Permanent(errors.New("the deployment is broken"))
		}
		_, err := tx.Exec(ctx, `CREATE TEMP TABLE dead_letters (name text) ON COMMIT DROP`)
		if err == nil {
			_, err = tx.Exec(ctx, `INSERT INTO effects (name) VALUES ($1)`, msg.ID)
		}
		return err
	}})
	if err := c.Process(t.Context(), deliveriesOf("a")[0]); err != nil {
		t.Fatal(err)
	}
	broken = false
	letters, err := c.DeadLetters(t.Context(), consumer.DeadLetterFilter{})
	if err != nil || len(letters) != 1 {
		t.Fatalf("%d letters, %v", len(letters), err)
	}
	if ran, err := c.Replay(t.Context(), letters[0], consumer.Replay{}); !ran || err != nil {
		t.Errorf("ran %v, %v", ran, err)
	}
	if left, err := c.DeadLetters(t.Context(), consumer.DeadLetterFilter{}); err != nil || len(left) != 0 {
		t.Errorf("%d letters are left, %v", len(left), err)
	}
	if got := h.effects(); !slices.Equal(got, []string{"a"}) {
		t.Errorf("the effects are %v, want those of a", got)
	}
}

func deliveriesOf(ids ...string) []*consumer.Message {
	msgs := make([]*consumer.Message, len(ids))
	for i, id := range ids {
		msgs[i] = &consumer.Message{ID: id, Position: "suite/" + id, Payload: []byte(id), Attempt: 1}
	}
	return msgs
}
