package dialect

// PostgresOutbox holds the statements of the relay's side of the outbox, in the order of a session's life.
// adapters/pgxstore and adapters/sqlstore both use them, at READ COMMITTED, on connections with OwnSettings or in
// transactions that begin with Settings.
type PostgresOutbox struct {
	// Settings are for one transaction, OwnSettings for a connection that only relays use.
	Settings, OwnSettings string
	// Holding shards.
	Begin, Renew, Restart, Relays, Shards   string
	LockShards, DropExpired, Take, GiveBack string
	End, GiveBackAll                        string
	// Leasing and settling.
	Due, Check, Sent, Keep                string
	LeaseFrom, LeaseFew                   string
	Last, Writers                         string
	Numbers                               string
	Defer, HoldDeferred, Park, HoldParked string
	DeferTopic                            string
	// Messages that wait behind a parked one.
	Behind, Follow string
	// Upkeep. Chores reads whether there is something to do.
	Chores, DropHolds, DropDead, Forget string

	PostgresOutboxOperations
}

// columns are the columns that move with a message from table to table.
const columns = `shard, seq, id, topic, key, payload, headers, enqueued_at, not_before`

// dueSince is the time when a message became due.
const dueSince = `coalesce(not_before, enqueued_at)`

// at finds message m by r. The id matters after a failover to a standby that lacked commits: another message may have
// the seq then. at avoids = for the primary key, because with outdated statistics of an empty table the planner might
// merge or hash all messages.
const at = `m.shard = ANY (ARRAY[r.shard]) AND m.seq BETWEEN r.seq AND r.seq AND m.id = r.id`

// ended is true for a hold of a key that is over for some time: its end has come, or the clock was set back behind its
// beginning.
const ended = `(until < statement_timestamp() - interval '10 seconds' OR set_at > statement_timestamp() + interval '10 seconds')`

// guarded is true in a transaction after Check has found that the session still holds every shard.
const guarded = `current_setting('txonce.settling', true) = 'on'`

