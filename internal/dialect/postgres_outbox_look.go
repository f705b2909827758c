package dialect

import "strings"

// PostgresOutboxLook holds what adapters/sqlstore asks before it leases, where it cannot send several statements at once.
type PostgresOutboxLook struct {
	Look string
}

// NewPostgresOutboxLook returns the statements for tables in schema; empty: those that search_path finds.
func NewPostgresOutboxLook(schema string) PostgresOutboxLook {
	prefix := ""
	if schema != "" {
		prefix = `"` + strings.ReplaceAll(schema, `"`, `""`) + `".`
	}
	q := func(sql string) string { return strings.ReplaceAll(sql, "@", prefix) }
	return PostgresOutboxLook{
		// Whether the hold stands, whether delayed messages are due, and which of the shards have messages.
		Look: q(`SELECT r.until > clock_timestamp(), due.yes, s.shard, s.token
FROM @txonce_relays r
CROSS JOIN LATERAL (SELECT coalesce(min(not_before) <= statement_timestamp(), false) AS yes FROM @outbox_delayed) AS due
LEFT JOIN LATERAL (
	SELECT s.shard, s.token FROM @txonce_shards s,
		LATERAL (SELECT FROM @outbox_messages m WHERE m.shard = s.shard ORDER BY m.seq LIMIT 1) AS first
	WHERE s.owner = r.owner
) AS s ON true
WHERE r.owner = $1::uuid`),
	}
}
