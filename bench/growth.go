package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/dedup"
)

// keys are the keys of messages, and of the rows that are there already.
type keys struct {
	name string
	id   func() string
	row  string // the key of row i of n, all older than those of id
	full int    // per cent of a page of the index that are in use in a table that grew by such keys
}

var keyKinds = []keys{
	{"random keys", rand.Text, `gen_random_uuid()`, 70},
	{
		"UUIDv7 keys", func() string { return uuid.Must(uuid.NewV7()).String() },
		`(lpad(to_hex((extract(epoch FROM now()) * 1000)::bigint - $1 + i), 12, '0') || '7000' || '8' || substr(md5(i::text), 1, 15))::uuid`, 90,
	},
}

// growth measures claims beside more and more rows. Each measurement follows a checkpoint, because afterwards the first
// change of a page writes the whole page to the WAL.
func (b *bench) growth(ctx context.Context) error {
	claims, wal := b.report.table("growth", "messages/s"), b.report.table("growth-wal", "bytes of WAL per claim")
	for _, k := range keyKinds {
		err := b.server.inWorlds(ctx, len(b.size.rows), 2, func(ctx context.Context, worlds []*world) error {
			var ways []way
			bytes := series{}
			for i, w := range worlds {
				rows := b.size.rows[i]
				b.progress("growth, %s: fill %s rows", k.name, number(float64(rows)))
				if err := w.fillKeys(ctx, k, rows); err != nil {
					return err
				}
				wy := way{name: number(float64(rows)) + " rows"}
				if i > 0 {
					wy.base = ways[0].name
				}
				wy.measure = func(ctx context.Context) (float64, error) {
					if _, err := w.pool.Exec(ctx, `CHECKPOINT`); err != nil {
						return 0, err
					}
					perSecond, walBytes, err := w.claim(ctx, w.store, k.id, b.size.claims, batchSize)
					bytes[wy.name] = append(bytes[wy.name], walBytes)
					return perSecond, err
				}
				ways = append(ways, wy)
			}
			b.progress("growth, %s: claims", k.name)
			figures, err := rounds(ctx, b.size.rounds, false, ways)
			if err != nil {
				return err
			}
			claims.add(k.name, ways, figures)
			for i := range ways {
				ways[i].base = ""
			}
			wal.add(k.name, ways, bytes)
			return nil
		})
		if err != nil {
			return fmt.Errorf("%s: %w", k.name, err)
		}
	}
	return nil
}

// fillKeys inserts n rows and builds the index afterwards, which is much faster.
func (w *world) fillKeys(ctx context.Context, k keys, n int) error {
	for _, sql := range []string{
		`ALTER TABLE processed_messages DROP CONSTRAINT processed_messages_pkey`,
		`INSERT INTO processed_messages (key, expires_at, fingerprint, consumer, id)
			SELECT ` + k.row + `, now() + '15 days', i, 'billing', 'order-' || lpad(i::text, 14, '0') FROM generate_series(1, $1::bigint) AS i`,
		fmt.Sprintf(`ALTER TABLE processed_messages ADD PRIMARY KEY (key) WITH (fillfactor = %d)`, k.full),
		`VACUUM (FREEZE, ANALYZE) processed_messages`,
	} {
		var args []any
		if sql[:6] == "INSERT" {
			args = append(args, n)
		}
		if _, err := w.pool.Exec(ctx, sql, args...); err != nil {
			return fmt.Errorf("%.30s: %w", sql, err)
		}
	}
	return nil
}

// claim claims n keys, some in each transaction. It returns how many per second, and the WAL of each.
func (w *world) claim(ctx context.Context, store *pgxstore.Store, id func() string, n,
	perTx int,
) (perSecond, walBytes float64, err error) {
	var lsn [2]int64
	if lsn[0], err = w.lsn(ctx); err != nil {
		return 0, 0, err
	}
	began := time.Now()
	recs := make([]dedup.Record, perTx)
	for range n / perTx {
		for i := range recs {
			id := id()
			recs[i] = dedup.Record{
				Key:         dedup.Key{Consumer: "billing", ID: id},
				Fingerprint: dedup.FingerprintOf([]byte(id)), Time: began,
			}
		}
		err := store.InTx(ctx, recs, func(_ pgx.Tx, claims []dedup.Claim) error {
			for _, c := range claims {
				if c.Verdict != dedup.First {
					return fmt.Errorf("a new key is %v", c.Verdict)
				}
			}
			return nil
		})
		if err != nil {
			return 0, 0, err
		}
	}
	took := time.Since(began)
	lsn[1], err = w.lsn(ctx)
	return float64(n) / took.Seconds(), float64(lsn[1]-lsn[0]) / float64(n), err
}

func (w *world) lsn(ctx context.Context) (n int64, err error) {
	err = w.pool.QueryRow(ctx, `SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint`).Scan(&n)
	return n, err
}

// keySizes measures the bytes of a key in table and index, and its WAL. They do not depend on the machine.
func (b *bench) keySizes(ctx context.Context) error {
	t := b.report.table("keys", "bytes per key")
	for _, compact := range []bool{false, true} {
		name := "readable"
		if compact {
			name = "Compact"
		}
		b.progress("keys, %s", name)
		err := b.server.inWorld(ctx, 2, false, func(ctx context.Context, w *world) error {
			store, err := w.newStore(pgxstore.Config{Compact: compact})
			if err != nil {
				return err
			}
			n := b.size.keys
			_, walBytes, err := w.claim(ctx, store, func() string { return w.id(0) }, n, 1000)
			if err != nil {
				return err
			}
			var bytes, rows float64
			if err := w.pool.QueryRow(ctx, `SELECT pg_total_relation_size('processed_messages'), count(*) FROM processed_messages`).Scan(&bytes, &rows); err != nil {
				return err
			}
			if int(rows) != n {
				return fmt.Errorf("%.0f rows of %d claims", rows, n)
			}
			t.put("in table and index", name, bytes/rows)
			t.put("of WAL", name, walBytes)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
