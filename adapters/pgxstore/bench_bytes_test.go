package pgxstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/test/testdb"
)

// BenchmarkBytesPerKey inserts 10^6 random keys and measures the sizes of the table and its index. The result does not depend
// on the machine.
func BenchmarkBytesPerKey(b *testing.B) {
	const keys, perTx = 1_000_000, 1000
	for _, tt := range []struct {
		name    string
		compact bool
		want    float64
	}{
		{"readable", false, 150},
		{"compact", true, 100},
	} {
		b.Run(tt.name, func(b *testing.B) {
			ctx := b.Context()
			pool := testPool(b, testdb.Schema(b, testdb.Postgres(b)), 2)
			if err := pgxstore.Migrate(ctx, pool, ""); err != nil {
				b.Fatal(err)
			}
			s := newStore(b, pgxstore.Config{Pool: pool, Compact: tt.compact})
			var before, after int64
			lsn := func(n *int64) {
				if err := pool.QueryRow(ctx, `SELECT pg_current_wal_insert_lsn() - '0/0'`).Scan(n); err != nil {
					b.Fatal(err)
				}
			}
			lsn(&before)
			start := time.Now()
			recs := make([]dedup.Record, perTx)
			for i := range keys / perTx {
				for j := range recs {
					id := fmt.Sprintf("order-%014d", i*perTx+j) // 20 bytes
					recs[j] = dedup.Record{Key: dedup.Key{Consumer: "billing", ID: id}, Fingerprint: dedup.FingerprintOf([]byte(id)), Time: start}
				}
				if err := s.InTx(ctx, recs, func(pgx.Tx, []dedup.Claim) error { return nil }); err != nil {
					b.Fatal(err)
				}
			}
			took := time.Since(start)
			lsn(&after)
			var bytes float64
			if err := pool.QueryRow(ctx, `SELECT pg_total_relation_size('processed_messages')`).Scan(&bytes); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(bytes/keys, "B/key")
			b.ReportMetric(float64(after-before)/keys, "WAL-B/key")
			b.ReportMetric(keys/took.Seconds(), "claims/s")
			if bytes/keys > tt.want*1.15 {
				b.Errorf("%.0f bytes per key, want %.0f", bytes/keys, tt.want)
			}
		})
	}
}
