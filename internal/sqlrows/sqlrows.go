// Package sqlrows reads the rows of queries.
package sqlrows

import (
	"context"
	"database/sql"
)

// Queryer is a *sql.DB or a *sql.Tx.
type Queryer interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Each calls f for each row of a query, until f fails. It returns that error, or the one of the query.
func Each(ctx context.Context, q Queryer, query string, args []any, f func(rows *sql.Rows) error) error {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := f(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}
