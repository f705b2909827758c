package cli

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/txonce/txonce/internal/sqlrows"
)

// serverCheck is a query whose rows are problems: two columns for text's verbs.
type serverCheck struct {
	name   string
	level  level
	query  string
	args   []any
	text   string // with %s for each of the two columns
	remedy string
}

// checkServer looks at what only the server knows.
func (a *app) checkServer(ctx context.Context, db *Database, c *checks, lim limits) error {
	var all []serverCheck
	switch db.Dialect {
	case "postgres":
		all = postgresChecks(lim, ownTables(a.target.Schema))
	case "mysql":
		var mariaDB bool
		limited, cancel := a.limit(ctx)
		err := db.SQL.QueryRowContext(limited, `SELECT VERSION() LIKE '%MariaDB%'`).Scan(&mariaDB)
		cancel()
		if err != nil {
			return fmt.Errorf("ask for the server's version: %w", err)
		}
		all = mysqlChecks(lim, a.target.Schema, mariaDB)
	case "sqlite":
		all = sqliteChecks()
	}
	for _, s := range all {
		c.done = append(c.done, s.name)
		limited, cancel := a.limit(ctx)
		err := s.run(limited, db.SQL, c)
		cancel()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, context.DeadlineExceeded):
			c.add(warning, s.name, fmt.Sprintf("could not be checked within %v", a.timeout), "a longer --timeout")
		case err != nil:
			c.add(warning, s.name, "could not be checked: "+err.Error(), "")
		}
	}
	return nil
}

func (s *serverCheck) run(ctx context.Context, db *sql.DB, c *checks) error {
	return sqlrows.Each(ctx, db, s.query, s.args, func(rows *sql.Rows) error {
		var one, two sql.NullString
		if err := rows.Scan(&one, &two); err != nil {
			return err
		}
		c.add(s.level, s.name, fmt.Sprintf(s.text, one.String, two.String), s.remedy)
		return nil
	})
}

// ownTables are the relations of the schema that has txonce_schema. An empty schema is the one that search_path finds.
func ownTables(schema string) string {
	name := "txonce_schema"
	if schema != "" {
		name = `"` + strings.ReplaceAll(schema, `"`, `""`) + `".` + name
	}
	return `pg_class c WHERE c.relkind = 'r' AND c.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = to_regclass('` + strings.ReplaceAll(name, `'`, `''`) + `'))
	AND c.relname IN ('processed_messages', 'txonce_windows', 'txonce_sources', 'txonce_sweep', 'dead_letters', 'txonce_schema', 'outbox_messages',
	'outbox_delayed', 'outbox_held', 'outbox_parked', 'outbox_sent', 'txonce_relays', 'txonce_shards', 'operator_actions', 'operator_results',
	'txonce_passes', 'consumer_activity', 'entity_versions', 'source_positions', 'txonce_calls')`
}

func postgresChecks(lim limits, ownTables string) []serverCheck {
	return []serverCheck{
		{
			"unlogged", wrong, `SELECT c.relname, '' FROM ` + ownTables + ` AND c.relpersistence <> 'p'`, nil,
			"table %s is not logged%s: a crash of the server empties it", "ALTER TABLE … SET LOGGED",
		},
		{
			"autovacuum", warning, `SELECT c.relname, '' FROM ` + ownTables + ` AND EXISTS (
	SELECT FROM pg_options_to_table(c.reloptions) WHERE option_name = 'autovacuum_enabled' AND NOT option_value::boolean)
UNION ALL SELECT 'of the server', '' WHERE NOT current_setting('autovacuum')::boolean`, nil,
			"autovacuum is off for table %s%s: claims become slower and slower",
			"ALTER TABLE … RESET (autovacuum_enabled)",
		},
		{
			"triggers", warning, `SELECT t.tgname, t.tgrelid::regclass::text FROM pg_trigger t WHERE NOT t.tgisinternal AND t.tgenabled <> 'D' AND t.tgname <> 'txonce_guard' AND t.tgrelid IN (SELECT c.oid FROM ` + ownTables + `)`, nil,
			"trigger %s on table %s may change or drop what txonce writes", "",
		},
		{
			"guard", wrong, `SELECT c.relname, '' FROM ` + ownTables + ` AND c.relname = 'processed_messages'
	AND NOT EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = c.oid AND t.tgname = 'txonce_guard' AND t.tgenabled <> 'D')`, nil,
			"table %s has no trigger txonce_guard%s, or it is disabled: a cleanup job can delete keys whose messages then run again",
			"ALTER TABLE … ENABLE TRIGGER txonce_guard; docs/operations.md has the statement that creates it, as after pg_restore -t",
		},
		{
			"indexes", wrong, `SELECT i.indexrelid::regclass::text, i.indrelid::regclass::text FROM pg_index i
WHERE NOT i.indisvalid AND i.indrelid IN (SELECT c.oid FROM ` + ownTables + `)`, nil,
			"index %s of table %s is not valid", "REINDEX INDEX CONCURRENTLY",
		},
		{
			"transactions", warning, `SELECT pid::text, concat(date_trunc('second', clock_timestamp() - xact_start)::text,
	' (', concat_ws(', ', state, host(client_addr), NULLIF(application_name, '')), ')') FROM pg_stat_activity
WHERE xact_start < clock_timestamp() - $1::float8 * interval '1 second' AND backend_type = 'client backend' AND datname = current_database() ORDER BY xact_start LIMIT 20`,
			[]any{lim.transaction.Seconds()},
			"the transaction of pid %s has been open for %s: it keeps its keys, and vacuum cannot clean up",
			"SELECT pg_terminate_backend(pid), if it is frozen",
		},
		{
			"prepared", warning, `SELECT gid, date_trunc('second', clock_timestamp() - prepared)::text FROM pg_prepared_xacts
WHERE database = current_database() AND prepared < clock_timestamp() - $1::float8 * interval '1 second' LIMIT 20`,
			[]any{lim.transaction.Seconds()},
			"the prepared transaction %s has waited for %s: it keeps its keys until COMMIT PREPARED or ROLLBACK PREPARED", "",
		},
		{
			"slots", warning, `SELECT slot_name, pg_size_pretty(pg_wal_lsn_diff(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END, restart_lsn))
FROM pg_replication_slots WHERE pg_wal_lsn_diff(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END, restart_lsn) > $1::bigint`,
			[]any{lim.slot},
			"the replication slot %s holds back %s of WAL: the disk may become full",
			"let its reader catch up, or drop it",
		},
		{
			"slots", wrong, `SELECT slot_name, coalesce(wal_status, '') FROM pg_replication_slots WHERE wal_status = 'lost'`, nil,
			"the replication slot %s is %s: its reader misses changes", "make it again, after a fresh snapshot",
		},
		{
			"connections", warning, `SELECT count(*)::text, current_setting('max_connections') FROM pg_stat_activity WHERE backend_type = 'client backend'
HAVING count(*) > 0.9 * current_setting('max_connections')::int`, nil,
			"%s of %s connections are used: workers will soon wait or fail",
			"use fewer workers or smaller pools: about four connections per core are enough",
		},
		{
			"wraparound", wrong, `SELECT datname, age(datfrozenxid)::text FROM pg_database WHERE datname = current_database() AND age(datfrozenxid) > 1500000000`, nil,
			"database %s is %s transactions old: it will refuse writes at 2 billion",
			"VACUUM, and end old transactions",
		},
	}
}

