package pgxstore_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/outbox"
)

// onItsOwn is a Store that is no dedup.Sequencer.
type onItsOwn struct {
	dedup.Store[pgx.Tx]
	consumer.ParkingLot[pgx.Tx]
	dedup.Registrar
	dedup.TxVerifier[pgx.Tx]
	dedup.FaultClassifier
}

// deeds are what a handler may do beside its effect. Those with a number happen that many times for a message.
var deeds = []struct {
	name  string
	times int
	do    func(ctx context.Context, s *pgxstore.Store, tx pgx.Tx, m *consumer.Message) error
}{
	{"nothing", 99, func(context.Context, *pgxstore.Store, pgx.Tx, *consumer.Message) error { return nil }},
	{"fails", 99, func(context.Context, *pgxstore.Store, pgx.Tx, *consumer.Message) error {
		return consumer.Permanent(errors.New("no"))
	}},
	{"fails once", 1, func(context.Context, *pgxstore.Store, pgx.Tx, *consumer.Message) error { return errors.New("not yet") }},
	{"panics once", 1, func(context.Context, *pgxstore.Store, pgx.Tx, *consumer.Message) error { panic("boom") }},
	{"cannot commit", 99, executes(`INSERT INTO children VALUES (1)`)},
	{"cannot commit once", 1, executes(`INSERT INTO children VALUES (1)`)},
	{"swallows an error once", 1, func(ctx context.Context, _ *pgxstore.Store, tx pgx.Tx, _ *consumer.Message) error {
		_, _ = tx.Exec(ctx, `SELECT 1/0`)
		return nil
	}},
	{"is killed once", 1, executes(`SELECT pg_terminate_backend(pg_backend_pid())`)},
	{"is killed once during COMMIT", 1, executes(`INSERT INTO kills VALUES (1)`)},
	{"commits by itself", 1, executes(`COMMIT`)},
	{"changes its session", 99, executes(`SET application_name = 'changed'`)},
	{"sets synchronous_commit", 99, executes(`SET LOCAL synchronous_commit = off`)},
	{"leaves a savepoint", 99, executes(`SAVEPOINT mine`)},
	{"uses the connection", 99, func(ctx context.Context, _ *pgxstore.Store, tx pgx.Tx, _ *consumer.Message) error {
		_, err := tx.Conn().Exec(ctx, `SELECT 1`)
		return err
	}},
	{"enqueues", 99, func(ctx context.Context, s *pgxstore.Store, tx pgx.Tx, m *consumer.Message) error {
		return s.Enqueue(ctx, tx, outbox.Message{Topic: "events", Payload: []byte(m.ID)})
	}},
	{"saves a result", 99, func(ctx context.Context, s *pgxstore.Store, tx pgx.Tx, m *consumer.Message) error {
		return s.SaveResult(ctx, tx, dedup.Key{Consumer: "billing", ID: m.ID}, []byte("r"))
	}},
}

func executes(sql string) func(context.Context, *pgxstore.Store, pgx.Tx, *consumer.Message) error {
	return func(ctx context.Context, _ *pgxstore.Store, tx pgx.Tx, _ *consumer.Message) error {
		_, err := tx.Exec(ctx, sql)
		return err
	}
}

// delivery is a message, and how many of those after it are in the same call of ProcessBatch.
type delivery struct {
	id, key, content string
	deed             int
	last             bool // of its batch
}

func deliveries(r *rand.Rand) (all []delivery) {
	for i := range 24 {
		d := delivery{id: fmt.Sprint("m", i), key: []string{"", "", "a", "b"}[r.IntN(4)], content: "content", deed: max(r.IntN(2*len(deeds))-len(deeds), 0), last: r.IntN(7) == 0}
		if i > 0 && r.IntN(5) == 0 { // a copy, maybe with other content
			d.id, d.deed = all[r.IntN(i)].id, 0
			d.content = []string{"content", "content", "other content"}[r.IntN(3)]
		}
		all = append(all, d)
	}
	return all
}

