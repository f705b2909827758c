package wrong

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"handlers/kit"
	"handlers/queries"
	"handlers/shop"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/uptrace/bun"
	"gorm.io/gorm"

	"github.com/txonce/txonce/adapters/watermilltx"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/outbox"
)

var shared *gorm.DB

// team is a service as a team writes it, with what it shares in package kit.
type team struct {
	pool   *pgxpool.Pool
	orders *kit.Repo[shop.Order]
	work   *kit.Work
	db     *bun.DB
	out    outbox.Writer[pgx.Tx]
	*queries.Queries
}

type base struct{ pool *pgxpool.Pool }

func (b base) purge(ctx context.Context, tx pgx.Tx, msg *consumer.Message) error {
	_, err := b.pool.Exec(ctx, `DELETE FROM carts WHERE id = $1`, msg.ID) // want `b.pool.Exec runs outside`
	return err
}

// A method that is promoted.
type cart struct{ base }

// A generic service.
type typed[T any] struct{ pool *pgxpool.Pool }

func (s *typed[T]) handle(ctx context.Context, tx pgx.Tx, body T) error {
	_, err := s.pool.Exec(ctx, `INSERT INTO bodies (body) VALUES ($1)`, body) // want `s.pool.Exec runs outside`
	return err
}

// Handlers for each way of registration.
func (t *team) toLogged(ctx context.Context, tx pgx.Tx, msg *consumer.Message) error {
	_, err := t.pool.Exec(ctx, insert, msg.ID, 1) // want `t.pool.Exec runs outside`
	return err
}

func (t *team) toTyped(ctx context.Context, tx pgx.Tx, o shop.Order) error {
	_, err := t.pool.Exec(ctx, insert, o.ID, 1) // want `t.pool.Exec runs outside`
	return err
}

func (t *team) toTimed(ctx context.Context, tx pgx.Tx, msg *consumer.Message) error {
	_, err := t.pool.Exec(ctx, insert, msg.ID, 2) // want `t.pool.Exec runs outside`
	return err
}

func (t *team) toRoute(ctx context.Context, tx pgx.Tx, msg *consumer.Message) error {
	_, err := t.pool.Exec(ctx, insert, msg.ID, 3) // want `t.pool.Exec runs outside`
	return err
}

func (t *team) toMap(ctx context.Context, tx pgx.Tx, msg *consumer.Message) error {
	_, err := t.pool.Exec(ctx, insert, msg.ID, 4) // want `t.pool.Exec runs outside`
	return err
}

func (t *team) toSubscribe(ctx context.Context, tx pgx.Tx, msg *consumer.Message) error {
	_, err := t.pool.Exec(ctx, insert, msg.ID, 5) // want `t.pool.Exec runs outside`
	return err
}

func timed(next kit.HandleFunc) kit.HandleFunc {
	return func(ctx context.Context, tx pgx.Tx, msg *consumer.Message) error {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		return next(ctx, tx, msg)
	}
}

func subscribe(name string, handle kit.HandleFunc) consumer.Config[pgx.Tx] {
	return consumer.Config[pgx.Tx]{Name: name, Handle: handle}
}

// A transaction of its own, in a helper of another package.
func (t *team) ownWork(ctx context.Context, tx pgx.Tx, o shop.Order) error {
	return t.work.Do(ctx, func(tx pgx.Tx) error { // want `t.work.Do \(kit.go:\d+\) runs outside`
		_, err := tx.Exec(ctx, insert, o.ID, o.Cents)
		return err
	})
}

// A repository without the transaction, and one that is made of the pool.
func (t *team) repositories(ctx context.Context, tx pgx.Tx, o shop.Order) error {
	if err := t.orders.Save(ctx, o); err != nil { // want `t.orders.Save \(kit.go:\d+\) runs outside`
		return err
	}
	if err := t.orders.SaveTo(ctx, o); err != nil { // want `t.orders.SaveTo \(kit.go:\d+\) runs outside`
		return err
	}
	return kit.NewRepo[shop.Order](t.pool, "orders").Save(ctx, o) // want `Save \(kit.go:\d+\) runs outside`
}

