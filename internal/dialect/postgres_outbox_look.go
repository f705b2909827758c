package dialect

import "strings"

// PostgresOutboxLook holds what adapters/sqlstore asks before it does something, as it cannot send several statements at once, and
// what it counts.
type PostgresOutboxLook struct {
	Look, Untidy                            string
	Clock, Pending, Delayed, Parked, Relays string
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

		// Whether DropHolds, DropDead or Forget would find something.
		Untidy: q(`SELECT EXISTS (SELECT FROM @outbox_held WHERE until < statement_timestamp() - interval '10 seconds')
	OR EXISTS (SELECT FROM @txonce_relays WHERE until < clock_timestamp() - interval '1 minute')
	OR coalesce((SELECT min(sent_at) FROM @outbox_sent) < statement_timestamp() - $1::float8 * interval '1 second', false)`),

		Clock: q(`SELECT clock_timestamp(), (SELECT count(*) FROM @outbox_held WHERE until > statement_timestamp())`),

		// As in SQLiteOutbox: the first $1 rows of each shard are counted.
		Pending: q(`SELECT s.shard, p.topic, count(*), min(p.enqueued_at), min(p.seq), next.seq, last.seq
FROM @txonce_shards s
LEFT JOIN LATERAL (SELECT m.seq FROM @outbox_messages m WHERE m.shard = s.shard ORDER BY m.seq OFFSET $1::bigint LIMIT 1) AS next ON true
CROSS JOIN LATERAL (SELECT m.seq FROM @outbox_messages m WHERE m.shard = s.shard ORDER BY m.seq DESC LIMIT 1) AS last
CROSS JOIN LATERAL (
	SELECT m.topic, m.enqueued_at, m.seq FROM @outbox_messages m WHERE m.shard = s.shard ORDER BY m.seq LIMIT $1::bigint
) AS p
GROUP BY s.shard, p.topic, next.seq, last.seq`),
		Delayed: q(`SELECT topic, count(*) FROM @outbox_delayed GROUP BY topic`),
		Parked:  q(`SELECT topic, count(*), count(*) FILTER (WHERE waiting) FROM @outbox_parked GROUP BY topic`),
		Relays: q(`SELECT r.name, r.until, count(s.shard) FROM @txonce_relays r LEFT JOIN @txonce_shards s ON s.owner = r.owner
WHERE r.until > clock_timestamp() GROUP BY r.owner ORDER BY r.name, r.until`),
	}
}
