package dialect

import "strings"

// PostgresOutboxWrite holds the statements that put messages into the outbox, and those that wake whoever relays them.
// Parameters have casts, so that a driver may also send them as text.
type PostgresOutboxWrite struct {
	Shards                                string // how many there are
	EnqueueOne, Enqueue, EnqueueNotBefore string
	LockOrderingKey                       string
	Channel, Hear, Notify                 string
}

// NewPostgresOutboxWrite returns the statements for tables in schema; empty: those that search_path finds.
func NewPostgresOutboxWrite(schema string) PostgresOutboxWrite {
	prefix := ""
	if schema != "" {
		prefix = `"` + strings.ReplaceAll(schema, `"`, `""`) + `".`
	}
	q := func(sql string) string { return strings.ReplaceAll(sql, "@", prefix) }
	return PostgresOutboxWrite{
		Shards: q(`SELECT count(*), coalesce(max(shard), -1) FROM @txonce_shards`),

		EnqueueOne: q(`INSERT INTO @outbox_messages (shard, id, topic, key, payload, headers)
VALUES ($1::smallint, $2::text, $3::text, nullif($4::bytea, ''), $5::bytea, nullif($6::text, '')::json)`),

		// An INSERT … SELECT … ORDER BY takes the defaults, and so nextval, in that order.
		Enqueue: q(`INSERT INTO @outbox_messages (shard, id, topic, key, payload, headers)
SELECT m.shard, m.id, m.topic, nullif(m.key, ''), m.payload, nullif(m.headers, '')::json
FROM unnest($1::smallint[], $2::text[], $3::text[], $4::bytea[], $5::bytea[], $6::text[])
	WITH ORDINALITY AS m(shard, id, topic, key, payload, headers, n)
ORDER BY m.n`),

		// The database's clock decides, once for the statement, which messages are to wait.
		EnqueueNotBefore: q(`WITH m AS MATERIALIZED (
	SELECT m.*, m.not_before > clock.now AS waits
	FROM (SELECT clock_timestamp() AS now) AS clock,
		unnest($1::smallint[], $2::text[], $3::text[], $4::bytea[], $5::bytea[], $6::text[], $7::timestamptz[])
			WITH ORDINALITY AS m(shard, id, topic, key, payload, headers, not_before, n)
), waiting AS (
	INSERT INTO @outbox_delayed (not_before, shard, id, topic, key, payload, headers)
	SELECT m.not_before, m.shard, m.id, m.topic, nullif(m.key, ''), m.payload, nullif(m.headers, '')::json
	FROM m WHERE m.waits ORDER BY m.n
)
INSERT INTO @outbox_messages (shard, id, topic, key, payload, headers)
SELECT m.shard, m.id, m.topic, nullif(m.key, ''), m.payload, nullif(m.headers, '')::json
FROM m WHERE NOT m.waits ORDER BY m.n`),

		LockOrderingKey: `SELECT pg_advisory_xact_lock($1::bigint)`,

		// The channel is named after the schema's number, so that it is the same whether a program names the schema or finds
		// it by search_path, and so that two outboxes in one database do not wake each other.
		Channel: q(`SELECT ` + outboxChannel + ` FROM pg_class WHERE oid = '@txonce_shards'::regclass`),

		// Who listens says so by a lock, which ends with its session. It is taken before LISTEN, and both before the first look for messages.
		Hear: q(`SELECT pg_advisory_lock_shared(` + outboxHears + `) FROM pg_class WHERE oid = '@txonce_shards'::regclass`),

		// Sent after a commit, never within it: a transaction that notifies takes a lock of the whole server when it commits.
		// It is a hint, so its own commit need not wait for the disk. While nobody listens the lock of Hear is free, and nothing is sent:
		// whoever begins to listen looks for messages itself. Of two that ask in the same moment one may send for nothing.
		Notify: q(`SELECT set_config('synchronous_commit', 'off', true), pg_notify(` + outboxChannel + `, '')
FROM pg_class WHERE oid = '@txonce_shards'::regclass AND NOT pg_try_advisory_xact_lock(` + outboxHears + `)`),
	}
}

const outboxChannel = `'txonce_outbox_' || relnamespace`

// outboxHears are the numbers of an advisory lock: one of our own, and the schema's, which may be above what fits into an integer.
const outboxHears = `1954115438, (relnamespace::bigint - 2147483648)::integer`
