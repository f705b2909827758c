package pgxstore

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/txonce/txonce/migrations"
)

// Migrate applies the migrations to schema (empty: the first schema of search_path). Several nodes may call it at once.
// It fails at once when the database does not answer.
func Migrate(ctx context.Context, pool *pgxpool.Pool, schema string) error {
	db := stdlib.OpenDBFromPool(pool)
	defer db.Close()
	return migrations.Apply(ctx, db, "postgres", schema)
}
