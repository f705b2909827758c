package pgxstore_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/outbox"
)

// A program that manages its transaction itself claims in that transaction.
func ExampleStore_Claim_postgres() {
	ctx := context.Background()
	pool, cleanUp := examplePool(ctx)
	defer cleanUp()

	store, err := pgxstore.New(pgxstore.Config{Pool: pool})
	if err != nil {
		log.Fatal(err)
	}
	rec := dedup.Record{Key: dedup.Key{Consumer: "billing", ID: "order-42:paid"}, Time: time.Now()}
	for range 2 {
		err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			claims, err := store.Claim(ctx, tx, []dedup.Record{rec})
			if err != nil {
				return err
			}
			fmt.Println(claims[0].Verdict)
			if claims[0].Verdict != dedup.First {
				return nil
			}
			_, err = tx.Exec(ctx, `SELECT 'the effect'`)
			return err
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// first
	// duplicate
}

// Register reports at start what would make every message fail.
func ExampleConfig_postgres() {
	ctx := context.Background()
	pool, cleanUp := examplePool(ctx)
	defer cleanUp()

	store, err := pgxstore.New(pgxstore.Config{
		Pool:         pool,
		Isolation:    pgx.ReadCommitted,
		ClaimTimeout: 2 * time.Second,
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(store.Register(ctx, "billing", dedup.DefaultWindow))
	// Output: <nil>
}

// A transfer reads and writes two accounts. Neither account is the key of the transfer's message, so the handler locks
// both.
func ExampleStore_LockKeys_postgres() {
	ctx := context.Background()
	pool, cleanUp := examplePool(ctx)
	defer cleanUp()

	store, err := pgxstore.New(pgxstore.Config{Pool: pool, ClaimTimeout: 2 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	account := func(id string) dedup.Key { return dedup.Key{Consumer: "accounts", Tenant: "acme", ID: id} }
	transfer := func(from, to string, move func()) error { // in a consumer, the handler does this in its transaction
		return store.InTx(ctx, nil, func(tx pgx.Tx, _ []dedup.Claim) error {
			if err := store.LockKeys(ctx, tx, account(from), account(to)); err != nil {
				return err
			}
			move() // reads both balances, decides, and writes both
			return nil
		})
	}
	err = transfer("alice", "bob", func() {
		err := transfer("bob", "carol", func() {})
		fmt.Println("meanwhile, bob is taken:", errors.Is(err, dedup.ErrInFlight))
		fmt.Println("meanwhile, carol and dave are free:", transfer("carol", "dave", func() {}))
	})
	fmt.Println("alice to bob:", err)
	fmt.Println("bob to carol:", transfer("bob", "carol", func() {}))
	// Output:
	// meanwhile, bob is taken: true
	// meanwhile, carol and dave are free: <nil>
	// alice to bob: <nil>
	// bob to carol: <nil>
}

// Each message queues its SQL, and the statements of a whole batch take one round trip. A BatchHandler around Pipeline
// has the transaction that Enqueue needs: outbox messages are written together with COMMIT.
func ExamplePipeline_postgres() {
	ctx := context.Background()
	pool, cleanUp := examplePool(ctx)
	defer cleanUp()

	store, err := pgxstore.New(pgxstore.Config{Pool: pool})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := pool.Exec(ctx, `CREATE TABLE accounts (id text PRIMARY KEY, balance bigint NOT NULL)`); err != nil {
		log.Fatal(err)
	}
	charge := func(ctx context.Context, tx pgx.Tx, msgs []*consumer.Message) error {
		return pgxstore.Pipeline(func(ctx context.Context, b *pgx.Batch, msg *consumer.Message) error {
			b.Queue(`INSERT INTO accounts VALUES ($1, 1) ON CONFLICT (id) DO UPDATE SET balance = accounts.balance + 1 RETURNING balance`, msg.OrderingKey).
				QueryRow(func(row pgx.Row) error {
					var balance int64
					if err := row.Scan(&balance); err != nil {
						return err
					}
					if balance > 2 {
						return consumer.Permanent(fmt.Errorf("%s: the balance of %s would be %d", msg.ID,
							msg.OrderingKey, balance))
					}
					return nil
				})
			return store.Enqueue(ctx, tx, outbox.Message{
				Topic: "charged", OrderingKey: msg.OrderingKey,
				Payload: msg.Payload,
			})
		})(ctx, tx, msgs)
	}
	c, err := consumer.New(consumer.Config[pgx.Tx]{
		Name: "billing", Store: store, Key: consumer.MessageID, HandleBatch: charge,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		log.Fatal(err)
	}
	var msgs []*consumer.Message
	for i, account := range []string{"alice", "alice", "bob", "alice", "bob"} {
		msgs = append(msgs, &consumer.Message{
			ID: fmt.Sprint("order-", i), OrderingKey: account, Time: time.Now(),
			Attempt: 1,
		})
	}
	fmt.Println(c.ProcessBatch(ctx, msgs))

	var total, events int
	if err := pool.QueryRow(ctx, `SELECT (SELECT sum(balance) FROM accounts), (SELECT count(*) FROM outbox_messages)`).Scan(&total, &events); err != nil {
		log.Fatal(err)
	}
	fmt.Println(total, "charged,", events, "events")
	letters, err := c.DeadLetters(ctx, consumer.DeadLetterFilter{})
	if err != nil {
		log.Fatal(err)
	}
	for _, l := range letters {
		fmt.Println("parked:", l.Error)
	}
	// Output:
	// [<nil> <nil> <nil> <nil> <nil>]
	// 4 charged, 4 events
	// parked: order-3: the balance of alice would be 3
}

// One statement for all messages of a batch. It adds up the messages for one account first: an UPDATE changes a row
// only once, so without GROUP BY it would lose two of the three charges.
func ExampleStore_setBased_postgres() {
	ctx := context.Background()
	pool, cleanUp := examplePool(ctx)
	defer cleanUp()

	store, err := pgxstore.New(pgxstore.Config{Pool: pool})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := pool.Exec(ctx, `CREATE TABLE accounts AS SELECT text 'alice' AS id, bigint '0' AS balance`); err != nil {
		log.Fatal(err)
	}
	c, err := consumer.New(consumer.Config[pgx.Tx]{
		Name: "billing", Store: store, Key: consumer.MessageID, Logger: slog.New(slog.DiscardHandler),
		HandleBatch: func(ctx context.Context, tx pgx.Tx, msgs []*consumer.Message) error {
			var accounts []string
			for _, m := range msgs {
				accounts = append(accounts, m.OrderingKey)
			}
			_, err := tx.Exec(ctx, `UPDATE accounts a SET balance = a.balance + n.charges
				FROM (SELECT id, count(*) AS charges FROM unnest($1::text[]) AS m(id) GROUP BY id) n WHERE n.id = a.id`, accounts)
			return err
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	c.ProcessBatch(ctx, []*consumer.Message{
		{ID: "1", OrderingKey: "alice"},
		{ID: "2", OrderingKey: "alice"},
		{ID: "3", OrderingKey: "alice"},
	})
	var balance int
	fmt.Println(pool.QueryRow(ctx, `SELECT balance FROM accounts`).Scan(&balance), balance)
	// Output: <nil> 3
}

// examplePool connects to its own schema on the server that make services-up starts.
func examplePool(ctx context.Context) (pool *pgxpool.Pool, cleanUp func()) {
	tb := &exampleTB{}
	pool, err := pgxpool.New(ctx, testdb.Schema(tb, testdb.Postgres(tb)))
	if err != nil {
		log.Fatal(err)
	}
	if err := pgxstore.Migrate(ctx, pool, ""); err != nil {
		log.Fatal(err)
	}
	return pool, func() {
		pool.Close()
		for _, f := range tb.cleanups {
			f()
		}
	}
}

// exampleTB implements the part of testing.TB that testdb needs.
type exampleTB struct {
	testing.TB
	cleanups []func()
}

func (*exampleTB) Helper()                           {}
func (*exampleTB) Context() context.Context          { return context.Background() }
func (*exampleTB) Name() string                      { return "Example" }
func (*exampleTB) Fatal(args ...any)                 { log.Fatal(args...) }
func (*exampleTB) Fatalf(format string, args ...any) { log.Fatalf(format, args...) }
func (*exampleTB) Error(args ...any)                 { log.Fatal(args...) }
func (*exampleTB) Skipf(format string, args ...any)  { log.Fatalf(format, args...) }
func (tb *exampleTB) Cleanup(f func())               { tb.cleanups = append(tb.cleanups, f) }
