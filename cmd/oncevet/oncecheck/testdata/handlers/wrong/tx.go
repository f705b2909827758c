package wrong

import (
	"context"
	"database/sql"
	"handlers/queries"
	"handlers/shop"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/uptrace/bun"
	"gorm.io/gorm"

	"github.com/txonce/txonce/adapters/httpidem"
	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/calls"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
)

const insert = `INSERT INTO charges (order_id, cents) VALUES ($1, $2)`

type service struct {
	pool    *pgxpool.Pool
	db      *sql.DB
	queries *queries.Queries
	gorm    *gorm.DB
	bun     *bun.DB
	ledger  shop.Ledger
}

// 1: the pool, in a method.
func (s *service) onPool(ctx context.Context, tx pgx.Tx, o shop.Order) error {
	_, err := s.pool.Exec(ctx, insert, o.ID, o.Cents) // want `s.pool.Exec runs outside of the handler's transaction.*; use tx.Exec$`
	return err
}

// 2: in a helper.
func (s *service) throughHelper(ctx context.Context, tx pgx.Tx, o shop.Order) error {
	return s.save(ctx, o)
}

func (s *service) save(ctx context.Context, o shop.Order) error {
	_, err := s.pool.Exec(ctx, insert, o.ID, o.Cents) // want `s.pool.Exec runs outside`
	return err
}

// 3: in a helper of another package.
func (s *service) throughPackage(ctx context.Context, tx pgx.Tx, o shop.Order) error {
	return s.ledger.Record(ctx, o) // want `s.ledger.Record \(shop.go:\d+\) runs outside`
}

// 4: the helper gets the pool.
func (s *service) givesPool(ctx context.Context, tx *sql.Tx, o shop.Order) error {
	return shop.Save(ctx, s.db, o) // want `shop.Save \(shop.go:\d+\) runs outside`
}

// 5: sqlc without WithTx.
func (s *service) sqlc(ctx context.Context, tx pgx.Tx, o shop.Order) error {
	return s.queries.InsertCharge(ctx, queries.InsertChargeParams{OrderID: o.ID}) // want `s.queries.InsertCharge \(queries.go:\d+\) runs outside.*; use s.queries.WithTx\(tx\).InsertCharge$`
}

// 6: gorm, in a chain.
func (s *service) onGorm(ctx context.Context, tx *gorm.DB, o shop.Order) error {
	return s.gorm.WithContext(ctx).Create(&o).Error // want `s.gorm.WithContext\(…\).Create runs outside.*; use tx.WithContext$`
}

// 7: bun, in a chain.
func (s *service) onBun(ctx context.Context, tx bun.Tx, o shop.Order) error {
	_, err := s.bun.NewInsert().Model(&o).Exec(ctx) // want `s.bun.NewInsert\(\).Model\(…\).Exec runs outside.*; use tx.NewInsert$`
	return err
}

// 8: a transaction of its own.
func (s *service) begins(ctx context.Context, tx *sql.Tx, o shop.Order) error {
	own, err := s.db.BeginTx(ctx, nil) // want `s.db.BeginTx runs outside`
	if err != nil {
		return err
	}
	defer own.Rollback()
	if _, err := own.ExecContext(ctx, insert, o.ID, o.Cents); err != nil {
		return err
	}
	return own.Commit()
}

// 9: a function with a transaction of its own.
func (s *service) beginsFunc(ctx context.Context, tx pgx.Tx, o shop.Order) error {
	return pgx.BeginFunc(ctx, s.pool, func(own pgx.Tx) error { // want `pgx.BeginFunc runs outside.*; use tx$`
		_, err := own.Exec(ctx, insert, o.ID, o.Cents)
		return err
	})
}

// 10: another goroutine.
func inGoroutine(ctx context.Context, tx pgx.Tx, o shop.Order) error {
	go func() { // want `go func: another goroutine uses the handler's transaction`
		if _, err := tx.Exec(ctx, insert, o.ID, o.Cents); err != nil {
			panic(err)
		}
	}()
	return nil
}

// 11: the transaction ends by text.
func commitsByText(ctx context.Context, tx *sql.Tx, o shop.Order) error {
	if _, err := tx.ExecContext(ctx, insert, o.ID, o.Cents); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, "/* done */ commit;") // want `tx.ExecContext of .*: txonce begins and ends the handler's transaction`
	return err
}

