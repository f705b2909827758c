package right

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"handlers/kit"
	"handlers/queries"
	"handlers/shop"
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

// team is a service as a team writes it, with what it shares in package kit.
type team struct {
	pool   *pgxpool.Pool
	orders *kit.Repo[shop.Order]
	work   *kit.Work
	db     *bun.DB
	gorm   *gorm.DB
	out    outbox.Writer[pgx.Tx]
	*queries.Queries
}

// A repository that is made for each transaction, in four ways.
func (t *team) repositories(ctx context.Context, tx pgx.Tx, o shop.Order) error {
	if err := kit.NewRepo[shop.Order](tx, "orders").Save(ctx, o); err != nil {
		return err
	}
	if err := t.orders.With(tx).Save(ctx, o); err != nil {
		return err
	}
	if err := t.orders.SaveTo(ctx, o, kit.In(tx)); err != nil {
		return err
	}
	r := kit.NewRepo[shop.Order](t.pool, "orders")
	r.Use(tx)
	return r.Save(ctx, o)
}

// The transaction in a struct, beside what else the work needs.
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
	return c.WithTx(c.tx).InsertCharge(ctx, queries.InsertChargeParams{OrderID: c.order.ID})
}

// The transaction in a context, with the pool for programs that have none there.
func (t *team) inCtx(ctx context.Context, tx pgx.Tx, o shop.Order) error {
	return t.insert(kit.WithTx(ctx, tx), o)
}

func (t *team) insert(ctx context.Context, o shop.Order) error {
	_, err := kit.From(ctx, t.pool).Exec(ctx, insert, o.ID, o.Cents)
	return err
}

// Savepoints in a helper, with a literal and with a method.
func (t *team) savepoints(ctx context.Context, tx pgx.Tx, o shop.Order) error {
	err := kit.Savepoint(ctx, tx, func(sp pgx.Tx) error {
		_, err := sp.Exec(ctx, insert, o.ID, o.Cents)
		return err
	})
	if err != nil {
		return kit.Savepoint(ctx, tx, t.rejected)
	}
	return nil
}

func (t *team) rejected(tx pgx.Tx) error {
	_, err := tx.Exec(context.TODO(), `INSERT INTO rejected DEFAULT VALUES`)
	return err
}

// A savepoint that takes the name of the transaction.
func (t *team) shadowed(ctx context.Context, tx pgx.Tx, o shop.Order) (err error) {
	tx, err = tx.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = tx.Rollback(ctx)
		}
	}()
	if _, err = tx.Exec(ctx, insert, o.ID, o.Cents); err != nil {
		return err
	}
	return kit.Finish(ctx, tx, nil)
}

// CopyFrom and a batch on the connection below.
func (t *team) copies(ctx context.Context, tx pgx.Tx, o shop.Order) error {
	conn := tx.Conn()
	_, err := conn.CopyFrom(ctx, pgx.Identifier{"lines"}, []string{"id"}, pgx.CopyFromRows([][]any{{o.ID}}))
	if err != nil {
		return err
	}
	b := &pgx.Batch{}
	b.Queue(insert, o.ID, o.Cents)
	return conn.SendBatch(ctx, b).Close()
}

// Rows that a literal closes.
func closes(ctx context.Context, tx *sql.Tx, o shop.Order) (err error) {
	rows, err := tx.QueryContext(ctx, `SELECT cents FROM lines WHERE order_id = $1`, o.ID)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := rows.Scan(&o.Cents); err != nil {
			return err
		}
	}
	return rows.Err()
}

// gorm: scopes, a subquery, the generic interface, a savepoint by name.
func (t *team) gorms(ctx context.Context, tx *gorm.DB, o shop.Order) error {
	open := func(db *gorm.DB) *gorm.DB { return db.Where("open") }
	if err := tx.Scopes(open).Where("id IN (?)", t.gorm.Model(&o).Select("id")).First(&o).Error; err != nil {
		return err
	}
	if err := gorm.G[shop.Order](tx).Create(ctx, &o); err != nil {
		return err
	}
	if err := tx.SavePoint("a").Error; err != nil {
		return err
	}
	if result := tx.Session(&gorm.Session{NewDB: true}).Save(&o); result.Error != nil {
		return tx.RollbackTo("a").Error
	}
	return nil
}

// bun: a generic helper, a savepoint.
func upsert[M any](ctx context.Context, db bun.IDB, m *M) error {
	_, err := db.NewInsert().Model(m).On("CONFLICT DO NOTHING").Exec(ctx)
	return err
}

func (t *team) buns(ctx context.Context, tx bun.Tx, o shop.Order) error {
	if err := upsert(ctx, tx, &o); err != nil {
		return err
	}
	return tx.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error { return upsert(ctx, tx, &o) })
}

// watermill: a literal that gets the transaction through a method.
func (t *team) txOf(msg *message.Message) pgx.Tx { return watermilltx.Tx[pgx.Tx](msg.Context()) }

func (t *team) watermillHandler() message.NoPublishHandlerFunc {
	return func(msg *message.Message) error {
		return t.orders.With(t.txOf(msg)).Save(msg.Context(), shop.Order{ID: msg.UUID})
	}
}

// An outgoing message whose ID comes from the incoming one.
func (t *team) events(ctx context.Context, tx pgx.Tx, msg *consumer.Message) error {
	row := uuid.New()
	if _, err := tx.Exec(ctx, insert, row, time.Now().Unix()); err != nil {
		return err
	}
	if err := t.out.Enqueue(ctx, tx, kit.EventOf("charged", msg.ID)); err != nil {
		return err
	}
	var id string
	if err := tx.QueryRow(ctx, `SELECT id FROM events WHERE at < $1`, time.Now()).Scan(&id); err != nil {
		return err
	}
	return t.out.Enqueue(ctx, tx, outbox.Message{Topic: "paid", ID: id})
}

type paid struct{ OrderID string }

func (p paid) key() (string, error) { return "paid/" + p.OrderID, nil }

func hashed(msg *consumer.Message) (string, error) {
	h := sha256.New()
	h.Write(msg.Payload)
	if age := time.Since(msg.Time); age > time.Hour {
		return "", fmt.Errorf("%s is %v old in attempt %d", msg.Position, age, msg.Attempt)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// A route has a handler in a field.
type route struct {
	name   string
	handle func(context.Context, pgx.Tx, *consumer.Message) error
}

func registerTeam(t *team) (all []any) {
	routes := []route{
		{"events", t.events},
		{"logged", kit.Logged(t.events)},
		{"closure", func(ctx context.Context, tx pgx.Tx, msg *consumer.Message) error {
			return t.savepoints(ctx, tx, shop.Order{ID: msg.ID})
		}},
	}
	for _, r := range routes {
		all = append(all, consumer.Config[pgx.Tx]{Name: r.name, Key: hashed, Handle: r.handle})
	}
	return append(all,
		kit.Typed(t.repositories), kit.Typed(t.inStruct), kit.Typed(t.inCtx), kit.Typed(t.savepoints), kit.Typed(t.shadowed), kit.Typed(t.copies),
		consumer.JSON(closes), consumer.JSON(t.gorms), consumer.JSON(t.buns), t.watermillHandler(), consumer.KeyOf(paid.key))
}
