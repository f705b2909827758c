// Package right has handlers in which nothing is wrong.
package right

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"handlers/queries"
	"handlers/shop"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/uptrace/bun"
	"gorm.io/gorm"

	"github.com/txonce/txonce/adapters/httpidem"
	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/adapters/sqlstore/gormstore"
	"github.com/txonce/txonce/adapters/watermilltx"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/outbox"
)

const insert = `INSERT INTO charges (order_id, cents) VALUES ($1, $2)`

type service struct {
	pool    *pgxpool.Pool
	db      *sql.DB
	stmt    *sql.Stmt
	queries *queries.Queries
	gorm    *gorm.DB
	bun     *bun.DB
	store   *pgxstore.Store
	ledger  shop.Ledger
	repo    shop.Repository
	logger  *slog.Logger
	hooks   hooks
}

// 1: statements, an outgoing message, a literal within the handler.
func (s *service) plain(ctx context.Context, tx pgx.Tx, o shop.Order) error {
	save := func(id string) error {
		_, err := tx.Exec(ctx, insert, id, o.Cents)
		return err
	}
	if err := save(o.ID); err != nil {
		return err
	}
	return s.store.Enqueue(ctx, tx, outbox.Message{Topic: "charges", OrderingKey: o.ID, ID: shop.OrderKey(o)})
}

// 2: helpers that get the transaction.
func (s *service) helpers(ctx context.Context, tx pgx.Tx, o shop.Order) error {
	return s.ledger.RecordIn(ctx, tx, o)
}

// 3: sqlc, from the transaction.
func (s *service) sqlc(ctx context.Context, tx pgx.Tx, o shop.Order) error {
	if err := s.queries.WithTx(tx).InsertCharge(ctx, queries.InsertChargeParams{OrderID: o.ID}); err != nil {
		return err
	}
	q := queries.New(tx)
	_, err := q.Total(ctx)
	return err
}

// 4: what is below the transaction.
func (s *service) below(ctx context.Context, tx pgx.Tx, o shop.Order) error {
	_, err := tx.Conn().Exec(ctx, insert, o.ID, o.Cents)
	return err
}

// 5: savepoints.
func (s *service) savepoint(ctx context.Context, tx pgx.Tx, o shop.Order) error {
	sp, err := tx.Begin(ctx)
	if err != nil {
		return err
	}
	defer sp.Rollback(ctx)
	if _, err := sp.Exec(ctx, insert, o.ID, o.Cents); err != nil {
		return sp.Rollback(ctx)
	}
	return sp.Commit(ctx)
}

// 6: a savepoint around a function.
func (s *service) savepointFunc(ctx context.Context, tx pgx.Tx, o shop.Order) error {
	err := pgx.BeginFunc(ctx, tx, func(sp pgx.Tx) error {
		_, err := sp.Exec(ctx, insert, o.ID, o.Cents)
		return err
	})
	if err != nil {
		s.logger.WarnContext(ctx, "not charged", "order", o.ID, "error", err)
	}
	return nil
}

// 7: savepoints as text.
func savepointText(ctx context.Context, tx *sql.Tx, o shop.Order) error {
	if _, err := tx.ExecContext(ctx, `SAVEPOINT a`); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, insert, o.ID, o.Cents); err != nil {
		_, undo := tx.ExecContext(ctx, `ROLLBACK TO SAVEPOINT a`)
		return errors.Join(err, undo)
	}
	_, err := tx.ExecContext(ctx, `DO $$ BEGIN PERFORM 1; COMMIT; END $$`) // a function's body, whatever it says
	return err
}

// 8: gorm, from the transaction.
func (s *service) onGorm(ctx context.Context, tx *gorm.DB, o shop.Order) error {
	db := tx.WithContext(ctx)
	db.Create(&o) // gormstore fails the transaction
	return db.Transaction(func(sp *gorm.DB) error { return sp.Model(&o).Where("id = ?", o.ID).Update("cents", 1).Error })
}

// 9: database/sql below gorm.
func (s *service) belowGorm(ctx context.Context, tx *gorm.DB, o shop.Order) error {
	_, err := gormstore.TxOf(tx).ExecContext(ctx, insert, o.ID, o.Cents)
	return err
}

// 10: bun, from the transaction, in two ways.
func (s *service) onBun(ctx context.Context, tx bun.Tx, o shop.Order) error {
	if _, err := s.bun.NewInsert().Model(&o).Conn(tx).Exec(ctx); err != nil {
		return err
	}
	var db bun.IDB = tx
	_, err := db.NewUpdate().Model(&o).WherePK().Exec(ctx)
	return err
}

