package right

import (
	"context"
	"handlers/kit"
	"handlers/queries"
	"handlers/shop"
	"log/slog"
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
	either  ledger
	risk    *grpc.ClientConn
}

// Fields of another package's struct: a function, a map, modules behind an interface.
func (w *ways) inField(ctx context.Context, tx pgx.Tx, msg *consumer.Message) error {
	_, err := tx.Exec(ctx, insert, msg.ID, 1)
	return err
}

// It is not called with txonce's transaction, although its type is a handler's.
func (w *ways) closed(ctx context.Context, tx pgx.Tx, msg *consumer.Message) error {
	_, err := w.pool.Exec(ctx, insert, msg.ID, 2)
	return err
}

type refunds struct{ pool *pgxpool.Pool }

func (r refunds) Name() string {
	if err := r.pool.QueryRow(context.Background(), `SELECT 1`).Scan(new(int)); err != nil { // when the program starts
		return "none"
	}
	return "refunds"
}

func (r refunds) Handle(ctx context.Context, tx pgx.Tx, msg *consumer.Message) error {
	_, err := tx.Exec(ctx, insert, msg.ID, 3)
	return err
}

// Middleware as a struct around an interface.
type logged struct{ next kit.Module }

func (l logged) Name() string { return l.next.Name() }

func (l logged) Handle(ctx context.Context, tx pgx.Tx, msg *consumer.Message) error {
	return l.next.Handle(ctx, tx, msg)
}

// A chain of middleware, here and in another package.
func (w *ways) inChain(ctx context.Context, tx pgx.Tx, msg *consumer.Message) error {
	return w.inField(ctx, tx, msg)
}

func (w *ways) counted(next kit.HandleFunc) kit.HandleFunc {
	if _, err := w.pool.Exec(context.Background(), `CREATE TABLE IF NOT EXISTS counts (n bigint)`); err != nil {
		slog.Error("no counts", "error", err)
	}
	return func(ctx context.Context, tx pgx.Tx, msg *consumer.Message) error {
		if _, err := tx.Exec(ctx, `UPDATE counts SET n = n + 1`); err != nil {
			return err
		}
		return next(ctx, tx, msg)
	}
}

// Goroutines that a library starts, without the transaction, and a function that only is called Go.
func (w *ways) groups(ctx context.Context, tx pgx.Tx, o shop.Order) error {
	g, ctx := errgroup.WithContext(ctx)
	rates := make([]int64, 2)
	for i := range rates {
		g.Go(func() error {
			rates[i] = o.Cents * int64(i)
			return ctx.Err()
		})
	}
	g.Go(checking(o))
	if err := g.Wait(); err != nil {
		return err
	}
	var wg sync.WaitGroup
	wg.Go(func() { slog.InfoContext(ctx, "charged", "order", o.ID) })
	wg.Wait()
	defer time.AfterFunc(time.Minute, func() { slog.Warn("slow", "order", o.ID) }).Stop()
	for _, cents := range rates {
		if err := (inline{}).Go(func() error {
			_, err := tx.Exec(ctx, insert, o.ID, cents)
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

type inline struct{}

func (inline) Go(f func() error) error { return f() }

func checking(o shop.Order) func() error {
	return func() error { return context.Cause(context.Background()) }
}

// A goroutine with the transaction that the handler waits for.
func (w *ways) waited(ctx context.Context, tx pgx.Tx, o shop.Order) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		_, err := tx.Exec(ctx, insert, o.ID, 1)
		return err
	})
	startIn(g, ctx, tx, o)
	if err := g.Wait(); err != nil {
		return err
	}
	done := make(chan error)
	go func() {
		_, err := tx.Exec(ctx, insert, o.ID, 2)
		done <- err
	}()
	if err := <-done; err != nil {
		return err
	}
	return <-started(ctx, tx, o)
}

func started(ctx context.Context, tx pgx.Tx, o shop.Order) <-chan error {
	done := make(chan error, 1)
	go func() { done <- insertInto(ctx, tx, o) }()
	return done
}

func (w *ways) waitedLater(ctx context.Context, tx pgx.Tx, o shop.Order) (err error) {
	var wg sync.WaitGroup
	func() {
		defer wg.Wait()
		err = addTo(ctx, &wg, tx, o)
	}()
	return err
}

func addTo(ctx context.Context, wg *sync.WaitGroup, tx pgx.Tx, o shop.Order) (err error) {
	wg.Add(1)
	go func() {
		defer wg.Done()
		err = insertInto(ctx, tx, o)
	}()
	return nil
}

func startIn(g *errgroup.Group, ctx context.Context, tx pgx.Tx, o shop.Order) {
	g.Go(func() error { return insertInto(ctx, tx, o) })
}

// Structs that a handler takes for one message, and gives its transaction.
type lent struct {
	mu     sync.Mutex
	bank   *bank
	free   chan *bank
	plain  ledgerOf
	byID   map[string]queries.DBTX
	ledger ledger
	till   *shop.Till
	shop.Till2
}

func (l *lent) locked(ctx context.Context, tx pgx.Tx, o shop.Order) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bank.tx = tx
	if err := l.bank.charge(ctx, o); err != nil {
		return err
	}
	l.plain.db = tx
	l.ledger = ledgerOf{tx}
	if err := l.ledger.Insert(ctx, o); err != nil {
		return err
	}
	return l.plain.Insert(ctx, o)
}

func (l *lent) set(tx pgx.Tx) { l.bank = &bank{tx: tx} }

func (l *lent) setFirst(ctx context.Context, tx pgx.Tx, o shop.Order) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.set(tx)
	return l.bank.charge(ctx, o)
}

func (l *lent) fromChannel(ctx context.Context, tx pgx.Tx, o shop.Order) error {
	b := <-l.free
	defer func() { l.free <- b }()
	b.tx = tx
	return b.charge(ctx, o)
}

