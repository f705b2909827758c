package dialect

import "strings"

// PostgresWAL holds the statements of an outbox whose messages travel in the write-ahead log, from the slot's creation to
// its end. The first four stand in for those of the same name of the table, and take the same parameters.
type PostgresWAL struct {
	EnqueueOne, Enqueue, EnqueueNotBefore, Due string

	// The slot.
	Level, Names, Taken, Create, Record, Replace, Drop, State, Started string
	// Where a new one begins.
	Passing, EndPassing, Skip, Begins string
	// A relay's hold on it.
	Lock, Elect, Leave, Others, Flushed, Terminate, Settled, Busy string
	// Settling.
	Check, Confirm, Advance, Spill, Keep, Note, Touch, Forget, Look string
	Lag                                                             string
}

// walPrefix raises an error unless what is emitted now will be decoded by the slot that txonce_slots describes. SQL has no
// other way to raise one in the middle of a statement than a cast that fails; its text is for pgxstore, which makes
// a readable error of it.
//
// txonce_slot_confirmed is read after the slot, since it is written before the slot is told.
const walPrefix = `prefix AS MATERIALIZED (
	SELECT CASE WHEN problem IS NULL THEN 'txonce:' || slot
		ELSE ('txonce slot ' || problem || ': ' || coalesce(slot, ''))::integer::text END AS prefix
	FROM (SELECT s.slot, ` + walProblem + ` AS problem FROM ` + walSlot + `) AS checked
)`

// walSlot is one row: what was recorded, and the slot itself. The function is what the view pg_replication_slots reads;
// the view's join would cost as much as all the rest, and LIMIT keeps the planner from a hash join of one row.
const walSlot = `(VALUES (true)) AS always (one)
	LEFT JOIN @txonce_slots s USING (one)
	LEFT JOIN LATERAL (SELECT * FROM pg_get_replication_slots() AS l WHERE l.slot_name = s.slot LIMIT 1) AS r ON true`

// walProblem says in one word why a slot cannot be used; NULL: it can. The system's number is in a file that every call
// of the function reads: once it has been compared, the start of this server stands for it.
const walProblem = `CASE
	WHEN s.slot IS NULL THEN 'none'
	WHEN s.home <> s.tableoid THEN 'copied'
	WHEN CASE WHEN s.started = pg_postmaster_start_time() THEN false ELSE s.system <> (SELECT system_identifier FROM pg_control_system()) END THEN 'copied'
	WHEN s.timeline <> left(pg_walfile_name(pg_current_wal_lsn()), 8) THEN 'promoted'
	WHEN r.slot_name IS NULL OR r.plugin <> 'pgoutput' OR r.datoid <> (SELECT oid FROM pg_database WHERE datname = current_database()) THEN 'missing'
	WHEN r.wal_status = 'lost' THEN 'lost'
	WHEN r.wal_status = 'unreserved' THEN 'unreserved'
	WHEN r.confirmed_flush_lsn IS NULL THEN 'unfinished'
	WHEN r.confirmed_flush_lsn - '0/0'::pg_lsn > (SELECT last_value FROM @txonce_slot_confirmed) THEN 'foreign'
END`

// walEmit writes the message m with prefix p, as pgxstore's walContent reads it. %s is when it was enqueued. The payload comes
// last, so that it is copied once.
const walEmit = `pg_logical_emit_message(true, p.prefix, '\x01'::bytea || int8send(nextval('@outbox_seq')) || timestamptz_send(%s)
	|| int2send(m.shard) || int4send(octet_length(convert_to(m.id, 'UTF8'))) || convert_to(m.id, 'UTF8')
	|| int4send(octet_length(convert_to(m.topic, 'UTF8'))) || convert_to(m.topic, 'UTF8')
	|| int4send(coalesce(octet_length(m.key), 0)) || coalesce(m.key, '')
	|| int4send(coalesce(octet_length(m.headers), 0)) || coalesce(convert_to(m.headers, 'UTF8'), '') || m.payload)`

