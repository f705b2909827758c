package sqlstore_test

import (
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/internal/test/testdb"
)

// archiveTable is for PostgreSQL. The primary key makes a key that is archived again one row.
const archiveTable = `CREATE TABLE archived_claims (
	hash text, expired timestamptz, consumer text, tenant text, id text, result bytea, PRIMARY KEY (hash, expired))`

// archiveInto keeps expired claims in a table, in a transaction of its own.
func archiveInto(db *sql.DB) func(ctx context.Context, expired []dedup.Expired) error {
	return func(ctx context.Context, expired []dedup.Expired) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		insert, err := tx.PrepareContext(ctx, `INSERT INTO archived_claims VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING`)
		if err != nil {
			return err
		}
		defer insert.Close()
		for _, e := range expired {
			if _, err := insert.ExecContext(ctx, hex.EncodeToString(e.Hash[:]), e.ExpiresAt, e.Key.Consumer, e.Key.Tenant,
				e.Key.ID, e.Result); err != nil {
				return err
			}
		}
		return tx.Commit()
	}
}

// A Sweeper moves expired claims into a table, each once, although the archive's answer is lost now and then.
func TestArchiveIntoATable(t *testing.T) {
	t.Parallel()
	d := openPostgres(t, testdb.Postgres18(t))
	exec(t, d.db, archiveTable)
	s := d.open(t, d.dsn, deduptest.Options{})
	const n = 40
	var recs []dedup.Record
	for i := range n {
		recs = append(recs, record(fmt.Sprint("order-", i)))
	}
	claim(t, s, recs...)
	exec(t, d.db, `UPDATE processed_messages SET expires_at = expires_at - interval '40 days' WHERE id LIKE '%5' OR id LIKE '%6'`)
	archive, lost := archiveInto(d.db), 0
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	sweeper, err := dedup.NewSweeper(dedup.SweeperConfig{
		Store: s, Limit: 3, Logger: slog.New(slog.DiscardHandler),
		Archive: func(ctx context.Context, expired []dedup.Expired) error {
			if err := archive(ctx, expired); err != nil {
				return err
			}
			if lost++; lost < 3 {
				return fmt.Errorf("the answer is lost: %w", context.DeadlineExceeded)
			}
			return nil
		},
		Trace: &dedup.SweepTrace{Swept: func(_ context.Context, e dedup.SweepEvent) {
			if e.Result.Done {
				cancel()
			}
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := sweeper.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if got := stringsOf(t, d.db, `SELECT count(*) || ' ' || count(DISTINCT id) FROM archived_claims WHERE consumer = '`+recs[0].Key.Consumer+`'`); got[0] != "8 8" {
		t.Errorf("rows and keys in the archive: %s, want 8 of each", got[0])
	}
	if got := stringsOf(t, d.db, `SELECT count(*) FROM processed_messages`); got[0] != fmt.Sprint(n-8) {
		t.Errorf("%s keys are left, want %d", got[0], n-8)
	}
}