func (l *lent) inMap(ctx context.Context, tx pgx.Tx, o shop.Order) error {
	l.byID[o.ID] = tx
	defer delete(l.byID, o.ID)
	return insertInto(ctx, l.byID[o.ID], o)
}

func (l *lent) ofOtherPackage(ctx context.Context, tx pgx.Tx, o shop.Order) error {
	l.till.Tx = tx
	if err := l.till.Charge(ctx, o); err != nil {
		return err
	}
	l.Till2.Begin(tx)
	return l.Till2.Charge(ctx, o)
}

// An interface that a caller in another package may have set.
type Service struct {
	Ledger  ledger
	private ledger
}

func NewService(l ledger) *Service { return &Service{Ledger: l, private: l} }

func (s *Service) charge(ctx context.Context, tx pgx.Tx, o shop.Order) error {
	if err := s.private.Insert(ctx, o); err != nil {
		return err
	}
	return s.Ledger.Insert(ctx, o)
}

func testService(pool *pgxpool.Pool) *Service {
	s := NewService(ledgerOf{pool})
	s.Ledger = ledgerOf{pool}
	return s
}

// A DBTX that is the transaction, or that may be it.
func (w *ways) dbtx(ctx context.Context, tx pgx.Tx, o shop.Order) error {
	var db queries.DBTX = w.pool
	if tx != nil {
		db = tx
	}
	if err := queries.New(db).InsertCharge(ctx, queries.InsertChargeParams{OrderID: o.ID}); err != nil {
		return err
	}
	return insertInto(ctx, tx, o)
}

func insertInto(ctx context.Context, db queries.DBTX, o shop.Order) error {
	_, err := db.Exec(ctx, insert, o.ID, o.Cents)
	return err
}

// Code that asks whether it has a transaction, and has it.
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
	_, err := b.pool.Exec(ctx, insert, o.ID, o.Cents)
	return err
}

func (w *ways) asks(ctx context.Context, tx pgx.Tx, o shop.Order) error {
	if err := w.bank.with(tx).charge(ctx, o); err != nil {
		return err
	}
	b := *w.bank
	b.tx = tx
	return b.charge(ctx, o)
}

// Interfaces: one that writes in the transaction that ctx has, one with two types behind it, one made of the transaction.
type ledger interface {
	Insert(ctx context.Context, o shop.Order) error
}

type ledgerOf struct{ db queries.DBTX }

func (l ledgerOf) Insert(ctx context.Context, o shop.Order) error {
	_, err := l.db.Exec(ctx, insert, o.ID, o.Cents)
	return err
}

type noLedger struct{}

func (noLedger) Insert(ctx context.Context, o shop.Order) error { return nil }

func (w *ways) throughInterface(ctx context.Context, tx pgx.Tx, o shop.Order) error {
	if err := w.ledger.Insert(shop.WithTx(ctx, tx), o); err != nil {
		return err
	}
	if err := w.either.Insert(ctx, o); err != nil {
		return err
	}
	var l ledger = ledgerOf{tx}
	return l.Insert(ctx, o)
}

// Handlers that generic functions make.
func insertRow[T any](pool *pgxpool.Pool, table string) kit.HandleFunc {
	return func(ctx context.Context, tx pgx.Tx, msg *consumer.Message) error {
		var row T
		_, err := tx.Exec(ctx, "INSERT INTO "+table+" VALUES ($1)", row)
		return err
	}
}

func work[TTx any](handle func(ctx context.Context, tx TTx, o shop.Order) error) consumer.Config[TTx] {
	charge := func(ctx context.Context, tx TTx, o shop.Order) error { return handle(ctx, tx, o) }
	return consumer.Config[TTx]{Handle: consumer.JSON(charge)}
}

func (w *ways) toWork(ctx context.Context, tx pgx.Tx, o shop.Order) error {
	return w.bank.with(tx).charge(ctx, o)
}

// gRPC: what calls nobody.
func (w *ways) closesConn(ctx context.Context, tx pgx.Tx, o shop.Order) error {
	if o.Cents < 0 {
		return w.risk.Close()
	}
	return insertInto(ctx, tx, o)
}

func registerLent(l *lent) []any {
	return []any{
		consumer.JSON(l.locked), consumer.JSON(l.setFirst), consumer.JSON(l.fromChannel), consumer.JSON(l.inMap),
		consumer.JSON(l.ofOtherPackage), consumer.JSON(testService(l.bank.pool).charge),
	}
}

func registerWays(w *ways) (all []any) {
	w.ledger = shop.Repository{Pool: w.pool}
	w.either = ledgerOf{w.pool}
	if w.pool == nil {
		w.either = noLedger{}
	}
	h := kit.Handlers{OnOrder: w.inField, All: []kit.Module{refunds{w.pool}}, Closed: w.closed}
	h.ByTopic = map[string]kit.HandleFunc{"orders": w.inField}
	for _, cfg := range kit.NewApp(h, kit.Logged, w.counted) {
		all = append(all, cfg)
	}
	return append(all, kit.Register(logged{refunds{w.pool}}),
		consumer.Config[pgx.Tx]{Handle: kit.Chain(w.inChain, kit.Logged, w.counted)},
		consumer.JSON(w.groups), consumer.JSON(w.dbtx), consumer.JSON(w.asks), consumer.JSON(w.throughInterface),
		consumer.Config[pgx.Tx]{Handle: insertRow[shop.Order](w.pool, "orders")}, work(w.toWork),
		consumer.Config[pgx.Tx]{Handle: kit.Saver(w.toWork)}, consumer.JSON(w.closesConn), consumer.JSON(w.waited), consumer.JSON(w.waitedLater))
}
