// Package gormstore gives handlers a *gorm.DB: all statements of it run in the transaction that claimed the message's
// key. It is sqlstore for applications that use gorm, with the same guarantees, and in a module of its own, so that
// gorm stays out of txonce's go.mod.
//
//	db, err := sql.Open("pgx", dsn)
//	app, err := gorm.Open(postgres.New(postgres.Config{Conn: db}), &gorm.Config{})
//	plain, err := sqlstore.New(sqlstore.Config{DB: db, Dialect: sqlstore.Postgres})
//	store, err := gormstore.New(plain, app)
//	billing, err := consumer.New(consumer.Config[*gorm.DB]{
//		Name: "billing", Store: store, Key: consumer.JSONKey("order_id"),
//		Handle: consumer.JSON(func(ctx context.Context, tx *gorm.DB, o OrderPlaced) error {
//			if err := tx.Create(&Charge{OrderID: o.OrderID, Cents: o.Cents}).Error; err != nil {
//				return err
//			}
//			return store.Enqueue(ctx, tx, outbox.Message{Topic: "charges", OrderingKey: o.OrderID, Payload: o.Charged()})
//		}),
//	})
//
// It works with the drivers of gorm for PostgreSQL, MySQL and SQLite.
//
// # Errors that a handler ignores
//
// With gorm it is easy to forget an Error, and gorm continues after a failed statement. PostgreSQL then refuses all
// further statements, but MySQL and SQLite undo only the failed one: the rest would be committed together with the
// claim, and the message would never be delivered again. So the Store remembers the first failed statement of each
// transaction. When the handler returns nil all the same, the transaction is rolled back, and this counts as a failed
// attempt of the message. gorm.ErrRecordNotFound is no failure.
//
// This also holds for a handler that looks at the Error and goes on. A handler that expects a statement to fail runs it
// in a transaction of its own within the handler's:
//
//	err := tx.Transaction(func(tx *gorm.DB) error { return tx.Create(&row).Error })
//
// gorm then sets a savepoint and rolls back to it, and the Store forgets the failures that came after that savepoint.
//
// A handler must not call tx.Begin, tx.Commit or tx.Rollback. Ending the Store's transaction is detected after the
// fact: the message is parked with an unknown outcome.
//
// # What it needs of gorm
//
// New registers a callback named "txonce:first_error" behind all others of the application's gorm.DB. It does nothing
// outside of the Store's transactions. Statements that bypass gorm's callbacks, such as those of tx.Statement.ConnPool,
// are not remembered. The option PrepareStmt has no effect in a handler's transaction.
//
// A crash before COMMIT leaves nothing, and the message is delivered again; after COMMIT the next delivery is a
// duplicate.
package gormstore
