package wrong

import (
	"context"
	"handlers/kit"
	"handlers/queries"
	"handlers/shop"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/txonce/txonce/consumer"
)

// ways are handlers that get to txonce in other ways.
type ways struct {
	pool    *pgxpool.Pool
	queries *queries.Queries
	bank    *bank
	ledger  ledger
}

// Fields of another package's struct: a function, a map, modules behind an interface.
func (w *ways) inField(ctx context.Context, tx pgx.Tx, msg *consumer.Message) error {
	_, err := w.pool.Exec(ctx, insert, msg.ID, 1) // want `w.pool.Exec runs outside`
	return err
}

func (w *ways) inMap(ctx context.Context, tx pgx.Tx, msg *consumer.Message) error {
	_, err := w.pool.Exec(ctx, insert, msg.ID, 2) // want `w.pool.Exec runs outside`
	return err
}

type refunds struct{ pool *pgxpool.Pool }

func (r refunds) Name() string { return "refunds" }

func (r refunds) Handle(ctx context.Context, tx pgx.Tx, msg *consumer.Message) error {
	_, err := r.pool.Exec(ctx, insert, msg.ID, 3) // want `r.pool.Exec runs outside`
	return err
}

type carts struct{ pool *pgxpool.Pool }

func (c *carts) Name() string { return "carts" }

func (c *carts) Handle(ctx context.Context, tx pgx.Tx, msg *consumer.Message) error {
	_, err := c.pool.Exec(ctx, insert, msg.ID, 4) // want `c.pool.Exec runs outside`
	return err
}

// Middleware as a struct around an interface.
type logged struct{ next kit.Module }

func (l logged) Name() string { return l.next.Name() }

func (l logged) Handle(ctx context.Context, tx pgx.Tx, msg *consumer.Message) error {
	return l.next.Handle(ctx, tx, msg)
}

type returns struct{ pool *pgxpool.Pool }

func (r *returns) Name() string { return "returns" }

func (r *returns) Handle(ctx context.Context, tx pgx.Tx, msg *consumer.Message) error {
	_, err := r.pool.Exec(ctx, insert, msg.ID, 5) // want `r.pool.Exec runs outside`
	return err
}

// A chain of middleware, here and in another package.
func (w *ways) inChain(ctx context.Context, tx pgx.Tx, msg *consumer.Message) error {
	_, err := w.pool.Exec(ctx, insert, msg.ID, 6) // want `w.pool.Exec runs outside`
	return err
}

func (w *ways) inKitsChain(ctx context.Context, tx pgx.Tx, msg *consumer.Message) error {
	_, err := w.pool.Exec(ctx, insert, msg.ID, 7) // want `w.pool.Exec runs outside`
	return err
}

func (w *ways) counted(next kit.HandleFunc) kit.HandleFunc {
	return func(ctx context.Context, tx pgx.Tx, msg *consumer.Message) error {
		if _, err := w.pool.Exec(ctx, `UPDATE counts SET n = n + 1`); err != nil { // want `w.pool.Exec runs outside`
			return err
		}
		return next(ctx, tx, msg)
	}
}

func (w *ways) audited(next kit.HandleFunc) kit.HandleFunc {
	return func(ctx context.Context, tx pgx.Tx, msg *consumer.Message) error {
		if _, err := w.pool.Exec(ctx, `INSERT INTO audit DEFAULT VALUES`); err != nil { // want `w.pool.Exec runs outside`
			return err
		}
		return next(ctx, tx, msg)
	}
}

func chain(handle kit.HandleFunc, around []func(kit.HandleFunc) kit.HandleFunc) kit.HandleFunc {
	for _, a := range around {
		handle = a(handle)
	}
	return handle
}

// Goroutines that a library starts, and that nobody waits for. What they do on the pool is wrong in any case.
func (w *ways) groups(ctx context.Context, tx pgx.Tx, o shop.Order) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { // want `g.Go: another goroutine uses the handler's transaction`
		_, err := tx.Exec(ctx, insert, o.ID, 1)
		return err
	})
	g.Go(saving(ctx, tx, o)) // want `g.Go: another goroutine uses the handler's transaction`
	return nil
}

func saving(ctx context.Context, tx pgx.Tx, o shop.Order) func() error {
	return func() error {
		_, err := tx.Exec(ctx, insert, o.ID, 3)
		return err
	}
}

func (w *ways) waited(ctx context.Context, tx pgx.Tx, o shop.Order) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		_, err := w.pool.Exec(ctx, insert, o.ID, 2) // want `w.pool.Exec runs outside`
		return err
	})
	return g.Wait()
}

func (w *ways) unwaited(ctx context.Context, tx pgx.Tx, o shop.Order) (err error) {
	var wg sync.WaitGroup
	wg.Go(func() { err = w.queries.WithTx(tx).InsertCharge(ctx, queries.InsertChargeParams{OrderID: o.ID}) }) // want `wg.Go: another goroutine`
	time.AfterFunc(time.Second, func() { _, err = tx.Exec(ctx, insert, o.ID, 4) })                            // want `time.AfterFunc: another goroutine`
	return err
}

