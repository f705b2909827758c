package dialect

import "strings"

// PostgresOutbox holds the statements of the relay's side of the outbox, in the order of a session's life. Both
// adapters/pgxstore and adapters/sqlstore send them, each within a transaction of READ COMMITTED that begins with Settings.
type PostgresOutbox struct {
	// Holding shards.
	Settings, Begin, Renew, Relays, Shards  string
	LockShards, DropExpired, Take, GiveBack string
	End, GiveBackAll                        string
	// Leasing and settling.
	Due, Lease, Check, Sent, Keep, Settled string
	Defer, HoldDeferred, Park, HoldParked  string
}

// held says whether the message c waits: for its own next try, or behind another one of its key. The time is that of the
// statement: with a clock that goes on, a hold that ends meanwhile would let pass a message and not the one before it.
const held = `coalesce(c.retry_at > statement_timestamp(), false) OR c.key IS NOT NULL AND EXISTS (
		SELECT FROM @outbox_held h WHERE h.shard = c.shard AND h.key = c.key AND c.seq >= h.from_seq AND h.until > statement_timestamp())`

// columns of a message that travel with it from table to table.
const columns = `shard, seq, id, topic, key, payload, headers, enqueued_at`

// guarded is true while Check has found every shard of this transaction.
const guarded = `current_setting('txonce.settling', true) = 'on'`