// 11: a prepared statement.
func (s *service) prepared(ctx context.Context, tx *sql.Tx, o shop.Order) error {
	_, err := tx.StmtContext(ctx, s.stmt).ExecContext(ctx, o.ID, o.Cents)
	return err
}

// 12: the transaction travels in ctx.
func (s *service) inContext(ctx context.Context, tx pgx.Tx, o shop.Order) error {
	return s.repo.Insert(shop.WithTx(ctx, tx), o)
}

// 13: a function that uses the pool only without a transaction.
func (s *service) either(ctx context.Context, tx *sql.Tx, o shop.Order) error {
	return s.saveEither(ctx, tx, o)
}

func (s *service) saveEither(ctx context.Context, tx *sql.Tx, o shop.Order) error {
	if tx == nil {
		_, err := s.db.ExecContext(ctx, insert, o.ID, o.Cents)
		return err
	}
	_, err := tx.ExecContext(ctx, insert, o.ID, o.Cents)
	return err
}

type executor interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// 14: one of several executors, chosen here.
func (s *service) chosen(ctx context.Context, tx *sql.Tx, o shop.Order) error {
	var db executor = s.db
	if o.Cents > 0 {
		db = tx
	}
	return shop.Save(ctx, db, o)
}

// 15: a repository that is made for each transaction.
type charges struct {
	db  executor
	log *slog.Logger
}

func (s *service) repository(ctx context.Context, tx *sql.Tx, o shop.Order) error {
	c := charges{db: tx, log: s.logger}
	return c.add(ctx, o)
}

func (c charges) add(ctx context.Context, o shop.Order) error {
	_, err := c.db.ExecContext(ctx, insert, o.ID, o.Cents)
	return err
}

// 16: in the style of ent: a client that was made from the transaction, behind an interface.
type client struct{ driver driver }

type driver interface {
	Exec(ctx context.Context, query string, args, v any) error
}

type txDriver struct{ tx *sql.Tx }

func (d txDriver) Exec(ctx context.Context, query string, args, v any) error {
	_, err := d.tx.ExecContext(ctx, query, args.([]any)...)
	return err
}

func (c *client) charge(ctx context.Context, o shop.Order) error {
	return c.driver.Exec(ctx, insert, []any{o.ID, o.Cents}, nil)
}

func ent(ctx context.Context, tx *sql.Tx, o shop.Order) error {
	return (&client{driver: txDriver{tx}}).charge(ctx, o)
}

// 17: rows, read to their end.
func rows(ctx context.Context, tx *sql.Tx, o shop.Order) error {
	rows, err := tx.QueryContext(ctx, `SELECT cents FROM lines WHERE order_id = $1`, o.ID)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := rows.Scan(&o.Cents); err != nil {
			return err
		}
	}
	return rows.Err()
}

// 18: rows that another function reads, and one that is read only if it is there.
func collected(ctx context.Context, tx pgx.Tx, o shop.Order) error {
	rows, err := tx.Query(ctx, `SELECT cents FROM lines WHERE order_id = $1`, o.ID)
	if err != nil {
		return err
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return err
	}
	var name string
	err = tx.QueryRow(ctx, `SELECT name FROM orders WHERE id = $1`, o.ID).Scan(&name)
	if errors.Is(err, pgx.ErrNoRows) {
		return consumer.Permanent(fmt.Errorf("no order %s with %d lines", o.ID, len(all)))
	}
	return err
}

// 19: goroutines that do not get the transaction, only what was read through it.
func (s *service) goroutines(ctx context.Context, tx pgx.Tx, o shop.Order) error {
	total, err := queries.New(tx).Total(ctx)
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		defer wg.Done()
		s.logger.InfoContext(ctx, "charged", "total", total, "order", o)
	}()
	wg.Wait()
	return nil
}

// 20: a context with a deadline, and one that survives it.
func contexts(ctx context.Context, tx pgx.Tx, o shop.Order) error {
	short, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if _, err := tx.Exec(short, insert, o.ID, o.Cents); err != nil {
		return err
	}
	_, err := tx.Exec(context.WithoutCancel(ctx), insert, o.ID, o.Cents)
	return err
}

// 21: a batch whose results are read.
func batch(ctx context.Context, tx pgx.Tx, msgs []*consumer.Message) error {
	b := &pgx.Batch{}
	for _, msg := range msgs {
		b.Queue(insert, string(msg.Payload), 1)
	}
	results := tx.SendBatch(ctx, b)
	for range msgs {
		if _, err := results.Exec(); err != nil {
			return errors.Join(err, results.Close())
		}
	}
	return results.Close()
}

