package pgxstore_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/internal/test/testdb"
)

// Interleaved handlers read values of the types that the pool has registered. The codec of an enum has a cache, which
// two handlers must not use at once: the race detector notices, and without it Go ends the process.
func TestInterleaveHandlersDoNotShareCodecs(t *testing.T) {
	dsn := testdb.Schema(t, testdb.Postgres(t))
	db := openOutboxDB(t, dsn, 1)
	makeTables(t, db.pool, outboxTables+`; CREATE TYPE color AS ENUM ('red', 'green', 'blue'); CREATE TYPE paint AS (shade color, litres int);
		CREATE DOMAIN tint AS color; CREATE TYPE shades AS RANGE (subtype = color)`)
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = 1
	cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		types, err := conn.LoadTypes(ctx, []string{
			"color", "_color", "paint", "_paint", "tint", "shades",
			"shades_multirange",
		})
		conn.TypeMap().RegisterTypes(types)
		return err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	h := &handlerTest{T: t, db: db, store: newStore(t, pgxstore.Config{Pool: pool})}
	var owners sync.Map // of codecs
	for range 3 {
		_, err = h.interleave(nil, alike(40, func(ctx context.Context, tx pgx.Tx, i int) error {
			for _, sql := range []string{
				`'red'::color`, `ARRAY['green', 'blue']::color[]`, `ROW('blue', 3)::paint`,
				`ARRAY[ROW('red', 3)::paint]`, `'green'::tint`,
				`'[red,blue)'::shades`, `'{[red,green]}'::shades_multirange`,
			} {
				rows, _ := tx.Query(ctx, `SELECT `+sql+` FROM generate_series(1, 20)`)
				if rows.Err() != nil { // another handler has failed
					return rows.Err()
				}
				known, _ := rows.TypeMap().TypeForOID(rows.FieldDescriptions()[0].DataTypeOID)
				if owner, found := owners.LoadOrStore(known.Codec, i); found && owner != i {
					return fmt.Errorf("handlers %v and %d share the codec of %s", owner, i, sql)
				}
				for rows.Next() {
					if _, err := rows.Values(); err != nil {
						return fmt.Errorf("%s: %w", sql, err)
					}
					var value any
					if err := rows.Scan(&value); err != nil {
						return fmt.Errorf("%s: %w", sql, err)
					}
				}
			}
			var shade string
			return tx.QueryRow(ctx, `SELECT (ARRAY['red', 'green', 'blue']::color[])[1 + $1::int % 3]`, i).Scan(&shade)
		})...)
		if err != nil {
			t.Fatal(err)
		}
		owners.Clear()
	}
}
