package adapt_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/uptrace/bun"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/adapters/sqlstore/adapt/ledger"
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
				adapted, err := adaptGORM(store, app)
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
					nested:   func(_ context.Context, tx *gorm.DB, f func(*gorm.DB) error) error { return tx.Transaction(f) },
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
					_, err := tx.tx.ExecContext(ctx, `INSERT INTO charges (order_id, cents) VALUES ($1, 1)`, order)
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

// When a handler ignores gorm's Error, its transaction fails and its message is delivered again.
func TestGORMFailsATransactionWhoseErrorWasIgnored(t *testing.T) {
	for name, prepared := range map[string]bool{"plain": false, "prepared": true} {
		t.Run(name, func(t *testing.T) {
			eachDatabase(t, func(t *testing.T, db database, store *sqlstore.Store) {
				app, err := gorm.Open(db.gorm, &gorm.Config{PrepareStmt: prepared, Logger: logger.Discard})
				if err != nil {
					t.Fatal(err)
				}
				s, err := adaptGORM(store, app)
				if err != nil {
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
