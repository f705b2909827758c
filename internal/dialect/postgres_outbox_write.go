package dialect

import (
	"strconv"
	"strings"
)

// PostgresOutboxWrite holds the statements that enqueue messages, and those that notify relays. Parameters have casts,
// so a driver may send them as text.
type PostgresOutboxWrite struct {
	Shards                                string // their number
	EnqueueOne, Enqueue, EnqueueNotBefore string
	LockOrderingKey                       string
	Channel, Hear, Notify                 string
}

// NewPostgresOutboxWrite returns the statements for tables in schema. Empty means those that search_path finds.
func NewPostgresOutboxWrite(schema string) PostgresOutboxWrite {
	q := postgresNames(schema)
	return PostgresOutboxWrite{
		Shards: q(`SELECT count(*), coalesce(max(shard), -1) FROM @txonce_shards`),

		EnqueueOne: q(`INSERT INTO @outbox_messages (shard, id, topic, key, payload, headers)
VALUES ($1::smallint, $2::text, $3::text, nullif($4::bytea, ''), $5::bytea, nullif($6::text, '')::json)`),

		// INSERT … SELECT … ORDER BY evaluates the defaults, and so nextval, in that order.
		Enqueue: q(`INSERT INTO @outbox_messages (shard, id, topic, key, payload, headers)
SELECT m.shard, m.id, m.topic, nullif(m.key, ''), m.payload, nullif(m.headers, '')::json
FROM unnest($1::smallint[], $2::text[], $3::text[], $4::bytea[], $5::bytea[], $6::text[])
	WITH ORDINALITY AS m(shard, id, topic, key, payload, headers, n)
ORDER BY m.n`),

		// The database's clock decides which messages wait, once for the whole statement.
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

		// The channel is named after the schema's OID. So it does not depend on whether a program names the schema or
		// finds it by search_path, and two outboxes in one database do not wake each other.
		Channel: q(`SELECT ` + outboxChannel + ` FROM pg_class WHERE oid = '@txonce_shards'::regclass`),

		// A listening session holds this lock until the session ends. It takes the lock before LISTEN, and polls for
		// messages only after both.
		Hear: q(`SELECT pg_advisory_lock_shared(` + outboxHears +
			`) FROM pg_class WHERE oid = '@txonce_shards'::regclass`),

		// Notify is sent after a commit, never within it: a transaction that notifies takes a server-wide lock when it
		// commits. It is only a hint, so its own commit need not wait for the disk. If no session listens, the lock of
		// Hear is free and nothing is sent; a session that begins to listen polls first. If two transactions test the
		// lock at the same time, one may notify without need. The payload $1 lists the shards with new messages, see
		// NotifiedShards.
		Notify: q(`SELECT set_config('synchronous_commit', 'off', true), pg_notify(` + outboxChannel + `, $1::text)
FROM pg_class WHERE oid = '@txonce_shards'::regclass AND NOT pg_try_advisory_xact_lock(` + outboxHears + `)`),
	}
}

const outboxChannel = `'txonce_outbox_' || relnamespace`

// outboxHears, outboxTakes and outboxMoves are the two numbers of advisory locks: one of our own, and the schema's OID,
// which may exceed the range of integer.
const (
	outboxHears = `1954115438, (relnamespace::bigint - 2147483648)::integer`
	outboxTakes = `1954115439, (relnamespace::bigint - 2147483648)::integer`
	outboxMoves = `1954115440, (relnamespace::bigint - 2147483648)::integer`
)

// maxNotified is how many shards a notification names. For more it is shorter to say nothing.
const maxNotified = 16

// NotifyShards returns the payload of Notify for commits with messages in these shards. nil means any shard.
func NotifyShards(shards []int16) string {
	if len(shards) > maxNotified {
		return ""
	}
	var list strings.Builder
	for i, n := range shards {
		if i > 0 {
			list.WriteByte(',')
		}
		list.WriteString(strconv.Itoa(int(n)))
	}
	return list.String()
}

// NotifiedShards reads the payload of a notification. nil means any shard.
func NotifiedShards(payload string) (shards []int16) {
	for text := range strings.SplitSeq(payload, ",") {
		n, err := strconv.ParseInt(text, 10, 16)
		if err != nil {
			return nil
		}
		shards = append(shards, int16(n))
	}
	return shards
}
