package dialect

// PostgresOutboxLook holds the statements that adapters/sqlstore uses to check for work, because it cannot send several
// statements at once, and the one that counts messages.
type PostgresOutboxLook struct {
	Look, NeedsMaintenance, Count string
}

// NewPostgresOutboxLook returns the statements for tables in schema. Empty means those that search_path finds.
func NewPostgresOutboxLook(schema string) PostgresOutboxLook {
	q := postgresNames(schema)
	return PostgresOutboxLook{
		// Returns whether the hold is valid, whether delayed messages are due, the values of PostgresOutbox.Last, and for each shard in $2
		// that the session holds with its token its first message, from where the poll begins.
		Look: q(`SELECT t.until > clock_timestamp(), due.yes,
	` + lastSeq + `,
	s.shard, s.token, s.returned, s.skipped, s.first
FROM @txonce_relays t
CROSS JOIN LATERAL (SELECT coalesce(min(not_before) <= statement_timestamp(), false) AS yes FROM @outbox_delayed) AS due
LEFT JOIN LATERAL (
	SELECT s.shard, s.token, s.returned, ` + skips + ` AS skipped, (
		SELECT m.seq FROM @outbox_messages m WHERE m.shard = s.shard AND m.seq >= ` + begins + ` ORDER BY m.seq LIMIT 1
	) AS first
	FROM unnest($2::smallint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[]) AS r(shard, token, low, returned, skip, until)
	JOIN @txonce_shards s ON s.shard = r.shard AND s.token = r.token AND s.owner = t.owner
) AS s ON true
WHERE t.owner = $1::uuid`),

		// Whether DropHolds, DropDead or Forget would change something.
		NeedsMaintenance: q(`SELECT EXISTS (SELECT FROM @outbox_held WHERE ` + ended + `)
	OR EXISTS (SELECT FROM @txonce_relays WHERE until < clock_timestamp() - interval '1 minute')
	OR coalesce((SELECT min(sent_at) FROM @outbox_sent) < statement_timestamp() - $1::float8 * interval '1 second', false)`),

		// See SQLiteOutbox.Count.
		Count: q(`SELECT 0, s.shard, p.topic, false, count(*), min(p.due), count(p.error), min(p.error), min(p.seq), next.seq, last.seq
FROM @txonce_shards s
LEFT JOIN LATERAL (SELECT m.seq FROM @outbox_messages m WHERE m.shard = s.shard ORDER BY m.seq OFFSET $1::bigint LIMIT 1) AS next ON true
CROSS JOIN LATERAL (SELECT m.seq FROM @outbox_messages m WHERE m.shard = s.shard ORDER BY m.seq DESC LIMIT 1) AS last
CROSS JOIN LATERAL (
	SELECT m.topic, ` + dueSince + ` AS due, m.error, m.seq FROM @outbox_messages m WHERE m.shard = s.shard ORDER BY m.seq LIMIT $1::bigint
) AS p
GROUP BY s.shard, p.topic, next.seq, last.seq
UNION ALL
SELECT 1, 0, topic, not_before <= statement_timestamp(), count(*), min(not_before), 0, NULL, 0, NULL, 0 FROM @outbox_delayed GROUP BY 3, 4
UNION ALL
SELECT 2, 0, topic, waiting, count(*), min(` + dueSince + `), 0, NULL, 0, NULL, 0 FROM @outbox_parked GROUP BY topic, waiting`),
	}
}
