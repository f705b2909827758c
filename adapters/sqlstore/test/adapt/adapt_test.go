package adapt_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/uptrace/bun"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/adapters/sqlstore/gormstore"
	"github.com/txonce/txonce/adapters/sqlstore/test/adapt/ledger"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
)

func TestGORM(t *testing.T) {
	for name, prepared := range map[string]bool{"plain": false, "prepared": true} {
		t.Run(name, func(t *testing.T) {
			eachDatabase(t, func(t *testing.T, db database, store *sqlstore.Store) {
				app, err := gorm.Open(db.gorm, &gorm.Config{PrepareStmt: prepared})
				if err != nil {
					t.Fatal(err)
				}
				adapted, err := gormstore.New(store, app)
				if err != nil {
					t.Fatal(err)
				}
				check(t, db, library[*gorm.DB]{
					store: adapted,
					charge: func(ctx context.Context, tx *gorm.DB, order string) error {
						return tx.WithContext(ctx).Create(&Charge{OrderID: order, Cents: 1}).Error
					},
					commit:   func(tx *gorm.DB) error { return tx.Commit().Error },
					rollback: func(tx *gorm.DB) error { return tx.Rollback().Error },
					nested: func(_ context.Context, tx *gorm.DB,
						f func(*gorm.DB) error,
					) error {
						return tx.Transaction(f)
					},
					own: func(ctx context.Context, f func(*gorm.DB) error) error {
						return app.WithContext(ctx).Transaction(f)
					},
					outside:   app,
					remembers: true,
				})
			})
		})
	}
}

func TestBun(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database, store *sqlstore.Store) {
		app := bun.NewDB(db.DB, db.bun)
		adapted, err := adaptBun(t.Context(), store, app)
		if err != nil {
			t.Fatal(err)
		}
		check(t, db, library[bun.Tx]{
			store: adapted,
			charge: func(ctx context.Context, tx bun.Tx, order string) error {
				_, err := tx.NewInsert().Model(&Charge{OrderID: order, Cents: 1}).Exec(ctx)
				return err
			},
			commit: bun.Tx.Commit, rollback: bun.Tx.Rollback,
			nested: func(ctx context.Context, tx bun.Tx, f func(bun.Tx) error) error {
				return tx.RunInTx(ctx, nil, func(_ context.Context, tx bun.Tx) error { return f(tx) })
			},
			own: func(ctx context.Context, f func(bun.Tx) error) error {
				return app.RunInTx(ctx, nil, func(_ context.Context, tx bun.Tx) error { return f(tx) })
			},
		})
	})
}

func TestSQLC(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database, store *sqlstore.Store) {
		adapted, err := adaptSQLC(store)
		if err != nil {
			t.Fatal(err)
		}
		check(t, db, library[Tx]{
			store: adapted,
			charge: func(ctx context.Context, tx Tx, order string) error {
				if db.dialect != sqlstore.SQLite { // the queries were generated for SQLite
					insert := `INSERT INTO charges (order_id, cents) VALUES ($1, 1)`
					if db.dialect == sqlstore.MySQL {
						insert = `INSERT INTO charges (order_id, cents) VALUES (?, 1)`
					}
					_, err := tx.tx.ExecContext(ctx, insert, order)
					return err
				}
				return tx.Charge(ctx, ledger.ChargeParams{OrderID: order, Cents: 1})
			},
			commit:   func(tx Tx) error { return tx.tx.Commit() },
			rollback: func(tx Tx) error { return tx.tx.Rollback() },
			nested: func(ctx context.Context, tx Tx, f func(Tx) error) error {
				if _, err := tx.tx.ExecContext(ctx, `SAVEPOINT inner_one`); err != nil {
					return err
				}
				err := f(tx)
				if err != nil {
					_, undo := tx.tx.ExecContext(ctx, `ROLLBACK TO SAVEPOINT inner_one`)
					return errors.Join(err, undo)
				}
				_, err = tx.tx.ExecContext(ctx, `RELEASE SAVEPOINT inner_one`)
				return err
			},
			own: func(ctx context.Context, f func(Tx) error) error {
				tx, err := db.BeginTx(ctx, nil)
				if err != nil {
					return err
				}
				defer tx.Rollback()
				if err := f(Tx{ledger.New(tx), tx}); err != nil {
					return err
				}
				return tx.Commit()
			},
		})
	})
}

