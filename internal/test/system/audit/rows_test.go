package audit_test

import (
	"testing"

	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/consumer/ops/audit"
	"github.com/txonce/txonce/internal/test/testdb"
)

// An audit reads each claim once: a page does not read the claims of the others. The databases themselves count the
// rows.
func TestRowsRead(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		w.process(t, 5000)
		w.db.SetMaxOpenConns(1) // the counters are those of a session
		w.exec(t, `ANALYZE`+map[sqlstore.Dialect]string{sqlstore.MySQL: ` TABLE processed_messages`}[w.dialect])
		read := func() (n int64) {
			t.Helper()
			switch w.dialect {
			case sqlstore.SQLite: // does not count
			case sqlstore.MySQL:
				n = testdb.MySQLRowsRead(t, w.db)
			default:
				w.exec(t, `SELECT pg_stat_force_next_flush()`)
				if err := w.db.QueryRowContext(t.Context(), `SELECT coalesce(idx_tup_fetch, 0) + seq_tup_read FROM pg_stat_user_tables
WHERE schemaname = current_schema() AND relname = 'processed_messages'`).Scan(&n); err != nil {
					t.Fatal(err)
				}
			}
			return n
		}
		before := read()
		cfg := w.config()
		cfg.Effects = `SELECT id, 1 FROM (SELECT 'none' AS id) AS effects WHERE id IN (:ids)`
		cfg.Expect = audit.AtMostOne
		r, err := audit.Claims(t.Context(), cfg)
		if err != nil || r.Checked != 5000 {
			t.Fatalf("%+v, %v", r, err)
		}
		if n := read() - before; w.dialect != sqlstore.SQLite && (n < 5000 || n > 7000) {
			t.Errorf("%d rows are read of 5,000 claims", n)
		}
	})
}