// sqlc's Queries, embedded.
func (t *team) embedded(ctx context.Context, tx pgx.Tx, o shop.Order) error {
	return t.InsertCharge(ctx, queries.InsertChargeParams{OrderID: o.ID}) // want `t.InsertCharge \(queries.go:\d+\) runs outside`
}

// The pool, from a struct that has the transaction too.
type charging struct {
	*team
	tx    pgx.Tx
	order shop.Order
}

func (t *team) inStruct(ctx context.Context, tx pgx.Tx, o shop.Order) error {
	c := &charging{team: t, tx: tx, order: o}
	return c.run(ctx)
}

func (c *charging) run(ctx context.Context) error {
	if _, err := c.tx.Exec(ctx, insert, c.order.ID, c.order.Cents); err != nil {
		return err
	}
	_, err := c.pool.Exec(ctx, insert, c.order.ID, c.order.Cents) // want `c.pool.Exec runs outside`
	return err
}

// A connection of the pool.
func (t *team) acquires(ctx context.Context, tx pgx.Tx, o shop.Order) error {
	conn, err := t.pool.Acquire(ctx) // want `t.pool.Acquire runs outside`
	if err != nil {
		return err
	}
	defer conn.Release()
	_, err = conn.Exec(ctx, insert, o.ID, o.Cents)
	return err
}

// The transaction ends in a helper of another package, and in a literal.
func (t *team) finishes(ctx context.Context, tx pgx.Tx, o shop.Order) (err error) {
	defer func() {
		if err != nil {
			_ = tx.Rollback(ctx) // want `tx.Rollback: txonce begins and ends`
		}
	}()
	_, err = tx.Exec(ctx, insert, o.ID, o.Cents)
	return kit.Finish(ctx, tx, err) // want `kit.Finish: tx.Rollback: txonce begins` `kit.Finish: tx.Commit: txonce begins`
}

// Goroutines that get the transaction, in a struct and in a method.
func (t *team) goes(ctx context.Context, tx pgx.Tx, o shop.Order) error {
	c := &charging{team: t, tx: tx, order: o}
	go c.run(ctx)                     // want `go c.run: another goroutine uses`
	go t.orders.With(tx).Save(ctx, o) // want `go t.orders.With\(…\).Save: another goroutine uses`
	return nil
}

// A method value in a savepoint.
func (t *team) methodValue(ctx context.Context, tx pgx.Tx, o shop.Order) error {
	return kit.Savepoint(ctx, tx, t.rejected)
}

func (t *team) rejected(sp pgx.Tx) error {
	_, err := t.pool.Exec(context.TODO(), `INSERT INTO rejected DEFAULT VALUES`) // want `t.pool.Exec runs outside`
	return err
}

// gorm: a package's variable, the generic interface.
func gorms(ctx context.Context, tx *gorm.DB, o shop.Order) error {
	if err := shared.Create(&o).Error; err != nil { // want `shared.Create runs outside`
		return err
	}
	if err := tx.WithContext(context.Background()).Create(&o).Error; err != nil { // want `gets context.Background`
		return err
	}
	return gorm.G[shop.Order](shared).Create(ctx, &o) // want `Create runs outside`
}

// bun: a transaction of its own, an error that nobody reads.
func (t *team) buns(ctx context.Context, tx bun.Tx, o shop.Order) error {
	tx.NewInsert().Model(&o).Exec(ctx)                                         // want `Exec: nobody reads its error`
	return t.db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error { // want `t.db.RunInTx runs outside`
		_, err := tx.NewInsert().Model(&o).Exec(ctx)
		return err
	})
}

// watermill: a literal.
func (t *team) watermillHandler() message.NoPublishHandlerFunc {
	return func(msg *message.Message) error {
		tx := watermilltx.Tx[pgx.Tx](msg.Context())
		if _, err := tx.Exec(context.Background(), insert, msg.UUID, 1); err != nil { // want `gets context.Background`
			return err
		}
		_, err := t.pool.Exec(msg.Context(), insert, msg.UUID, 1) // want `t.pool.Exec runs outside`
		return err
	}
}