// A DBTX that is the pool, in a variable and in a function's argument.
func (w *ways) dbtx(ctx context.Context, tx pgx.Tx, o shop.Order) error {
	var db queries.DBTX = w.pool
	if o.Cents == 0 {
		db = w.bank.pool
	}
	if err := queries.New(db).InsertCharge(ctx, queries.InsertChargeParams{OrderID: o.ID}); err != nil { // want `InsertCharge \(queries.go:\d+\) runs outside.*; use queries.New\(…\).WithTx\(tx\).InsertCharge$`
		return err
	}
	return insertInto(ctx, w.pool, o) // want `insertInto \(ways.go:\d+\) runs outside`
}

func insertInto(ctx context.Context, db queries.DBTX, o shop.Order) error {
	_, err := db.Exec(ctx, insert, o.ID, o.Cents)
	return err
}

// Code that asks whether it has a transaction, and has none: what it asks existed before the handler's transaction.
type bank struct {
	pool *pgxpool.Pool
	tx   pgx.Tx
}

func (b *bank) with(tx pgx.Tx) *bank { return &bank{pool: b.pool, tx: tx} }

func (b *bank) charge(ctx context.Context, o shop.Order) error {
	if b.tx != nil {
		_, err := b.tx.Exec(ctx, insert, o.ID, o.Cents)
		return err
	}
	_, err := b.pool.Exec(ctx, insert, o.ID, o.Cents) // want `b.pool.Exec runs outside`
	return err
}

func (w *ways) asks(ctx context.Context, tx pgx.Tx, o shop.Order) error { return w.bank.charge(ctx, o) }

// An interface with one type behind it, and one that is made in the handler.
type ledger interface {
	Record(ctx context.Context, o shop.Order) error
}

func (w *ways) throughInterface(ctx context.Context, tx pgx.Tx, o shop.Order) error {
	if err := w.ledger.Record(ctx, o); err != nil { // want `w.ledger.Record \(shop.go:\d+\) runs outside`
		return err
	}
	var l ledger = shop.Ledger{Pool: w.pool}
	return l.Record(ctx, o) // want `l.Record \(shop.go:\d+\) runs outside`
}

// Handlers that generic functions make.
func insertRow[T any](pool *pgxpool.Pool, table string) kit.HandleFunc {
	return func(ctx context.Context, tx pgx.Tx, msg *consumer.Message) error {
		var row T
		_, err := pool.Exec(ctx, "INSERT INTO "+table+" VALUES ($1)", row) // want `pool.Exec runs outside`
		return err
	}
}

func work[TTx any](handle func(ctx context.Context, tx TTx, o shop.Order) error) consumer.Config[TTx] {
	charge := func(ctx context.Context, tx TTx, o shop.Order) error { return handle(ctx, tx, o) }
	return consumer.Config[TTx]{Handle: consumer.JSON(charge)}
}

func (w *ways) toWork(ctx context.Context, tx pgx.Tx, o shop.Order) error {
	_, err := w.pool.Exec(ctx, insert, o.ID, 1) // want `w.pool.Exec runs outside`
	return err
}

func (w *ways) toSaver(ctx context.Context, tx pgx.Tx, o shop.Order) error {
	_, err := w.pool.Exec(ctx, insert, o.ID, 2) // want `w.pool.Exec runs outside`
	return err
}

// gRPC: a connection, and a client as protoc generates it.
type rater interface {
	Rate(ctx context.Context, o *shop.Order, opts ...grpc.CallOption) (*shop.Order, error)
}

type risk struct {
	conn  *grpc.ClientConn
	rates rater
}

func (r risk) rated(ctx context.Context, tx pgx.Tx, o shop.Order) error {
	if err := r.conn.Invoke(ctx, "/risk/Rate", &o, &o); err != nil { // want `r.conn.Invoke calls another system in the handler`
		return err
	}
	_, err := r.rates.Rate(ctx, &o) // want `r.rates.Rate calls another system in the handler`
	return err
}

func registerWays(w *ways, r risk) (all []any) {
	w.ledger = shop.Ledger{Pool: w.pool}
	h := kit.Handlers{OnOrder: w.inField, All: []kit.Module{refunds{w.pool}, &carts{w.pool}}}
	h.ByTopic = map[string]kit.HandleFunc{"orders": w.inMap}
	for _, cfg := range kit.NewApp(h, kit.Logged, w.audited) {
		all = append(all, cfg)
	}
	around := []func(kit.HandleFunc) kit.HandleFunc{kit.Logged, w.counted}
	return append(all, kit.Register(logged{&returns{w.pool}}),
		consumer.Config[pgx.Tx]{Handle: chain(w.inChain, around)},
		consumer.Config[pgx.Tx]{Handle: kit.Chain(w.inKitsChain, kit.Logged)},
		consumer.JSON(w.groups), consumer.JSON(w.waited), consumer.JSON(w.unwaited), consumer.JSON(w.dbtx),
		consumer.JSON(w.asks),
		consumer.JSON(w.throughInterface), consumer.Config[pgx.Tx]{Handle: insertRow[shop.Order](w.pool, "orders")},
		work(w.toWork), consumer.Config[pgx.Tx]{Handle: kit.Saver(w.toSaver)}, consumer.JSON(r.rated))
}