// 12: the transaction ends by a method.
func commits(ctx context.Context, tx pgx.Tx, msgs []*consumer.Message) error {
	defer tx.Rollback(ctx) // want `tx.Rollback: txonce begins and ends`
	for _, msg := range msgs {
		if _, err := tx.Exec(ctx, insert, string(msg.Payload), 1); err != nil {
			return err
		}
	}
	return tx.Commit(ctx) // want `tx.Commit: txonce begins and ends`
}

func register(ctx context.Context, s *service, pool *pgxpool.Pool, sqlStore *sqlstore.Store, guard *httpidem.Guard[pgx.Tx]) {
	_ = consumer.Config[pgx.Tx]{Handle: consumer.JSON(s.onPool)}
	_ = consumer.Config[pgx.Tx]{Handle: consumer.JSON(s.throughHelper)}
	_ = consumer.Config[pgx.Tx]{Handle: consumer.JSON(s.throughPackage)}
	_ = consumer.Config[*sql.Tx]{Handle: consumer.JSON(s.givesPool)}
	_ = consumer.Config[pgx.Tx]{Handle: consumer.JSON(s.sqlc)}
	_ = consumer.Config[*gorm.DB]{Handle: consumer.JSON(s.onGorm)}
	_ = consumer.Config[bun.Tx]{Handle: consumer.JSON(s.onBun)}
	_ = consumer.Config[*sql.Tx]{Handle: consumer.JSON(s.begins)}
	_ = consumer.Config[pgx.Tx]{Handle: consumer.JSON(s.beginsFunc)}
	_ = consumer.Config[pgx.Tx]{Handle: consumer.JSON(inGoroutine)}
	_ = consumer.Config[*sql.Tx]{Handle: consumer.JSON(commitsByText)}
	_ = consumer.Config[pgx.Tx]{HandleBatch: commits}

	// 13: a literal that has captured the pool, in a variable that is assigned first.
	var handle func(context.Context, pgx.Tx, *consumer.Message) error
	handle = func(ctx context.Context, tx pgx.Tx, msg *consumer.Message) error {
		_, err := pool.Exec(ctx, `DELETE FROM carts WHERE id = $1`, string(msg.Payload)) // want `pool.Exec runs outside`
		return err
	}
	cfg := consumer.Config[pgx.Tx]{}
	cfg.Handle = handle

	// 14, 15: of another package.
	_ = consumer.JSON(s.ledger.Handle)                          // want `handler Handle: .*runs outside`
	_ = consumer.Config[pgx.Tx]{Handle: shop.Handler(pool)}     // want `handler Handler: pool.Exec runs outside`
	_ = map[string]consumer.Handler[pgx.Tx]{"paid": s.refunded} // 16

	// 17: InTx.
	_ = sqlStore.InTx(ctx, []dedup.Record{{Key: dedup.Key{Consumer: "c", ID: "1"}}}, func(tx *sql.Tx, claims []dedup.Claim) error {
		_, err := s.db.ExecContext(ctx, insert, "1", 1) // want `s.db.ExecContext runs outside.*; use tx.ExecContext$`
		return err
	})

	// 18: an HTTP request.
	http.Handle("/", guard.Handle(func(ctx context.Context, tx pgx.Tx, w http.ResponseWriter, r *http.Request) error {
		rows, err := s.pool.Query(ctx, `SELECT 1`) // want `s.pool.Query runs outside`
		if err != nil {
			return err
		}
		rows.Close()
		return rows.Err()
	}))

	// 19: Pipeline.
	_ = pgxstore.Pipeline(func(ctx context.Context, b *pgx.Batch, msg *consumer.Message) error {
		b.Queue(insert, string(msg.Payload), 1)
		b.Queue("COMMIT")                                       // want `b.Queue of COMMIT: txonce begins`
		_, err := s.pool.Exec(ctx, insert, string(msg.Payload)) // want `s.pool.Exec runs outside`
		return err
	})

	// 20: the end of a call.
	_ = calls.Config[pgx.Tx]{
		Name: "charge", Keeps: time.Hour,
		Done: func(ctx context.Context, tx pgx.Tx, c calls.Call, r calls.Result) error {
			_, err := s.pool.Exec(ctx, insert, c.ID, 1) // want `s.pool.Exec runs outside`
			return err
		},
	}
}

func (s *service) refunded(ctx context.Context, tx pgx.Tx, msg *consumer.Message) error {
	each := func(id string) error {
		_, err := s.pool.Exec(ctx, insert, id, -1) // want `s.pool.Exec runs outside`
		return err
	}
	return each(string(msg.Payload))
}