// NewPostgresOutbox returns the statements for tables in schema. Empty means those that search_path finds.
func NewPostgresOutbox(schema string) PostgresOutbox {
	q := postgresNames(schema)
	return PostgresOutbox{
		PostgresOutboxOperations: newPostgresOutboxOperations(q),

		Settings:    relaySettings("true"),
		OwnSettings: relaySettings("false") + `, set_config('default_transaction_isolation', 'read committed', false)`,

		// Begins the hold. A repetition, after the first try got no answer, extends it.
		Begin: q(`INSERT INTO @txonce_relays AS r (owner, name, until, set_at)
VALUES ($1::uuid, $2::text, clock_timestamp() + $3::float8 * interval '1 second', clock_timestamp())
ON CONFLICT (owner) DO UPDATE SET until = excluded.until, set_at = excluded.set_at WHERE r.until > clock_timestamp()`),

		// An expired hold is not extended, even if no other session has noticed yet.
		Renew: q(`UPDATE @txonce_relays SET until = clock_timestamp() + $2::float8 * interval '1 second', set_at = clock_timestamp()
WHERE owner = $1::uuid AND until > clock_timestamp()`),

		// A hold that begins in the future was set before the clock was set back. It begins again now, with its length:
		// its session may live, and relies on that length by its own clock. A session that renews itself at this moment
		// is skipped.
		Restart: q(`UPDATE @txonce_relays r SET until = clock_timestamp() + (r.until - r.set_at), set_at = clock_timestamp()
FROM (SELECT owner FROM @txonce_relays WHERE set_at > clock_timestamp() FOR UPDATE SKIP LOCKED) AS ahead
WHERE r.owner = ahead.owner AND r.set_at > clock_timestamp()`),

		// The living sessions, and when their holds expire, in microseconds.
		Relays: q(`SELECT owner::text, name = $2::text, (extract(epoch FROM until) * 1000000)::bigint, owner = $1::uuid
FROM @txonce_relays WHERE until > clock_timestamp()`),

		Shards: q(`SELECT s.shard, s.token, coalesce(s.owner = $1::uuid, false) AS mine,
	NOT EXISTS (SELECT FROM @txonce_relays r WHERE r.owner = s.owner AND r.until > clock_timestamp()) AS free, s.returned
FROM @txonce_shards s ORDER BY s.shard`),

		// One session at a time takes shards. Each statement of READ COMMITTED has its own snapshot, so the following
		// ones see what the previous session took. The condition in Take alone would not suffice: when a row has
		// changed, PostgreSQL checks it again without reading txonce_relays again. The lock is not one of the table,
		// because VACUUM and REINDEX CONCURRENTLY take such a lock too, and the latter keeps it while old transactions
		// are open.
		LockShards: q(`SELECT pg_advisory_xact_lock(` + outboxTakes +
			`) FROM pg_class WHERE oid = '@txonce_shards'::regclass`),

		// Waits for a late Renew of that session and then keeps its row. A Renew that comes after this finds no row.
		DropExpired: q(`DELETE FROM @txonce_relays WHERE until <= clock_timestamp()`),

		// A shard is free if its owner has no row. The clock alone would not suffice, because a late Renew could come
		// between. A shard that is being settled is left for the next time.
		Take: q(`UPDATE @txonce_shards s SET owner = $1::uuid, token = s.token + 1
FROM (
	SELECT f.shard FROM @txonce_shards f
	WHERE NOT EXISTS (SELECT FROM @txonce_relays r WHERE r.owner = f.owner)
	ORDER BY random() LIMIT $2::bigint FOR UPDATE OF f SKIP LOCKED
) AS free
WHERE s.shard = free.shard AND EXISTS (SELECT FROM @txonce_relays r WHERE r.owner = $1::uuid AND r.until > clock_timestamp())
RETURNING s.shard, s.token`),

		GiveBack: q(`UPDATE @txonce_shards s SET owner = NULL FROM unnest($2::smallint[]) AS r(shard)
WHERE s.shard = r.shard AND s.owner = $1::uuid`),

		End:         q(`DELETE FROM @txonce_relays WHERE owner = $1::uuid`),
		GiveBackAll: q(`UPDATE @txonce_shards SET owner = NULL WHERE owner = $1::uuid`),

		// Due delayed messages get a new seq, in the order of their not-before times. One session at a time moves them:
		// otherwise the later messages could be committed first.
		Due: q(`WITH due AS (
	DELETE FROM @outbox_delayed d USING (
		SELECT not_before, seq FROM @outbox_delayed WHERE not_before <= statement_timestamp()
			AND (SELECT pg_try_advisory_xact_lock(` + outboxMoves + `) FROM pg_class WHERE oid = '@txonce_shards'::regclass)
		ORDER BY not_before, seq LIMIT $1::bigint FOR UPDATE SKIP LOCKED
	) AS first WHERE d.not_before = ANY (ARRAY[first.not_before]) AND d.seq BETWEEN first.seq AND first.seq RETURNING d.*
)
INSERT INTO @outbox_messages (shard, id, topic, key, payload, headers, enqueued_at, not_before)
SELECT shard, id, topic, key, payload, headers, enqueued_at, not_before FROM due ORDER BY not_before, seq`),

		// From each shard the first messages that do not wait: at most "most" messages among its first "look" rows. The
		// first and the last of these rows are returned even if they wait; a row at position "look" shows that more may
		// follow. "until" is when the first of the rows before this one stops waiting, at most a minute ahead; 0 if one
		// of them does not wait. Rows are taken from the shards in turn, so a cut by number ($5) or bytes ($6) leaves
		// each shard its first messages.
		LeaseFrom: q(`SELECT shard, token, n, held, seq, id, topic, key, payload, headers::text, enqueued_at, attempts, returned, skipped,
	CASE WHEN before > statement_timestamp() THEN extract(epoch FROM least(before, statement_timestamp() + interval '1 minute')) * 1000000 ELSE 0 END::bigint AS until
FROM (
	SELECT r.token, s.returned, ` + skips + ` AS skipped, m.*, count(*) FILTER (WHERE NOT m.held) OVER turn AS place,
		sum(CASE WHEN m.held THEN 0 ELSE octet_length(m.payload) + coalesce(octet_length(m.key), 0) + coalesce(pg_column_size(m.headers), 0) END) OVER turn AS bytes
	FROM unnest($2::smallint[], $3::bigint[], $4::bigint[], $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[])
		AS r(shard, token, look, most, low, returned, skip, until)
	JOIN @txonce_shards s ON s.shard = r.shard AND s.token = r.token AND s.owner = $1::uuid
	CROSS JOIN LATERAL (
		SELECT * FROM (
			SELECT *, waits IS NOT NULL AS held, row_number() OVER so_far AS n, min(coalesce(waits, '-infinity')) OVER so_far AS before,
				lead(seq) OVER so_far IS NULL AS last
			FROM (
				SELECT ` + columns + `, attempts, ` + waits + ` AS waits FROM @outbox_messages c
				WHERE c.shard = r.shard AND c.seq >= ` + begins + ` ORDER BY seq OFFSET 0
			) AS c WINDOW so_far AS (ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
			ORDER BY seq LIMIT r.look
		) AS c WHERE NOT held OR n = r.look OR n = 1 OR last LIMIT r.most + 1
	) AS m
	WINDOW turn AS (ORDER BY m.n, m.shard)
) AS y
WHERE held OR place <= $5::bigint AND (place = 1 OR bytes <= $6::bigint)
ORDER BY seq`),

		// Like LeaseFrom, but the first $6 rows of each shard, whether they wait or not. It sorts nothing and cuts
		// nothing, so it takes half as long where there is little to find. The payload is NULL from the row on where
		// the sizes of the shard's rows add up to more than $7: then, or if a shard has $6 rows, LeaseFrom must read
		// them.
		LeaseFew: q(`SELECT s.shard, s.token, m.n, m.held, m.seq, m.id, m.topic, m.key, CASE WHEN m.bytes <= $7::bigint THEN m.payload END, m.headers, m.enqueued_at, m.attempts, s.returned,
	` + skips + `, 0::bigint
FROM unnest($2::smallint[], $3::bigint[], $4::bigint[], $5::bigint[], $8::bigint[], $9::bigint[]) AS r(shard, token, low, returned, skip, until)
JOIN @txonce_shards s ON s.shard = r.shard AND s.token = r.token AND s.owner = $1::uuid
CROSS JOIN LATERAL (
	SELECT row_number() OVER (ORDER BY seq) AS n, ` + waits + ` IS NOT NULL AS held, seq, id, topic, key, payload, headers::text AS headers, enqueued_at, attempts,
		sum(octet_length(payload) + coalesce(octet_length(key), 0) + coalesce(pg_column_size(headers), 0)) OVER (ORDER BY seq) AS bytes
	FROM @outbox_messages c WHERE c.shard = s.shard AND c.seq >= ` + begins + `
	ORDER BY seq LIMIT $6::bigint
) AS m`),

		// If Last is read before Writers, then every message of a transaction that is not among Writers either has a
		// seq greater than Last or is committed. A transaction that has written keeps its lock on the table until it
		// ends.
		Last: q(`SELECT ` + lastSeq),

		// The sequence, the last number that it has assigned, and the largest one that is in use. The statement reads
		// the ends of indexes. It reads the sequence after its snapshot, so the sequence is never behind rows that the
		// snapshot has.
		Numbers: q(`SELECT '@outbox_seq'::regclass::text, CASE WHEN is_called THEN last_value ELSE last_value - 1 END, greatest(0,
	(SELECT max(seq) FROM @outbox_parked),
	(SELECT max(last) FROM @txonce_shards s, LATERAL (SELECT max(seq) AS last FROM @outbox_messages m WHERE m.shard = s.shard) AS of_shard))
FROM @outbox_seq`),
		Writers: q(`SELECT virtualtransaction FROM pg_locks WHERE locktype = 'relation' AND mode = 'RowExclusiveLock' AND pid IS DISTINCT FROM pg_backend_pid()
	AND relation = '@outbox_messages'::regclass AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`),

		// Checks the tokens on locked rows, so that a takeover waits. The following statements check the setting, so
		// all of them can be sent at once.
		Check: q(`WITH mine AS (
	SELECT s.shard FROM unnest($2::smallint[], $3::bigint[]) AS r(shard, token)
	JOIN @txonce_shards s ON s.shard = r.shard AND s.token = r.token AND s.owner = $1::uuid
	ORDER BY s.shard FOR SHARE OF s
)
SELECT coalesce(string_agg(shard::text, ','), ''), set_config('txonce.settling', CASE WHEN count(*) = cardinality($2::smallint[]) THEN 'on' ELSE 'off' END, true)
FROM mine`),

		Sent: q(`DELETE FROM @outbox_messages m USING unnest($1::smallint[], $2::bigint[], $3::text[]) AS r(shard, seq, id)
WHERE ` + at + ` AND ` + guarded),

		// Like Sent, but keeps a copy.
		Keep: q(`WITH gone AS (
	DELETE FROM @outbox_messages m USING unnest($1::smallint[], $2::bigint[], $3::text[]) AS r(shard, seq, id)
	WHERE ` + at + ` AND ` + guarded + ` RETURNING m.*
)
INSERT INTO @outbox_sent (seq, id, topic, key, payload, headers, enqueued_at)
SELECT seq, id, topic, key, payload, headers, enqueued_at FROM gone`),

		// Attempts are set, not incremented, because a Settle without an answer is repeated.
		Defer: q(`UPDATE @outbox_messages m SET attempts = r.attempts, error = r.error,
	retry_at = CASE WHEN m.key IS NULL THEN statement_timestamp() + r.delay * interval '1 second' END,
	failed_at = CASE WHEN m.key IS NULL THEN statement_timestamp() END
FROM unnest($1::smallint[], $2::bigint[], $3::text[], $4::integer[], $5::text[], $6::float8[]) AS r(shard, seq, id, attempts, error, delay)
WHERE ` + at + ` AND ` + guarded),

		HoldDeferred: q(`INSERT INTO @outbox_held AS h (shard, key, from_seq, until, set_at)
SELECT m.shard, m.key, min(m.seq), statement_timestamp() + max(r.delay) * interval '1 second', statement_timestamp()
FROM unnest($1::smallint[], $2::bigint[], $3::text[], $4::float8[]) AS r(shard, seq, id, delay)
JOIN @outbox_messages m ON ` + at + `
WHERE m.key IS NOT NULL AND ` + guarded + `
GROUP BY m.shard, m.key
ON CONFLICT (shard, key, endless) DO UPDATE SET
	from_seq = CASE WHEN h.until > statement_timestamp() AND (h.set_at > statement_timestamp()) IS NOT TRUE
		THEN least(h.from_seq, excluded.from_seq) ELSE excluded.from_seq END,
	until = CASE WHEN (h.set_at > statement_timestamp()) IS NOT TRUE AND h.from_seq <= excluded.from_seq
		THEN greatest(h.until, excluded.until) ELSE excluded.until END,
	set_at = excluded.set_at`),

		// Holds back the due messages of a topic among the first $6 rows of a shard, from "low" on: those with a key by
		// their key. It comes after HoldDeferred, and leaves alone what waits already.
		DeferTopic: q(`WITH due AS (
	SELECT m.shard, m.seq, m.key, r.error, r.delay
	FROM unnest($1::smallint[], $2::text[], $3::bigint[], $4::text[], $5::float8[]) AS r(shard, topic, low, error, delay)
	CROSS JOIN LATERAL (
		SELECT c.shard, c.seq, c.key FROM (
			SELECT shard, seq, topic, key, retry_at, failed_at FROM @outbox_messages WHERE shard = r.shard AND seq >= r.low ORDER BY seq LIMIT $6::bigint
		) AS c WHERE c.topic = r.topic AND ` + waits + ` IS NULL
	) AS m WHERE ` + guarded + `
), held AS (
	INSERT INTO @outbox_held AS h (shard, key, from_seq, until, set_at)
	SELECT shard, key, min(seq), statement_timestamp() + max(delay) * interval '1 second', statement_timestamp() FROM due WHERE key IS NOT NULL GROUP BY shard, key
	ON CONFLICT (shard, key, endless) DO UPDATE SET from_seq = excluded.from_seq, until = excluded.until, set_at = excluded.set_at
		WHERE h.until <= statement_timestamp() OR h.set_at > statement_timestamp()
)
UPDATE @outbox_messages m SET error = r.error, retry_at = statement_timestamp() + r.delay * interval '1 second', failed_at = statement_timestamp()
FROM due AS r WHERE r.key IS NULL AND m.shard = ANY (ARRAY[r.shard]) AND m.seq BETWEEN r.seq AND r.seq`),

		Park: q(`WITH gone AS (
	DELETE FROM @outbox_messages m
	USING unnest($1::smallint[], $2::bigint[], $3::text[], $4::integer[], $5::text[], $6::smallint[]) AS r(shard, seq, id, attempts, error, keep_order)
	WHERE ` + at + ` AND ` + guarded + `
	RETURNING m.*, r.attempts AS tried, r.error AS why, r.keep_order
)
INSERT INTO @outbox_parked (` + columns + `, attempts, error, keep_order)
SELECT ` + columns + `, tried, why, keep_order FROM gone`),

		// Holds back the parked message's key from the first message that must keep its order.
		HoldParked: q(`INSERT INTO @outbox_held AS h (shard, key, from_seq, until, park)
SELECT DISTINCT ON (p.shard, p.key) p.shard, p.key, p.seq, 'infinity'::timestamptz, p.keep_order = 1
FROM unnest($1::bigint[]) AS r(seq)
JOIN @outbox_parked p ON p.seq BETWEEN r.seq AND r.seq
WHERE p.key IS NOT NULL AND p.keep_order <> 2 AND ` + guarded + `
ORDER BY p.shard, p.key, p.seq
ON CONFLICT (shard, key, endless) DO UPDATE SET from_seq = excluded.from_seq, park = excluded.park
WHERE h.from_seq > excluded.from_seq`),

		// Shards with keys that are held back for a parked message.
		Behind: q(`SELECT r.shard FROM unnest($1::smallint[]) AS r(shard)
WHERE EXISTS (SELECT FROM @outbox_held h WHERE h.shard = r.shard AND h.until = 'infinity')`),

		// Messages behind a parked one move to outbox_parked, so that polls do not read them again and again.
		Follow: q(`WITH behind AS (
	SELECT m.shard, m.seq, h.from_seq, h.park
	FROM unnest($1::smallint[]) AS r(shard)
	CROSS JOIN LATERAL (SELECT shard, seq, key FROM @outbox_messages WHERE shard = r.shard ORDER BY seq LIMIT $2::bigint) AS m
	JOIN @outbox_held h ON h.shard = m.shard AND h.key = m.key AND h.from_seq <= m.seq AND h.until = 'infinity'
	WHERE ` + guarded + ` LIMIT $3::bigint
), gone AS (
	DELETE FROM @outbox_messages m USING behind WHERE m.shard = ANY (ARRAY[behind.shard]) AND m.seq BETWEEN behind.seq AND behind.seq
	RETURNING m.*, behind.from_seq, behind.park
)
INSERT INTO @outbox_parked (` + columns + `, attempts, error, behind, waiting, keep_order)
SELECT ` + columns + `, attempts, 'stands behind message ' || from_seq || ' of its key', from_seq, NOT park, park::integer FROM gone`),

		// The values of Last; whether delayed messages are due; whether DropHolds or DropDead would delete something;
		// those of the shards in $2 that are in Behind's answer; and the shards in $3 that have messages below the seq
		// where LeaseFrom begins ($4).
		Chores: q(`SELECT ` + lastSeq + `,
	EXISTS (SELECT FROM @outbox_delayed WHERE not_before <= statement_timestamp()),
	EXISTS (SELECT FROM @outbox_held WHERE ` + ended + `)
		OR EXISTS (SELECT FROM @txonce_relays WHERE until < clock_timestamp() - interval '1 minute'),
	array_to_string(ARRAY(SELECT r.shard FROM unnest($2::smallint[]) AS r(shard)
		WHERE EXISTS (SELECT FROM @outbox_held h WHERE h.shard = r.shard AND h.until = 'infinity')), ','),
	array_to_string(ARRAY(` + below + `), ',')`),

		DropHolds: q(`DELETE FROM @outbox_held WHERE ` + ended),
		DropDead:  q(`DELETE FROM @txonce_relays WHERE until < clock_timestamp() - interval '1 minute'`),
		Forget: q(`DELETE FROM @outbox_sent s USING (
	SELECT sent_at, seq FROM @outbox_sent WHERE sent_at < statement_timestamp() - $1::float8 * interval '1 second'
	ORDER BY sent_at, seq LIMIT $2::bigint FOR UPDATE SKIP LOCKED
) AS first WHERE s.sent_at = ANY (ARRAY[first.sent_at]) AND s.seq BETWEEN first.seq AND first.seq`),
	}
}