// When a handler ignores gorm's Error, its transaction fails and its message is delivered again. The application has
// two Stores, as when two packages make one each.
func TestGORMFailsATransactionWhoseErrorWasIgnored(t *testing.T) {
	for name, prepared := range map[string]bool{"plain": false, "prepared": true} {
		t.Run(name, func(t *testing.T) {
			eachDatabase(t, func(t *testing.T, db database, store *sqlstore.Store) {
				app, err := gorm.Open(db.gorm, &gorm.Config{PrepareStmt: prepared, Logger: logger.Discard})
				if err != nil {
					t.Fatal(err)
				}
				s, err := gormstore.New(store, app)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := gormstore.New(store, app); err != nil {
					t.Fatal(err)
				}
				twice := func(tx *gorm.DB, order string) {
					tx.Create(&Charge{OrderID: order, Cents: 1})
					tx.Create(&Charge{OrderID: order, Cents: 1}) // a duplicate, which is refused
				}
				for _, tt := range []struct {
					name   string
					handle func(ctx context.Context, tx *gorm.DB)
					fails  bool
				}{
					{"unchecked", func(ctx context.Context, tx *gorm.DB) { twice(tx.WithContext(ctx), "a") }, true},
					{"of a new session", func(_ context.Context, tx *gorm.DB) { twice(tx.Session(&gorm.Session{NewDB: true}), "b") }, true},
					{"of raw SQL", func(_ context.Context, tx *gorm.DB) { tx.Exec(`INSERT INTO missing VALUES (1)`) }, true},
					{"healed", func(_ context.Context, tx *gorm.DB) {
						tx.Create(&Charge{OrderID: "c", Cents: 1})
						_ = tx.Transaction(func(tx *gorm.DB) error { return tx.Create(&Charge{OrderID: "c", Cents: 1}).Error })
					}, false},
					{"not healed", func(_ context.Context, tx *gorm.DB) {
						twice(tx, "d")
						_ = tx.Transaction(func(*gorm.DB) error { return errUndo })
					}, true},
					{"healed by hand", func(_ context.Context, tx *gorm.DB) {
						tx.Exec("savepoint Mine")
						twice(tx, "e")
						tx.Exec("rollback to savepoint Mine")
					}, false},
					{"a statement that was not sent", func(_ context.Context, tx *gorm.DB) {
						tx.Exec("SAVEPOINT a")
						twice(tx, "f")
						tx.Session(&gorm.Session{DryRun: true}).Exec("ROLLBACK TO SAVEPOINT a")
					}, true},
					{"prepared", func(_ context.Context, tx *gorm.DB) { twice(tx.Session(&gorm.Session{PrepareStmt: true}), "g") }, true},
					{"nothing found", func(_ context.Context, tx *gorm.DB) { tx.Where("order_id = ?", "nobody").First(&Charge{}) }, false},
				} {
					for _, verify := range []bool{false, true} {
						id := fmt.Sprint(tt.name, verify)
						err := s.InTx(t.Context(), record(id), func(tx *gorm.DB, _ []dedup.Claim) error {
							tt.handle(t.Context(), tx)
							if verify {
								return s.VerifyTx(t.Context(), tx)
							}
							return nil
						})
						if (err != nil) != tt.fails {
							t.Errorf("%s, verified %v: InTx = %v, want an error: %v", tt.name, verify, err, tt.fails)
						}
						_, claimed, lookup := s.Lookup(t.Context(), record(id)[0].Key)
						if lookup != nil || claimed == tt.fails {
							t.Errorf("%s, verified %v: claimed %v, %v", tt.name, verify, claimed, lookup)
						}
						if _, err := db.Exec(`DELETE FROM charges`); err != nil {
							t.Fatal(err)
						}
					}
				}
			})
		})
	}
}

// MySQL and SQLite would commit the claim and the rest of the handler's work.
func TestGORMRefusesWhatIsNoApplicationDB(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database, store *sqlstore.Store) {
		app, err := gorm.Open(db.gorm, &gorm.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := gormstore.New(nil, app); err == nil {
			t.Error("New accepts a nil Store")
		}
		if _, err := gormstore.New(store, nil); err == nil {
			t.Error("New accepts a nil DB")
		}
		tx := app.Begin()
		defer tx.Rollback()
		if _, err := gormstore.New(store, tx); err == nil {
			t.Error("New accepts a transaction")
		}
		if err := tx.Rollback().Error; err != nil {
			t.Fatal(err)
		}
		if _, err := gormstore.New(store, app.Where("no_such_column = 1").Find(&Charge{})); err == nil {
			t.Error("New accepts a DB with an error")
		}
	})
}

// In a batch, the message whose handler ignored an error fails, and its neighbours are committed.
func TestGORMBlamesTheMessageWhoseErrorWasIgnored(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database, store *sqlstore.Store) {
		app, err := gorm.Open(db.gorm, &gorm.Config{Logger: logger.Discard})
		if err != nil {
			t.Fatal(err)
		}
		s, err := gormstore.New(store, app)
		if err != nil {
			t.Fatal(err)
		}
		orders, err := consumer.New(consumer.Config[*gorm.DB]{
			Name: "billing", Store: s, Key: consumer.MessageID, MaxAttempts: 1, Logger: slog.New(slog.DiscardHandler),
			Handle: func(ctx context.Context, tx *gorm.DB, msg *consumer.Message) error {
				tx.Create(&Charge{OrderID: msg.ID, Cents: 1})
				if msg.ID == "bad" {
					tx.Create(&Charge{OrderID: msg.ID, Cents: 1})
				}
				return nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		var msgs []*consumer.Message
		for _, id := range []string{"a", "bad", "b", "c"} {
			msgs = append(msgs, &consumer.Message{ID: id, Topic: "orders", Time: time.Now()})
		}
		if err := orders.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i, err := range orders.ProcessBatch(t.Context(), msgs) {
			if err != nil {
				t.Errorf("%s: %v", msgs[i].ID, err)
			}
		}
		var charged []string
		if err := app.Model(&Charge{}).Order("order_id").Pluck("order_id", &charged).Error; err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(charged, " "); got != "a b c" {
			t.Errorf("charged: %s, want a b c", got)
		}
		letters, err := s.DeadLetters(t.Context(), consumer.DeadLetterFilter{})
		if err != nil || len(letters) != 1 || letters[0].Record.Key.ID != "bad" {
			t.Errorf("dead letters %v, %v", letters, err)
		}
	})
}