// Errors that nobody reads, of sqlc and of a helper.
func (t *team) dropped(ctx context.Context, tx pgx.Tx, o shop.Order) error {
	t.WithTx(tx).InsertCharge(ctx, queries.InsertChargeParams{OrderID: o.ID}) // want `InsertCharge: nobody reads its error`
	_ = t.orders.With(tx).Save(ctx, o)                                        // want `Save: nobody reads its error`
	_, err := tx.Exec(ctx, insert, o.ID, 1)                                   // want `tx.Exec: nobody reads its error`
	_, err = tx.Exec(ctx, insert, o.ID, 2)
	return err
}

// Rows that a literal closes, without their error.
func closes(ctx context.Context, tx *sql.Tx, o shop.Order) error {
	rows, err := tx.QueryContext(ctx, `SELECT cents FROM lines WHERE order_id = $1`, o.ID) // want `nobody calls Err on these rows`
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := rows.Scan(&o.Cents); err != nil {
			return err
		}
	}
	return nil
}

var background = context.Background()

// IDs of outgoing messages, and a context in a variable.
func (t *team) events(ctx context.Context, tx pgx.Tx, msg *consumer.Message) error {
	if _, err := tx.Exec(background, insert, msg.ID, 1); err != nil { // want `gets context.Background`
		return err
	}
	return t.out.Enqueue(ctx, tx, kit.Event("charged", msg.Payload)) // want `kit.Event: outbox.Message.ID is made of uuid.NewString`
}

type paid struct{ OrderID string }

func (p paid) key() (string, error) {
	return strings.Join([]string{p.OrderID, time.Now().Format(time.DateOnly)}, "/"), nil // want `the key is made of time.Now`
}

func hashed(msg *consumer.Message) (string, error) {
	h := sha256.New()
	h.Write([]byte(msg.Position)) // want `the key is made of Message.Position`
	return hex.EncodeToString(h.Sum(nil)), nil
}

func summed(msg *consumer.Message) (string, error) {
	sum := sha256.Sum256([]byte(msg.Topic + msg.Position)) // want `the key is made of Message.Position`
	return hex.EncodeToString(sum[:]), nil
}

func received(payload []byte) *consumer.Message {
	msg := &consumer.Message{Payload: payload}
	if msg.ID == "" {
		msg.ID = uuid.Must(uuid.NewV7()).String() // want `Message.ID is made of uuid.NewV7`
	}
	return msg
}

type route struct {
	name   string
	handle func(context.Context, pgx.Tx, *consumer.Message) error
}

func registerTeam(t *team) (all []any) {
	for _, r := range []route{{"a", t.toRoute}} {
		all = append(all, consumer.Config[pgx.Tx]{Name: r.name, Key: kit.ByAttempt("a"), Handle: r.handle})
	}
	byName := map[string]func(context.Context, pgx.Tx, *consumer.Message) error{"b": t.toMap}
	for name, handle := range byName {
		all = append(all, consumer.Config[pgx.Tx]{Name: name, Key: hashed, Handle: handle})
	}
	bodies := &typed[shop.Order]{t.pool}
	return append(all,
		consumer.Config[pgx.Tx]{Handle: cart{base{t.pool}}.purge},
		consumer.Config[pgx.Tx]{Handle: kit.Logged(t.toLogged), Key: summed},
		consumer.Config[pgx.Tx]{Handle: timed(t.toTimed)},
		subscribe("c", t.toSubscribe), consumer.JSON(bodies.handle), kit.Typed(t.toTyped),
		consumer.JSON(t.ownWork), consumer.JSON(t.repositories), consumer.JSON(t.embedded), consumer.JSON(t.inStruct),
		consumer.JSON(t.acquires), consumer.JSON(t.finishes), consumer.JSON(t.goes), consumer.JSON(t.methodValue),
		consumer.JSON(gorms), consumer.JSON(t.buns), t.watermillHandler(), consumer.JSON(t.dropped), consumer.JSON(closes),
		consumer.Handler[pgx.Tx](t.events), consumer.KeyOf(paid.key), received(nil))
}
