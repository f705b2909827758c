package pgxstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/internal/test/testdb"
)

// transcript lists what pgx returns.
type transcript []string

func (l *transcript) add(values ...any) { *l = append(*l, fmt.Sprint(values...)) }

type pair struct {
	ID   string
	Text *string
}

// allScanner is a pgx.RowScanner.
type allScanner struct{ l *transcript }

func (s allScanner) ScanRow(rows pgx.Rows) error {
	var a, b any
	err := rows.Scan(&a, &b)
	s.l.add("row scanner ", a, b)
	return err
}

// readAll uses everything that pgx offers for reading results.
func readAll(ctx context.Context, tx pgx.Tx, i int) (l transcript) {
	tag, err := tx.Exec(ctx, `INSERT INTO effects (name) SELECT $1 FROM generate_series(1, $2::int)`, fmt.Sprint(i), i)
	l.add(tag, tag.RowsAffected(), err)

	rows, err := tx.Query(ctx, `SELECT g::text AS id, nullif(g::text || $1, '2' || $1) AS text FROM generate_series(1, 3) AS g`, fmt.Sprint(i))
	l.add(rows.CommandTag(), rows.Err(), err)
	pairs, err := pgx.CollectRows(rows, pgx.RowToStructByName[pair])
	for _, p := range pairs {
		l.add(p.ID, p.Text == nil, *max2(p.Text))
	}
	l.add(len(pairs), err, rows.CommandTag(), rows.Next())

	rows, _ = tx.Query(ctx, `SELECT g + @i::bigint FROM generate_series(1, 3) AS g`, pgx.NamedArgs{"i": i})
	l.add(pgx.CollectRows(rows, pgx.RowTo[int64]))

	rows, _ = tx.Query(ctx, `SELECT $1::int AS i, NULL::int, ARRAY[1, $1::int], 'red'::color, '{"a": 1}'::jsonb, 1.50::numeric, decode('00ff', 'hex'), ''::text, 'x'::unknown_type`, i)
	for _, f := range rows.FieldDescriptions() {
		l.add(f.Name)
	}
	for rows.Next() {
		values, err := rows.Values()
		l.add(values, err)
		for _, raw := range rows.RawValues() {
			l.add(raw == nil, len(raw), fmt.Sprintf("%x", raw))
		}
		var (
			array   []int32
			color   string
			pointer *int
			raw     pgtype.UndecodedBytes
			number  pgtype.Numeric
			bytes   []byte
			of      map[string]int
			text    string
		)
		l.add(rows.Scan(nil, &pointer, &array, &color, &of, &number, &bytes, &text, &raw), pointer, array, color, of,
			number.Exp, bytes, text, string(raw))
	}
	l.add(rows.Err(), rows.CommandTag())
	_, err = rows.Values()
	l.add(err)

	var n int
	l.add(tx.QueryRow(ctx, `SELECT $1::int`, i).Scan(&n), n)
	l.add(tx.QueryRow(ctx, `SELECT 1 WHERE $1 = 0`, i).Scan(&n), n)
	l.add(tx.QueryRow(ctx, `SELECT 'x' || $1::text`, fmt.Sprint(i)).Scan(&n))
	l.add(tx.QueryRow(ctx, `SELECT 1, 2 WHERE $1 > 0`, i).Scan(&n))
	l.add(tx.QueryRow(ctx, `SELECT 1, $1::int`, i).Scan(allScanner{&l}))

	rows, _ = tx.Query(ctx, `SELECT 'x' FROM generate_series(1, $1::int)`, i)
	l.add(rows.Next(), rows.Scan(&n), rows.Err() != nil, rows.Next())
	rows, _ = tx.Query(ctx, `SELECT g FROM generate_series(1, $1::int) AS g`, 10) // closed early
	l.add(rows.Next(), rows.Scan(&n), n)
	rows.Close()
	l.add(rows.Err(), rows.Next(), rows.CommandTag())

	b := &pgx.Batch{}
	b.Queue(`SELECT $1::int`, i).QueryRow(func(r pgx.Row) error { l.add("callback ", r.Scan(&n), n); return nil })
	b.Queue(`SELECT g FROM generate_series(1, 2) AS g WHERE $1 > 0`, i).Query(func(r pgx.Rows) error {
		l.add(pgx.CollectRows(r, pgx.RowTo[int]))
		return nil
	})
	b.Queue(insertEffect, fmt.Sprint(i)).Exec(func(tag pgconn.CommandTag) error { l.add(tag); return errors.New("of the callback") })
	b.Queue(insertEffect, fmt.Sprint(i)).Exec(func(pgconn.CommandTag) error { l.add("not called"); return nil })
	results := tx.SendBatch(ctx, b)
	l.add(results.Close(), results.Close())
	_, err = results.Exec()
	l.add(err)

	b = &pgx.Batch{}
	for range 4 {
		b.Queue(`SELECT g FROM generate_series(1, $1::int) AS g`, 2)
	}
	results = tx.SendBatch(ctx, b)
	if rows, err = results.Query(); err != nil {
		l.add(err)
		return l
	}
	l.add(rows.Next(), rows.Scan(&n), n, err) // the rest is skipped
	rows.Close()
	l.add(results.QueryRow().Scan(&n), n)
	l.add(results.Exec())
	l.add(results.Close())
	results = tx.SendBatch(ctx, &pgx.Batch{})
	_, err = results.Exec()
	l.add(err, results.Close())
	return l
}

