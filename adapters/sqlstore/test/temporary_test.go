package sqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"testing"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/internal/test/testdb"
)

// batchOf handles six messages, a to f, in batches. Each message has one effect; then leave runs. batchOf returns the
// names of the effects that db sees, and the number of transactions that the handlers got.
func batchOf(t *testing.T, db *sql.DB, s *node, leave func(ctx context.Context, tx *sql.Tx, id string) error) (effects []string, transactions int) {
	t.Helper()
	var xids []string
	c, err := consumer.New(consumer.Config[*sql.Tx]{
		Name: "suite", Store: s, Key: consumer.MessageID,
		Handle: func(ctx context.Context, tx *sql.Tx, msg *consumer.Message) error {
			var xid string
			err := tx.QueryRowContext(ctx, `INSERT INTO effects (name) VALUES ($1) RETURNING pg_current_xact_id()::text`, msg.ID).Scan(&xid)
			if xids = append(xids, xid); err == nil {
				err = leave(ctx, tx, msg.ID)
			}
			return err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	var batch []*consumer.Message
	for _, id := range []string{"a", "b", "c", "d", "e", "f"} {
		batch = append(batch, &consumer.Message{ID: id, Position: "suite/" + id, Payload: []byte(id), Attempt: 1})
	}
	for i, err := range c.ProcessBatch(t.Context(), batch) {
		if err != nil {
			t.Errorf("%s: %v", batch[i].ID, err)
		}
	}
	return stringsOf(t, db, `SELECT name FROM effects ORDER BY name`), len(slices.Compact(xids))
}

// A temporary table hides a table of the same name from all later statements of the transaction, also from those of
// other handlers.
func TestATemporaryTableOfANeighbour(t *testing.T) {
	t.Parallel()
	for _, create := range []string{
		`CREATE TEMP TABLE effects (name text)`,
		`CREATE TEMP TABLE effects (name text) ON COMMIT DROP`,
		`SELECT 'x' AS name INTO TEMP effects`,
		`DO $$ BEGIN EXECUTE 'CREATE TEMP' || ' TABLE effects (name text) ON COMMIT DROP'; END $$`,
	} {
		t.Run(create, func(t *testing.T) {
			t.Parallel()
			d := openPostgres(t, testdb.Postgres18(t))
			s := d.open(t, d.dsn, deduptest.Options{})
			s.db.SetMaxOpenConns(1)
			effects, _ := batchOf(t, d.db, s, func(ctx context.Context, tx *sql.Tx, id string) error {
				if id != "b" && id != "e" {
					return nil
				}
				_, err := tx.ExecContext(ctx, create)
				return err
			})
			if want := []string{"a", "b", "c", "d", "e", "f"}; !slices.Equal(effects, want) {
				t.Errorf("the effects are %v, want %v", effects, want)
			}
		})
	}
}

// Handlers that drop their temporary tables share a transaction, also on a connection that the application gave a
// temporary table.
func TestATemporaryTableThatIsDropped(t *testing.T) {
	t.Parallel()
	d := openPostgres(t, testdb.Postgres18(t))
	s := d.open(t, d.dsn, deduptest.Options{})
	s.db.SetMaxOpenConns(1)
	if _, err := s.db.Exec(`CREATE TEMP TABLE of_the_application (name text)`); err != nil {
		t.Fatal(err)
	}
	effects, transactions := batchOf(t, d.db, s, func(ctx context.Context, tx *sql.Tx, _ string) error {
		_, err := tx.ExecContext(ctx, `CREATE TEMP TABLE staged (name text); DROP TABLE staged`)
		return err
	})
	if len(effects) != 6 || transactions != 1 {
		t.Errorf("%d effects in %d transactions, want 6 in 1", len(effects), transactions)
	}
}

// A replay is one handler's transaction, so it may leave a temporary table. Then the letter is removed in the same
// transaction.
func TestAReplayMayLeaveATemporaryTable(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db fixture) {
		s := alone(db)
		broken := true
		c, err := consumer.New(consumer.Config[*sql.Tx]{
			Name: "suite", Store: s, Key: consumer.MessageID,
			Handle: func(ctx context.Context, tx *sql.Tx, _ *consumer.Message) error {
				if broken {
					return consumer.Permanent(errors.New("the deployment is broken"))
				}
				_, err := tx.ExecContext(ctx, `CREATE TEMPORARY TABLE scratch (n int)`)
				if err == nil {
					_, err = tx.ExecContext(ctx, `INSERT INTO effects (name) VALUES ('x')`)
				}
				return err
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		if err := c.Process(t.Context(), &consumer.Message{
			ID: "a", Position: "suite/a", Payload: []byte("a"),
			Attempt: 1,
		}); err != nil {
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
		if n := db.count(t, `SELECT count(*) FROM effects`); n != 1 {
			t.Errorf("%d effects, want 1", n)
		}
	})
}
