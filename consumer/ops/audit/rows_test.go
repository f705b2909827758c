package audit_test

import (
	"testing"

	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/consumer/ops/audit"
)

// An audit reads each claim once: a page does not read the claims of the others. The databases themselves count the rows.
func TestRowsRead(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		count := map[sqlstore.Dialect]string{
			sqlstore.Postgres: `SELECT coalesce(idx_tup_fetch, 0) + seq_tup_read FROM pg_stat_user_tables
WHERE schemaname = current_schema() AND relname = 'processed_messages'`,
			sqlstore.MySQL: `SELECT sum(variable_value) FROM information_schema.session_status
WHERE variable_name IN ('HANDLER_READ_FIRST', 'HANDLER_READ_KEY', 'HANDLER_READ_NEXT', 'HANDLER_READ_RND', 'HANDLER_READ_RND_NEXT')`,
		}[w.dialect]
		w.process(t, 5000)
		w.db.SetMaxOpenConns(1) // the counters are those of a session
		w.exec(t, `ANALYZE`+map[sqlstore.Dialect]string{sqlstore.MySQL: ` TABLE processed_messages`}[w.dialect])
		read := func() (n int) {
			t.Helper()
			if count == "" {
				return 0 // SQLite does not count
			}
			if w.dialect == sqlstore.Postgres {
				w.exec(t, `SELECT pg_stat_force_next_flush()`)
			}
			if err := w.db.QueryRowContext(t.Context(), count).Scan(&n); err != nil {
				t.Fatal(err)
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
		if n := read() - before; count != "" && (n < 5000 || n > 7000) {
			t.Errorf("%d rows are read of 5,000 claims", n)
		}
	})
}