// 22: what must not roll back, with a reason.
func (s *service) ignored(ctx context.Context, tx pgx.Tx, o shop.Order) error {
	//once:ignore attempts are counted although they fail
	if _, err := s.pool.Exec(ctx, `UPDATE attempts SET n = n + 1 WHERE id = $1`, o.ID); err != nil {
		return err
	}
	name, err := s.ledger.Cached(ctx, o.ID)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, insert, name, o.Cents)
	return err
}

type hooks interface{ AfterCommit(func()) }

// 23: work that runs after COMMIT.
func (s *service) afterCommit(ctx context.Context, tx pgx.Tx, o shop.Order) error {
	s.hooks.AfterCommit(func() {
		if _, err := s.pool.Exec(ctx, `NOTIFY charged`); err != nil {
			s.logger.Warn("not notified", "error", err)
		}
	})
	_, err := tx.Exec(ctx, insert, o.ID, o.Cents)
	return err
}

// 24: a watermill handler.
func (s *service) watermill(msg *message.Message) ([]*message.Message, error) {
	tx := watermilltx.Tx[*sql.Tx](msg.Context())
	_, err := tx.ExecContext(msg.Context(), insert, string(msg.Payload), 1)
	return nil, err
}

// 25-29: keys that are the same on each delivery.
var keys = []consumer.KeyFunc{
	func(msg *consumer.Message) (string, error) { return strings.ToLower(msg.Headers["order"]), nil },
	func(msg *consumer.Message) (string, error) {
		return uuid.NewSHA1(uuid.NameSpaceOID, msg.Payload).String(), nil
	},
	func(msg *consumer.Message) (string, error) {
		if time.Since(msg.Time) > time.Hour {
			slog.Warn("late", "position", msg.Position)
		}
		return msg.ID, nil
	},
	func(msg *consumer.Message) (string, error) {
		id, err := uuid.Parse(msg.ID)
		if err != nil {
			return "", fmt.Errorf("at %s: %w", msg.Position, err)
		}
		return id.String(), nil
	},
	consumer.KeyOf(func(o shop.Order) (string, error) { return shop.OrderKey(o), nil }),
}

// 30: no handler: nobody gives it to txonce, although it looks like one.
func (s *service) noHandler(ctx context.Context, tx pgx.Tx, o shop.Order) error {
	tx.Exec(ctx, insert, o.ID, o.Cents)
	if _, err := s.pool.Exec(context.Background(), insert, uuid.NewString(), o.Cents); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

// 31: an ID that a request without a handler makes once.
func (s *service) place(w http.ResponseWriter, r *http.Request) {
	err := pgx.BeginFunc(r.Context(), s.pool, func(tx pgx.Tx) error {
		return s.store.Enqueue(r.Context(), tx, outbox.Message{Topic: "orders", ID: uuid.NewString()})
	})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

func register(ctx context.Context, s *service, store *sqlstore.Store, guard *httpidem.Guard[pgx.Tx]) []any {
	http.Handle("POST /payments", guard.Handle(func(ctx context.Context, tx pgx.Tx, w http.ResponseWriter, r *http.Request) error { // 32
		_, err := tx.Exec(ctx, insert, r.FormValue("id"), 1)
		return err
	}))
	err := store.InTx(ctx, []dedup.Record{{Key: dedup.Key{Consumer: "c", ID: "1"}}}, func(tx *sql.Tx, _ []dedup.Claim) error { // 33
		return shop.Save(ctx, tx, shop.Order{ID: "1"})
	})
	pipeline := pgxstore.Pipeline(func(ctx context.Context, b *pgx.Batch, msg *consumer.Message) error { // 34
		b.Queue(insert, string(msg.Payload), 1)
		return nil
	})
	return []any{
		err, pipeline, s.watermill, s.noHandler, s.place, keys,
		consumer.JSON(s.plain), consumer.JSON(s.helpers), consumer.JSON(s.sqlc), consumer.JSON(s.below), consumer.JSON(s.savepoint),
		consumer.JSON(s.savepointFunc), consumer.JSON(savepointText), consumer.JSON(s.onGorm), consumer.JSON(s.belowGorm),
		consumer.JSON(s.onBun), consumer.JSON(s.prepared), consumer.JSON(s.inContext), consumer.JSON(s.either), consumer.JSON(s.chosen),
		consumer.JSON(s.repository), consumer.JSON(ent), consumer.JSON(rows), consumer.JSON(collected), consumer.JSON(s.goroutines),
		consumer.JSON(contexts), consumer.BatchHandler[pgx.Tx](batch), consumer.JSON(s.ignored), consumer.JSON(s.afterCommit),
	}
}
