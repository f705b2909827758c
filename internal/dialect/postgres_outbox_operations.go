package dialect

// PostgresOutboxOperations holds the statements of operators: for parked messages and for statistics.
type PostgresOutboxOperations struct {
	// Parked messages, and the return of messages that wait behind them.
	Stranded, Find, LockShard, Unpark, Discard, Release, Rehold string
	Parked                                                      string
	// Stats. Clock, First and Living read a bounded number of rows.
	Clock, First, Few, Blocks, Living string
	Sample                            [3]string // of messages, delayed messages, parked messages
}

// holder is true for a parked message p that holds back later messages of its key.
const holder = `p.key IS NOT NULL AND NOT p.waiting AND p.keep_order < 2`

func newPostgresOutboxOperations(q func(sql string) string) PostgresOutboxOperations {
	return PostgresOutboxOperations{
		// Keys whose messages were left behind because a session crashed while it moved them back.
		Stranded: q(`SELECT h.shard, h.key FROM unnest($1::smallint[]) AS r(shard)
JOIN @outbox_held h ON h.shard = r.shard AND h.until = 'infinity'
WHERE NOT EXISTS (SELECT FROM @outbox_parked p WHERE p.seq = h.from_seq AND ` + holder + `)
LIMIT $2::bigint`),

		Find: q(`SELECT p.seq, p.shard, p.key FROM unnest($1::bigint[]) AS r(seq) JOIN @outbox_parked p ON p.seq BETWEEN r.seq AND r.seq ORDER BY p.seq`),

		// Locks the shard against settling and parking, and records that messages with an old seq return.
		LockShard: q(`UPDATE @txonce_shards SET returned = returned + 1 WHERE shard = $1::smallint`),

		// A message behind one that stays parked stays too; it would be parked again at once.
		Unpark: q(`WITH gone AS (
	DELETE FROM @outbox_parked p USING unnest($2::bigint[]) AS r(seq)
	WHERE p.seq BETWEEN r.seq AND r.seq AND p.shard = $1::smallint AND NOT EXISTS (
		SELECT FROM @outbox_parked h WHERE h.shard = p.shard AND h.key = p.key AND h.seq < p.seq
			AND h.key IS NOT NULL AND NOT h.waiting AND h.keep_order < 2 AND h.seq <> ALL ($2::bigint[]))
	RETURNING p.*
)
INSERT INTO @outbox_messages (` + columns + `) SELECT ` + columns + ` FROM gone`),

		Discard: q(`DELETE FROM @outbox_parked p USING unnest($2::bigint[]) AS r(seq) WHERE p.seq BETWEEN r.seq AND r.seq AND p.shard = $1::smallint`),

		// For each key the first messages that no longer wait for another.
		Release: q(`WITH free AS (
	SELECT w.seq FROM unnest($2::bytea[]) AS k(key)
	LEFT JOIN LATERAL (
		SELECT p.seq FROM @outbox_parked p WHERE p.shard = $1::smallint AND p.key = k.key AND ` + holder + ` ORDER BY p.seq LIMIT 1
	) AS first ON true
	CROSS JOIN LATERAL (
		SELECT p.seq FROM @outbox_parked p WHERE p.shard = $1::smallint AND p.key = k.key AND p.waiting
			AND p.seq < coalesce(first.seq, 9223372036854775807) ORDER BY p.seq LIMIT $3::bigint
	) AS w
), gone AS (
	DELETE FROM @outbox_parked p USING free WHERE p.seq BETWEEN free.seq AND free.seq RETURNING p.*
)
INSERT INTO @outbox_messages (` + columns + `, attempts) SELECT ` + columns + `, attempts FROM gone`),

		// Updates each key's hold to match its parked messages.
		Rehold: q(`WITH remains AS (
	SELECT k.key, first.seq AS first, first.park, w.seq AS waits
	FROM unnest($2::bytea[]) AS k(key)
	LEFT JOIN LATERAL (
		SELECT p.seq, p.keep_order = 1 AS park FROM @outbox_parked p
		WHERE p.shard = $1::smallint AND p.key = k.key AND ` + holder + ` ORDER BY p.seq LIMIT 1
	) AS first ON true
	LEFT JOIN LATERAL (
		SELECT p.seq FROM @outbox_parked p WHERE p.shard = $1::smallint AND p.key = k.key AND p.waiting ORDER BY p.seq LIMIT 1
	) AS w ON true
), freed AS (
	DELETE FROM @outbox_held h USING remains r
	WHERE h.shard = $1::smallint AND h.key = r.key AND h.until = 'infinity' AND r.first IS NULL AND r.waits IS NULL
)
INSERT INTO @outbox_held AS h (shard, key, from_seq, until, park)
SELECT $1::smallint, key, least(first, waits), 'infinity', coalesce(park AND first < coalesce(waits, 9223372036854775807), false)
FROM remains WHERE first IS NOT NULL OR waits IS NOT NULL
ON CONFLICT (shard, key, endless) DO UPDATE SET from_seq = excluded.from_seq, park = excluded.park`),

		// The message that a parked message waits for may have changed since it was parked.
		Parked: q(`SELECT p.shard, p.seq, p.id, p.topic, p.key, p.payload, p.headers::text, p.enqueued_at, p.attempts, p.error,
	coalesce(CASE WHEN p.waiting THEN (SELECT h.seq FROM @outbox_parked h WHERE h.shard = p.shard AND h.key = p.key
		AND h.key IS NOT NULL AND NOT h.waiting AND h.keep_order < 2 AND h.seq < p.seq ORDER BY h.seq LIMIT 1) END, p.behind, 0), p.waiting, p.parked_at
FROM @outbox_parked p
WHERE p.seq > $1::bigint AND ($2::text = '' OR p.topic = $2::text) AND ($3::bytea = '' OR p.key = $3::bytea)
	AND ($5::text = '' OR strpos(p.error, $5::text) > 0) AND ($6::timestamptz IS NULL OR p.parked_at >= $6::timestamptz)
	AND ($7::timestamptz IS NULL OR p.parked_at < $7::timestamptz)
ORDER BY p.seq LIMIT $4::bigint`),

		Clock: q(`SELECT clock_timestamp(), (SELECT count(DISTINCT (shard, key)) FROM @outbox_held
	WHERE until > statement_timestamp() AND (set_at > statement_timestamp()) IS NOT TRUE)`),

		// The first message of each shard. They are among the first that are due.
		First: q(`SELECT m.topic, min(m.due) FROM @txonce_shards s
CROSS JOIN LATERAL (SELECT topic, ` + dueSince + ` AS due FROM @outbox_messages WHERE shard = s.shard ORDER BY seq LIMIT 1) AS m GROUP BY m.topic`),

		// The first $1 rows of each table, by topic. The flag is true for delayed messages that are due and for parked
		// messages that wait.
		Few: q(`SELECT 0, topic, false, count(*), min(due), count(error), coalesce(min(error), '') FROM (
	SELECT topic, ` + dueSince + ` AS due, error FROM @outbox_messages ORDER BY shard, seq LIMIT $1::bigint) AS m GROUP BY topic
UNION ALL
SELECT 1, topic, not_before <= statement_timestamp(), count(*), min(not_before), 0, '' FROM (
	SELECT topic, not_before FROM @outbox_delayed ORDER BY not_before, seq LIMIT $1::bigint) AS d GROUP BY 2, 3
UNION ALL
SELECT 2, topic, waiting, count(*), min(due), 0, '' FROM (
	SELECT topic, waiting, ` + dueSince + ` AS due FROM @outbox_parked ORDER BY seq LIMIT $1::bigint) AS p GROUP BY topic, waiting`),

		// Their sizes in blocks.
		Blocks: q(`SELECT bytes / current_setting('block_size')::bigint FROM (VALUES
	(0, pg_relation_size('@outbox_messages')),
	(1, pg_relation_size('@outbox_delayed')),
	(2, pg_relation_size('@outbox_parked'))
) AS t(n, bytes) ORDER BY n`),

		// For a table with very many rows, counts $1 percent of its blocks.
		Sample: [...]string{
			q(`SELECT topic, false, count(*), min(` + dueSince +
				`), count(error), coalesce(min(error), '') FROM @outbox_messages TABLESAMPLE SYSTEM ($1::real) GROUP BY topic`),
			q(`SELECT topic, not_before <= statement_timestamp(), count(*), min(not_before), 0, '' FROM @outbox_delayed TABLESAMPLE SYSTEM ($1::real) GROUP BY 1, 2`),
			q(`SELECT topic, waiting, count(*), min(` + dueSince +
				`), 0, '' FROM @outbox_parked TABLESAMPLE SYSTEM ($1::real) GROUP BY topic, waiting`),
		},

		// The sessions whose holds are valid, and how many shards each one has.
		Living: q(`SELECT r.name, r.until, (SELECT count(*) FROM @txonce_shards s WHERE s.owner = r.owner)
FROM @txonce_relays r WHERE r.until > clock_timestamp() ORDER BY r.name, r.until`),
	}
}