// outcome handles all, delivers again what must be, and returns what is in the database.
func outcome(t *testing.T, inSequence bool, all []delivery) (found []string) {
	db := newOutboxDB(t, testdb.Postgres, 4)
	db.exec(t, `CREATE TABLE parents (id int PRIMARY KEY); CREATE TABLE children (parent int REFERENCES parents DEFERRABLE INITIALLY DEFERRED);
		CREATE TABLE kills (n int); CREATE FUNCTION kill() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END';
		CREATE CONSTRAINT TRIGGER kill AFTER INSERT ON kills DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION kill()`)
	store := newStore(t, pgxstore.Config{Pool: db.pool, Logger: slog.New(slog.DiscardHandler)})
	var claimsIn dedup.Store[pgx.Tx] = store
	if !inSequence {
		claimsIn = onItsOwn{store, store, store, store, store}
	}
	done := map[string]int{}
	c, err := consumer.New(consumer.Config[pgx.Tx]{
		Name: "billing", Store: claimsIn, Key: consumer.MessageID, MaxBatch: 1, MaxAttempts: 3, ParkLimit: consumer.ParkLimit{Unlimited: true},
		Backoff: func(int) time.Duration { return 0 }, Logger: slog.New(slog.DiscardHandler),
		Handle: func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
			if err := effect(ctx, tx, m.Key+" "+m.ID); err != nil {
				return err
			}
			deed := deeds[m.Position[0]-'A']
			if done[m.ID]++; done[m.ID] > deed.times {
				return nil
			}
			return deed.do(ctx, store, tx, m)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	var batch []*consumer.Message
	for i, d := range all {
		batch = append(batch, &consumer.Message{ID: d.id, Key: d.key, Payload: []byte(d.content), Time: time.Now(), Attempt: 1, Position: fmt.Sprintf("%c%d", 'A'+d.deed, i)})
		if !d.last && i+1 < len(all) {
			continue
		}
		for n := 0; len(batch) > 0; n++ {
			if n == 50 {
				t.Fatalf("%d messages are delivered again and again", len(batch))
			}
			var left []*consumer.Message
			for j, err := range c.ProcessBatch(t.Context(), batch) {
				retry, again := errors.AsType[*consumer.RetryError](err)
				if !again && err != nil {
					found = append(found, fmt.Sprint("rejected ", batch[j].ID))
				}
				if again {
					left = append(left, batch[j])
					if !retry.Uncounted {
						batch[j].Attempt++
					}
				}
			}
			batch = left
		}
	}
	// Within an ordering key, effects have an order.
	for _, key := range []string{"a", "b"} {
		found = append(found, "in order: "+strings.Join(db.strings(t, `SELECT name FROM effects WHERE name LIKE '`+key+` %' ORDER BY ctid`), ","))
	}
	for _, query := range []string{
		`SELECT 'effect ' || name FROM effects ORDER BY 1`,
		`SELECT 'claim ' || id || coalesce(' ' || encode(result, 'escape'), '') FROM processed_messages ORDER BY 1`,
		`SELECT 'letter ' || message_id || ' ' || cause || ' ' || attempts || ' ' || times FROM dead_letters ORDER BY 1`,
		`SELECT 'outbox ' || encode(payload, 'escape') FROM outbox_messages ORDER BY 1`,
	} {
		found = append(found, db.strings(t, query)...)
	}
	return found
}

// Whatever handlers do, and however often they fail, a sequence of transactions has the outcome of transactions on their own.
func TestSequenceProperty(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	effects := 0
	for round := range 6 {
		all := deliveries(r)
		want := outcome(t, false, all)
		got := outcome(t, true, all)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("round %d of seed %d: outcome (-on its own +in sequence):\n%s\n%+v", round, seed, diff, all)
		}
		once := map[string]bool{}
		for _, line := range got {
			if strings.HasPrefix(line, "effect ") {
				effects++
				if once[line] {
					t.Errorf("round %d of seed %d: %s twice", round, seed, line)
				}
				once[line] = true
			}
		}
	}
	if effects == 0 {
		t.Error("no handler had an effect; the test has compared nothing")
	}
}