func mysqlChecks(lim limits, schema string, mariaDB bool) []serverCheck {
	// MySQL's tables of information_schema about sessions cannot be read while any session runs a statement with bytes
	// that are not UTF-8.
	old := `SELECT t.processlist_id, SEC_TO_TIME(e.timer_wait DIV 1000000000000)
FROM performance_schema.events_transactions_current AS e JOIN performance_schema.threads AS t USING (thread_id)
WHERE e.state = 'ACTIVE' AND e.timer_wait > ? * 1000000000000 AND t.processlist_id IS NOT NULL ORDER BY e.timer_wait DESC LIMIT 20`
	status := "performance_schema"
	if mariaDB {
		// trx_started is in the server's zone, and NOW() in that of the session.
		const now = `CONVERT_TZ(NOW(), @@session.time_zone, 'SYSTEM')`
		old = `SELECT trx_mysql_thread_id, TIMEDIFF(` + now + `, trx_started) FROM information_schema.INNODB_TRX
WHERE trx_started < ` + now + ` - INTERVAL ? SECOND ORDER BY trx_started LIMIT 20`
		status = "information_schema"
	}
	all := []serverCheck{
		{
			"triggers", warning, `SELECT trigger_name, event_object_table FROM information_schema.triggers WHERE trigger_schema = COALESCE(NULLIF(?, ''), DATABASE())
AND (event_object_table LIKE 'outbox\_%' OR event_object_table LIKE 'txonce\_%' OR event_object_table LIKE 'operator\_%'
	OR event_object_table IN ('processed_messages', 'dead_letters', 'entity_versions', 'source_positions'))`,
			[]any{schema},
			"trigger %s on table %s may change or drop what txonce writes", "",
		},
		{
			"transactions", warning, old,
			[]any{int64(lim.transaction / time.Second)},
			"the transaction of connection %s has been open for %s: it keeps its keys",
			"KILL the connection, if it is frozen",
		},
		{
			"connections", warning, `SELECT variable_value, @@max_connections FROM ` + status + `.global_status
WHERE variable_name = 'Threads_connected' AND variable_value > 0.9 * @@max_connections`, nil,
			"%s of %s connections are used: workers will soon wait or fail", "use fewer workers or smaller pools",
		},
	}
	if !mariaDB {
		all = append(all, serverCheck{
			"instruments", warning, `SELECT name, enabled FROM performance_schema.setup_instruments WHERE name = 'transaction' AND enabled = 'NO'`, nil,
			"the instrument %s of performance_schema is off (%s): old transactions are not found",
			"UPDATE performance_schema.setup_instruments SET enabled = 'YES', timed = 'YES' WHERE name = 'transaction'",
		})
	}
	return all
}

func sqliteChecks() []serverCheck {
	return []serverCheck{
		{
			"journal", warning, `SELECT journal_mode, '' FROM pragma_journal_mode WHERE journal_mode <> 'wal'`, nil,
			"journal_mode is %s%s: readers block the writer", "PRAGMA journal_mode = wal",
		},
		{
			"triggers", warning, `SELECT name, tbl_name FROM sqlite_schema WHERE type = 'trigger'
AND (tbl_name LIKE 'outbox\_%' ESCAPE '\' OR tbl_name LIKE 'txonce\_%' ESCAPE '\' OR tbl_name IN ('processed_messages', 'dead_letters', 'entity_versions', 'source_positions'))`, nil,
			"trigger %s on table %s may change or drop what txonce writes", "",
		},
		{
			"integrity", wrong, `SELECT quick_check, '' FROM pragma_quick_check WHERE quick_check <> 'ok'`, nil,
			"the file is damaged: %s%s", "restore a backup",
		},
	}
}