// NewPostgresWAL returns the statements for tables in schema; empty: those that search_path finds.
func NewPostgresWAL(schema string) PostgresWAL {
	prefix := ""
	if schema != "" {
		prefix = `"` + strings.ReplaceAll(schema, `"`, `""`) + `".`
	}
	q := func(sql string) string { return strings.ReplaceAll(sql, "@", prefix) }
	now := strings.Replace(walEmit, "%s", "clock_timestamp()", 1)
	then := strings.Replace(walEmit, "%s", "m.enqueued_at", 1)
	return PostgresWAL{
		EnqueueOne: q(`WITH ` + walPrefix + `
SELECT ` + now + `
FROM prefix p, (VALUES ($1::smallint, $2::text, $3::text, $4::bytea, $5::bytea, $6::text)) AS m (shard, id, topic, key, payload, headers)`),

		// There is one prefix, so that the messages are emitted, and numbered, in the order in which they stand.
		Enqueue: q(`WITH ` + walPrefix + `
SELECT count(` + now + `)
FROM prefix p, unnest($1::smallint[], $2::text[], $3::text[], $4::bytea[], $5::bytea[], $6::text[]) AS m (shard, id, topic, key, payload, headers)`),

		EnqueueNotBefore: q(`WITH ` + walPrefix + `, m AS MATERIALIZED (
	SELECT m.*, coalesce(m.not_before > clock.now, false) AS waits
	FROM (SELECT clock_timestamp() AS now) AS clock,
		unnest($1::smallint[], $2::text[], $3::text[], $4::bytea[], $5::bytea[], $6::text[], $7::timestamptz[])
			WITH ORDINALITY AS m (shard, id, topic, key, payload, headers, not_before, n)
), waiting AS (
	INSERT INTO @outbox_delayed (not_before, shard, id, topic, key, payload, headers)
	SELECT m.not_before, m.shard, m.id, m.topic, nullif(m.key, ''), m.payload, nullif(m.headers, '')::json
	FROM m WHERE m.waits ORDER BY m.n
)
SELECT count(` + now + `) FROM prefix p, m WHERE NOT m.waits`),

		// What is due is emitted, so that it comes behind whatever of its key was committed before.
		Due: q(`WITH ` + walPrefix + `, due AS (
	DELETE FROM @outbox_delayed d USING (
		SELECT not_before, seq FROM @outbox_delayed WHERE not_before <= statement_timestamp()
		ORDER BY not_before, seq LIMIT $1::bigint FOR UPDATE SKIP LOCKED
	) AS first WHERE d.not_before = first.not_before AND d.seq = first.seq RETURNING d.*
)
SELECT ` + then + `
FROM (SELECT shard, id, topic, key, payload, headers::text AS headers, enqueued_at FROM due ORDER BY not_before, seq) AS m, prefix p`),

		Level: `SELECT current_setting('wal_level'), pg_is_in_recovery()`,

		// The default name cannot be that of another outbox of the cluster: the number of this database and that of this table.
		Names: q(`SELECT format('txonce_%s_%s', d.oid, '@txonce_slots'::regclass::oid), (SELECT slot FROM @txonce_slots)
FROM pg_database d WHERE d.datname = current_database()`),

		Taken: `SELECT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = $1)`,

		Create: `SELECT lsn FROM pg_create_logical_replication_slot($1, 'pgoutput')`,

		Drop: `SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = $1 AND database = current_database()`,

		// A temporary slot ends with its session, or with an error in it.
		Passing:    `SELECT lsn FROM pg_create_logical_replication_slot(format('txonce_passing_%s', pg_backend_pid()), 'pgoutput', true)`,
		EndPassing: `SELECT pg_drop_replication_slot(format('txonce_passing_%s', pg_backend_pid()))`,
		Skip:       `SELECT end_lsn FROM pg_replication_slot_advance($1, $2::pg_lsn)`,
		Begins:     `SELECT restart_lsn FROM pg_replication_slots WHERE slot_name = $1`,

		Record: q(`INSERT INTO @txonce_slots (slot, system, started, timeline, home, created)
SELECT $1, system_identifier, pg_postmaster_start_time(), left(pg_walfile_name(pg_current_wal_lsn()), 8), '@txonce_slots'::regclass, $2::pg_lsn
FROM pg_control_system()`),

		// Takes the hold from whoever has it: what it still does ends with ErrLeaseLost.
		Replace: q(`UPDATE @txonce_slots SET slot = $1, system = c.system_identifier, started = pg_postmaster_start_time(), timeline = left(pg_walfile_name(pg_current_wal_lsn()), 8),
	home = '@txonce_slots'::regclass, created = $2::pg_lsn, owner = NULL, token = token + 1
FROM pg_control_system() c`),

		// For relays, and for errors.
		State: q(`SELECT coalesce(s.slot, ''), coalesce(` + walProblem + `, ''), coalesce(s.owner = $1::uuid, false), coalesce(s.token, 0),
	coalesce(r.active_pid, 0), coalesce(r.confirmed_flush_lsn, '0/0')::text,
	('0/0'::pg_lsn + (SELECT last_value FROM @txonce_slot_confirmed))::text,
	pg_current_wal_lsn()::text, (SELECT last_value FROM @outbox_seq)
FROM ` + walSlot),

		// For the next start of the server, once the slot was found to be in order.
		Started: q(`UPDATE @txonce_slots SET started = pg_postmaster_start_time() WHERE owner = $1::uuid AND started <> pg_postmaster_start_time()`),

		// Elections follow each other and the takeovers of shards.
		Lock: q(`LOCK TABLE @txonce_shards IN SHARE UPDATE EXCLUSIVE MODE`),

		// Whoever has no row in txonce_relays is dead. The one who is elected gets its row here, as by Begin of PostgresOutbox, so
		// that at no time the slot seems to be free.
		Elect: q(`WITH elected AS (
	UPDATE @txonce_slots s SET owner = $1::uuid, token = s.token + 1
	WHERE s.owner IS NULL OR s.owner = $1::uuid OR NOT EXISTS (SELECT FROM @txonce_relays r WHERE r.owner = s.owner)
	RETURNING s.token
), begun AS (
	INSERT INTO @txonce_relays (owner, name, until)
	SELECT $1::uuid, $2::text, clock_timestamp() + $3::float8 * interval '1 second' FROM elected
	ON CONFLICT (owner) DO UPDATE SET until = excluded.until
)
SELECT token FROM elected`),

		Leave: q(`UPDATE @txonce_slots SET owner = NULL WHERE owner = $1::uuid`),

		// The relay that holds the slot, for those that do not.
		Others: q(`SELECT count(*), count(*) FILTER (WHERE name = $1::text) FROM @txonce_relays WHERE until > clock_timestamp()`),

		Flushed: `SELECT pg_current_wal_flush_lsn()::text`,

		Terminate: `SELECT pg_terminate_backend($1::integer)`,

		Settled: q(`SELECT seq, also FROM @txonce_slot_settled WHERE lsn >= $1::pg_lsn`),

		// Keys of which something is in the tables, so that what the stream brings must not pass it.
		Busy: q(`SELECT shard, key, sum(n)::bigint FROM (
	SELECT shard, key, count(*) AS n FROM @outbox_messages WHERE key IS NOT NULL GROUP BY shard, key
	UNION ALL SELECT shard, key, 0 FROM @outbox_held WHERE until > statement_timestamp()
) AS k GROUP BY shard, key`),

		// Locks the row that an election changes, after Check of PostgresOutbox, where that was sent.
		Check: q(`WITH mine AS (
	SELECT one FROM @txonce_slots WHERE owner = $1::uuid AND token = $2::bigint FOR SHARE
)
SELECT count(*) = 1, set_config('txonce.settling',
	CASE WHEN count(*) = 1 AND coalesce(current_setting('txonce.settling', true), '') <> 'off' THEN 'on' ELSE 'off' END, true)
FROM mine`),

		// What was settled, and how far the slot may be told; both only for the owner.
		Confirm: q(`WITH mine AS (
	SELECT one FROM @txonce_slots WHERE owner = $1::uuid AND token = $2::bigint FOR SHARE
), kept AS (
	INSERT INTO @txonce_slot_settled AS s (seq, also, lsn) SELECT $4::bigint, $5::bigint[], $6::pg_lsn FROM mine WHERE $4::bigint > 0
	ON CONFLICT (seq) DO UPDATE SET also = excluded.also, lsn = greatest(s.lsn, excluded.lsn)
)
SELECT CASE WHEN $3::text = '' THEN 0 ELSE setval('@txonce_slot_confirmed', ($3::text::pg_lsn - '0/0'::pg_lsn)::bigint) END FROM mine`),

		// Where there is no owner yet.
		Advance: q(`SELECT setval('@txonce_slot_confirmed', ($1::pg_lsn - '0/0'::pg_lsn)::bigint)`),

		// A message that is spilled already may have been published, parked or discarded since, and is not written again.
		Spill: q(`WITH new AS (
	INSERT INTO @txonce_slot_settled (seq, lsn) SELECT r.seq, r.lsn FROM unnest($2::bigint[], $9::pg_lsn[]) AS r (seq, lsn)
	WHERE ` + guarded + `
	ON CONFLICT (seq) DO NOTHING RETURNING seq
)
INSERT INTO @outbox_messages (shard, seq, id, topic, key, payload, headers, enqueued_at)
SELECT r.shard, r.seq, r.id, r.topic, nullif(r.key, ''), r.payload, nullif(r.headers, '')::json, r.enqueued_at
FROM unnest($1::smallint[], $2::bigint[], $3::text[], $4::text[], $5::bytea[], $6::bytea[], $7::text[], $8::timestamptz[])
	AS r (shard, seq, id, topic, key, payload, headers, enqueued_at)
JOIN new USING (seq)`),

		Keep: q(`INSERT INTO @outbox_sent (seq, id, topic, key, payload, headers, enqueued_at)
SELECT r.seq, r.id, r.topic, nullif(r.key, ''), r.payload, nullif(r.headers, '')::json, r.enqueued_at
FROM unnest($1::bigint[], $2::text[], $3::text[], $4::bytea[], $5::bytea[], $6::text[], $7::timestamptz[])
	AS r (seq, id, topic, key, payload, headers, enqueued_at)
WHERE ` + guarded),

		Note: q(`INSERT INTO @txonce_slot_settled AS s (seq, also, lsn) SELECT $1::bigint, $2::bigint[], $3::pg_lsn WHERE ` + guarded + `
ON CONFLICT (seq) DO UPDATE SET also = excluded.also, lsn = greatest(s.lsn, excluded.lsn)`),

		Forget: q(`DELETE FROM @txonce_slot_settled WHERE lsn < $1::pg_lsn`),

		// Says in the stream that something of these keys is in the tables now: what is emitted after that must not pass it.
		Touch: q(`SELECT pg_logical_emit_message(true, 'txonce:' || s.slot, '\x6b'::bytea || int2send($1::smallint) || k.key)
FROM @txonce_slots s, unnest($2::bytea[]) AS k (key)`),

		// Whether a key is still in the tables.
		Look: q(`SELECT r.key, (SELECT count(*) FROM @outbox_messages m WHERE m.shard = r.shard AND m.key = r.key),
	EXISTS (SELECT FROM @outbox_held h WHERE h.shard = r.shard AND h.key = r.key AND h.until > statement_timestamp())
FROM unnest($1::smallint[], $2::bytea[]) AS r (shard, key)`),

		Lag: q(`SELECT coalesce(max(pg_current_wal_lsn() - r.confirmed_flush_lsn), 0)::bigint
FROM @txonce_slots s JOIN pg_replication_slots r ON r.slot_name = s.slot`),
	}
}