// NewPostgresOutbox returns the statements for tables in schema; empty: those that search_path finds.
func NewPostgresOutbox(schema string) PostgresOutbox {
	prefix := ""
	if schema != "" {
		prefix = `"` + strings.ReplaceAll(schema, `"`, `""`) + `".`
	}
	q := func(sql string) string { return strings.ReplaceAll(sql, "@", prefix) }
	return PostgresOutbox{
		// Every statement finds its rows by short looks into an index. A session that first asks while the tables are small
		// would choose to read all of them, and keep that plan while they grow. What is forbidden but cannot be avoided
		// counts as very expensive, which must not set the JIT compiler going. A process that freezes in the middle of a
		// transaction must not keep its locks.
		Settings: `SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
	set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true), set_config('jit', 'off', true),
	set_config('lock_timeout', '5s', true), set_config('idle_in_transaction_session_timeout', '5s', true)`,

		// The hold begins. A second try, because the first had no answer, extends it.
		Begin: q(`INSERT INTO @txonce_relays AS r (owner, name, until)
VALUES ($1::uuid, $2::text, clock_timestamp() + $3::float8 * interval '1 second')
ON CONFLICT (owner) DO UPDATE SET until = excluded.until WHERE r.until > clock_timestamp()`),

		// A hold that ran out stays so, even if nobody has noticed.
		Renew: q(`UPDATE @txonce_relays SET until = clock_timestamp() + $2::float8 * interval '1 second'
WHERE owner = $1::uuid AND until > clock_timestamp()`),

		Relays: q(`SELECT count(*), count(*) FILTER (WHERE name = $2::text AND owner <> $1::uuid)
FROM @txonce_relays WHERE until > clock_timestamp()`),

		Shards: q(`SELECT s.shard, s.token, coalesce(s.owner = $1::uuid, false) AS mine,
	NOT EXISTS (SELECT FROM @txonce_relays r WHERE r.owner = s.owner AND r.until > clock_timestamp()) AS free
FROM @txonce_shards s ORDER BY s.shard`),

		// One at a time takes shards. What follows sees what the one before has taken, since each statement of READ COMMITTED
		// has a snapshot of its own; the condition of Take alone, checked again on a row that changed, would not look at
		// txonce_relays again.
		LockShards: q(`LOCK TABLE @txonce_shards IN SHARE UPDATE EXCLUSIVE MODE`),

		// Waits for a late Renew of that owner, and then leaves its row alone; a Renew that comes after this finds no row.
		DropExpired: q(`DELETE FROM @txonce_relays WHERE until <= clock_timestamp()`),

		// Free is a shard whose owner has no row: by the clock alone, its late Renew could come between. A shard that is being
		// settled is left for the next time.
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

		// What was to come later and is due joins the others with a new seq, in the order of its time.
		Due: q(`WITH due AS (
	DELETE FROM @outbox_delayed d USING (
		SELECT not_before, seq FROM @outbox_delayed WHERE not_before <= statement_timestamp()
		ORDER BY not_before, seq LIMIT $1::bigint FOR UPDATE SKIP LOCKED
	) AS first WHERE d.not_before = first.not_before AND d.seq = first.seq RETURNING d.*
)
INSERT INTO @outbox_messages (shard, id, topic, key, payload, headers, enqueued_at)
SELECT shard, id, topic, key, payload, headers, enqueued_at FROM due ORDER BY not_before, seq`),

		// Of each shard the first rows that do not wait: at most "most" among its first "look" rows. The row in place "look" is
		// returned even if it waits: it says that there may be more behind it. Rows are taken in turn from the shards, so that
		// a cut by number ($5) or bytes ($6) leaves each of them a beginning.
		Lease: q(`SELECT shard, token, n, held, seq, id, topic, key, payload, headers::text, enqueued_at, attempts
FROM (
	SELECT r.token, m.*, count(*) FILTER (WHERE NOT m.held) OVER turn AS place,
		sum(CASE WHEN m.held THEN 0 ELSE octet_length(m.payload) + coalesce(octet_length(m.key), 0) + coalesce(pg_column_size(m.headers), 0) END) OVER turn AS bytes
	FROM unnest($2::smallint[], $3::bigint[], $4::bigint[], $7::bigint[]) AS r(shard, token, look, most)
	JOIN @txonce_shards s ON s.shard = r.shard AND s.token = r.token AND s.owner = $1::uuid
	CROSS JOIN LATERAL (
		SELECT * FROM (
			SELECT ` + columns + `, attempts, row_number() OVER (ORDER BY seq) AS n, (` + held + `) AS held
			FROM @outbox_messages c WHERE c.shard = r.shard ORDER BY seq LIMIT r.look
		) AS c WHERE NOT held OR n = r.look LIMIT r.most
	) AS m
	WINDOW turn AS (ORDER BY m.n, m.shard)
) AS y
WHERE held OR place <= $5::bigint AND (place = 1 OR bytes <= $6::bigint)
ORDER BY seq`),

		// The tokens are checked on locked rows, which a takeover waits for. What follows in the transaction looks at the
		// setting, so that all of it may be sent at once.
		Check: q(`WITH mine AS (
	SELECT s.shard FROM unnest($2::smallint[], $3::bigint[]) AS r(shard, token)
	JOIN @txonce_shards s ON s.shard = r.shard AND s.token = r.token AND s.owner = $1::uuid
	ORDER BY s.shard FOR SHARE OF s
)
SELECT coalesce(array_agg(shard), '{}'), set_config('txonce.settling', CASE WHEN count(*) = cardinality($2::smallint[]) THEN 'on' ELSE 'off' END, true)
FROM mine`),

		Sent: q(`DELETE FROM @outbox_messages m USING unnest($1::smallint[], $2::bigint[]) AS r(shard, seq)
WHERE m.shard = r.shard AND m.seq = r.seq AND ` + guarded),

		// Sent, where sent messages are kept.
		Keep: q(`WITH gone AS (
	DELETE FROM @outbox_messages m USING unnest($1::smallint[], $2::bigint[]) AS r(shard, seq)
	WHERE m.shard = r.shard AND m.seq = r.seq AND ` + guarded + ` RETURNING m.*
)
INSERT INTO @outbox_sent (seq, id, topic, key, payload, headers, enqueued_at)
SELECT seq, id, topic, key, payload, headers, enqueued_at FROM gone`),

		// Attempts are set, not raised: a Settle without answer is sent again. A key that is held back for a person already
		// has no room for a second hold, so that a message of it that came in before is held by its row.
		Defer: q(`UPDATE @outbox_messages m SET attempts = r.attempts, cause = r.cause, retry_at = CASE
	WHEN m.key IS NULL OR EXISTS (SELECT FROM @outbox_held h WHERE h.shard = m.shard AND h.key = m.key AND h.until = 'infinity')
	THEN statement_timestamp() + r.delay * interval '1 second' END
FROM unnest($1::smallint[], $2::bigint[], $3::integer[], $4::text[], $5::float8[]) AS r(shard, seq, attempts, cause, delay)
WHERE m.shard = r.shard AND m.seq = r.seq AND ` + guarded),

		HoldDeferred: q(`INSERT INTO @outbox_held AS h (shard, key, from_seq, until)
SELECT m.shard, m.key, min(m.seq), statement_timestamp() + max(r.delay) * interval '1 second'
FROM unnest($1::smallint[], $2::bigint[], $3::float8[]) AS r(shard, seq, delay)
JOIN @outbox_messages m ON m.shard = r.shard AND m.seq = r.seq
WHERE m.key IS NOT NULL AND ` + guarded + `
GROUP BY m.shard, m.key
ON CONFLICT (shard, key) DO UPDATE SET
	from_seq = CASE WHEN h.until > statement_timestamp() THEN least(h.from_seq, excluded.from_seq) ELSE excluded.from_seq END,
	until = greatest(h.until, excluded.until)
WHERE h.until < 'infinity'`),

		Park: q(`WITH gone AS (
	DELETE FROM @outbox_messages m
	USING unnest($1::smallint[], $2::bigint[], $3::integer[], $4::text[], $5::smallint[]) AS r(shard, seq, attempts, cause, keep_order)
	WHERE m.shard = r.shard AND m.seq = r.seq AND ` + guarded + `
	RETURNING m.*, r.attempts AS tried, r.cause AS why, r.keep_order
)
INSERT INTO @outbox_parked (` + columns + `, attempts, cause, keep_order)
SELECT ` + columns + `, tried, why, keep_order FROM gone`),

		// The key of what was parked is held back from the first message on that has a say in it.
		HoldParked: q(`INSERT INTO @outbox_held AS h (shard, key, from_seq, until, park)
SELECT DISTINCT ON (p.shard, p.key) p.shard, p.key, p.seq, 'infinity'::timestamptz, p.keep_order = 1
FROM unnest($1::bigint[]) AS r(seq)
JOIN @outbox_parked p ON p.seq = r.seq
WHERE p.key IS NOT NULL AND p.keep_order <> 2 AND ` + guarded + `
ORDER BY p.shard, p.key, p.seq
ON CONFLICT (shard, key) DO UPDATE SET from_seq = excluded.from_seq, until = excluded.until, park = excluded.park
WHERE h.until < 'infinity' OR h.from_seq > excluded.from_seq`),
	}
}