func max2(s *string) *string {
	if s == nil {
		return new(string)
	}
	return s
}

// What a handler reads does not depend on others that run at its side: neither the values, nor how pgx returns them.
func TestInterleaveReturnsWhatPgxReturns(t *testing.T) {
	for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			cfg, err := pgxpool.ParseConfig(testdb.Schema(t, testdb.Postgres(t)) + "&default_query_exec_mode=" + mode)
			if err != nil {
				t.Fatal(err)
			}
			cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
				_, _ = conn.Exec(ctx, `CREATE TYPE color AS ENUM ('red')`)
				_, _ = conn.Exec(ctx, `CREATE DOMAIN unknown_type AS text CHECK (VALUE <> '')`)
				loaded, err := conn.LoadType(ctx, "color")
				if err == nil {
					conn.TypeMap().RegisterType(loaded)
				}
				return err
			}
			pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(pool.Close)
			makeTables(t, pool, `CREATE TABLE effects (name text NOT NULL)`)
			h := &handlerTest{T: t, store: newStore(t, pgxstore.Config{Pool: pool})}
			const n = 8
			var want, got [n]transcript
			for i := range n {
				if err := h.handle(fmt.Sprint("plain", i),
					func(ctx context.Context, tx pgx.Tx) error { want[i] = readAll(ctx, tx, i); return nil }); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := h.interleave(nil, alike(n, func(ctx context.Context, tx pgx.Tx, i int) error { got[i] = readAll(ctx, tx, i); return nil })...); err != nil {
				t.Fatal(err)
			}
			for i := range n {
				if diff := cmp.Diff(want[i], got[i]); diff != "" {
					t.Errorf("handler %d (-alone +interleaved):\n%s\n%s", i, diff,
						strings.Join(want[i][max(len(want[i])-8, 0):], "\n"))
				}
			}
		})
	}
}

// Results are the handler's own, also while the connection already reads others.
func TestInterleaveResultsStay(t *testing.T) {
	h := newHandlerTest(t, testdb.Postgres(t), pgxstore.Config{})
	if _, err := h.interleave(nil, alike(20, func(ctx context.Context, tx pgx.Tx, i int) error {
		for range 20 {
			rows, _ := tx.Query(ctx, `SELECT repeat($1, g) FROM generate_series(1, 5) AS g`, fmt.Sprint(i, " "))
			for g := 1; rows.Next(); g++ {
				<-time.After(50 * time.Microsecond)
				var s string
				if err := rows.Scan(&s); err != nil || s != strings.Repeat(fmt.Sprint(i, " "), g) {
					t.Errorf("read %q, %v", s, err)
				}
			}
			if err := rows.Err(); err != nil {
				return err
			}
		}
		return nil
	})...); err != nil {
		t.Fatal(err)
	}
}
