package dialect

import "strings"

// Postgres holds the statements for PostgreSQL, in the order of a message's life. adapters/pgxstore and
// adapters/sqlstore both use them. Parameters have casts, so a driver may send them as text.
type Postgres struct {
	// Claiming.
	Insert, InsertOne, InsertOneShort, InsertNew    string
	Claim, ClaimOne                                 string
	AfterClaim, Sweep, Forgotten, Windows, Existing string
	ExistingOne, State, Open, Forget                string
	SaveResult, Lookup, Newer                       string
	SaveClaimed, FlushDuplicate, Verify, Sync       string
	Temporary, SessionBegan                         string
	Lock, ShortWait, FormerWait, HeldKeys, Held     string
	Holder                                          string
	// Windows and checks.
	LockSources, Sources, AddSource                  string
	UseWindow, SchemaVersion, SchemaTables, Settings string
	Schema                                           string
	// Dead letters. DeadLetters is completed by Operator.Choose; its last parameter is a limit.
	Park, TakeDeadLetter, DeadLetters, DropSettled string
	// Sweeping.
	SweepSettings, SweepClock, SweepLease, SweepDelete, SweepDone string
	SweepExpired, SweepArchived                                   string
}

// boundedWait limits how long a statement waits for a transaction that holds a key. It is the statement's row source,
// so it runs before the first row is inserted. AfterClaim restores the setting; it ends with the transaction anyway.
const boundedWait = `(SELECT ` + shortWait + `$9::text, true)` + idleLimit + `) AS settings`

// shortWait sets lock_timeout for the transaction, and keeps the former value for formerWait. The new value and ",
// true)" follow it.
const (
	shortWait  = `set_config('txonce.lock_timeout', current_setting('lock_timeout'), true), set_config('lock_timeout', `
	formerWait = `set_config('lock_timeout', current_setting('txonce.lock_timeout'), true)`
)

// idleLimit makes the server end a transaction that is idle for too long. Otherwise a frozen process would keep its
// claims forever. A limit that the session already has is kept.
const idleLimit = `
WHERE CASE current_setting('idle_in_transaction_session_timeout')
	WHEN '0' THEN set_config('idle_in_transaction_session_timeout', coalesce($8::text, '0'), true) IS NOT NULL ELSE true END`

// session is the part of a session's state that must not change: whether commits are durable, the user, and which
// tables unqualified names in handlers' statements mean: search_path, and temporary tables, which hide others. It
// begins with PostgresHistory, synchronous_commit and the schema of temporary tables (0: the session has never had one),
// each followed by a space. To count tables costs too much for each claim.
const (
	session      = sessionBegin + `pg_my_temp_schema()::text` + sessionEnd
	unnoted      = `current_setting('synchronous_commit') || ' ' || pg_my_temp_schema()::text` + sessionEnd
	sessionBegin = PostgresHistory + ` || ' ' || current_setting('synchronous_commit') || ' ' || `
	sessionEnd   = ` || ' ' || current_user || ' ' || current_setting('search_path')`
)

// found is the schema where search_path finds txonce_schema. It depends on p, so that it is evaluated where it stands.
const found = `(SELECT n.nspname::text FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
	WHERE c.oid = to_regclass('txonce_schema' || left(p.was, 0)))`

// temporary is the number of the session's temporary tables, views and functions, and a hash of the names of the tables
// and views. pg_depend has a row for each object in a schema, and an index by schema; 2615 is the OID of pg_namespace,
// 1259 that of pg_class.
const temporary = `CASE WHEN pg_my_temp_schema() = 0 THEN '0' ELSE (SELECT count(*) || coalesce('-' || md5(string_agg(c.relname, ' ' ORDER BY c.relname)), '') ` +
	inTemporarySchema + `) END`

const inTemporarySchema = `FROM pg_catalog.pg_depend LEFT JOIN pg_catalog.pg_class c ON classid = 1259 AND c.oid = objid WHERE refclassid = 2615 AND refobjid = pg_my_temp_schema()`

// standbys tells whether COMMIT waits for synchronous standbys.
const standbys = `current_setting('synchronous_standby_names') <> ''`

// The claim. ON CONFLICT DO NOTHING waits for a transaction that holds the key, and for a duplicate it writes nothing,
// neither WAL nor a transaction id. Keys are sorted, so two batches cannot deadlock.
const (
	insert = `INSERT INTO @processed_messages (key, fingerprint, consumer, tenant, id, expires_at)
SELECT r.key, nullif(r.fingerprint, 0), nullif(r.consumer, ''), nullif(r.tenant, ''), nullif(r.id, ''), greatest(clock_timestamp(), r.time) + r.seconds * interval '1 second'
FROM unnest($1::uuid[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::timestamptz[], $7::float8[])
	AS r(key, fingerprint, consumer, tenant, id, time, seconds)`
	insertAlike = `INSERT INTO @processed_messages (key, fingerprint, consumer, tenant, id, expires_at)
SELECT r.key, nullif(r.fingerprint, 0), $5::text, nullif(r.tenant, ''), r.id, greatest(clock_timestamp(), r.time) + $6::float8 * interval '1 second'
FROM unnest($1::uuid[], $2::bigint[], $3::timestamptz[], $4::text[], $7::text[]) AS r(key, fingerprint, time, id, tenant)`
	insertOne = `INSERT INTO @processed_messages (key, fingerprint, consumer, tenant, id, expires_at)
SELECT $1::uuid, $2::bigint, $3::text, $4::text, $5::text, greatest(clock_timestamp(), $6::timestamptz) + $7::float8 * interval '1 second'`
	unlessKnown = `
ON CONFLICT (key) DO NOTHING
RETURNING key, clock_timestamp()`
	claimed = `, pg_current_xact_id()::text, ` + standbys + `, ` + session
)

// postgresNames returns a function that puts the schema before every table name in a statement. Statements mark table
// names with a leading @. An empty schema means the tables that search_path finds.
func postgresNames(schema string) func(sql string) string {
	prefix := ""
	if schema != "" {
		prefix = `"` + strings.ReplaceAll(schema, `"`, `""`) + `".`
	}
	return func(sql string) string { return strings.ReplaceAll(sql, "@", prefix) }
}

// NewPostgres returns the statements for tables in schema. Empty means those that search_path finds.
func NewPostgres(schema string) Postgres {
	q := postgresNames(schema)
	return Postgres{
		// pgxstore limits the wait itself, and asks for the transaction's id. Insert is for rows with the same consumer
		// and window. It lists the new keys only if some keys are not new, which keeps a batch's answer short.
		Insert: q(`WITH new AS (` + insertAlike + `, (SELECT true` + idleLimit + `) AS settings
ON CONFLICT (key) DO NOTHING RETURNING key)
SELECT count(*), CASE WHEN count(*) < $9::bigint THEN array_agg(key) END, clock_timestamp(),
	coalesce(pg_current_xact_id_if_assigned()::text, ''), ` + standbys + `, ` + session + ` FROM new`),
		InsertOne: q(insertOne + idleLimit + unlessKnown + claimed),

		// InsertOneShort waits for $9 at most. If it inserts a row, it restores the former lock_timeout. Otherwise the
		// transaction must end, or FormerWait must follow.
		InsertOneShort: q(insertOne + ` FROM ` + boundedWait + unlessKnown + claimed + `, ` + formerWait),

		// InsertNew is sent together with COMMIT. It waits for $9 at most, and fails where the answer would not be
		// First: by a unique violation if the key has a row, and by a division by zero if no row was inserted (a
		// trigger may prevent that), if COMMIT waits for standbys, if the session's state is not $10, or if the clock
		// is more than $12 seconds away from $11.
		InsertNew: q(`WITH new AS (` + insertOne + ` FROM ` + boundedWait + `
RETURNING ` + formerWait + ` AS former, ` + standbys + ` OR ` + session + ` <> $10::text
	OR abs(extract(epoch FROM clock_timestamp() - $11::timestamptz)) > $12::float8 AS other)
SELECT 1 / count(*) FILTER (WHERE NOT other), max(former) FROM new`),

		// For sqlstore the server limits the wait, and AfterClaim follows.
		Claim:    q(insert + `, ` + boundedWait + unlessKnown),
		ClaimOne: q(insertOne + ` FROM ` + boundedWait + unlessKnown),
		AfterClaim: q(`SELECT ` + formerWait + `,
	coalesce(pg_current_xact_id_if_assigned()::text, ''), current_setting('transaction_isolation'), ` + standbys + `, ` + PostgresHistory + `, ` + postgresSettings + `, forgotten_until FROM @txonce_sweep`),

		// The horizon is read by a separate statement after the claim. Read within the claim's statement, it would be
		// as old as that statement's snapshot, and the claim may have waited for a sweep since. Above READ COMMITTED
		// every statement has the transaction's snapshot, so Forgotten is sent on another connection.
		Sweep:     q(`SELECT current_setting('transaction_isolation'), forgotten_until FROM @txonce_sweep`),
		Forgotten: q(`SELECT forgotten_until FROM @txonce_sweep`),

		// Windows may be read later still, because they only change in ways that move the horizon closer.
		Windows: q(`SELECT window_seconds, first_run, used_until FROM @txonce_windows WHERE consumer = $1::text`),

		// One index lookup per key. With key = ANY($1), a session that first runs this on a small table would plan a
		// scan of the whole table and keep that plan while the table grows: 33 ms instead of 1.5 ms at 100,000 rows.
		Existing: q(`SELECT p.key, p.fingerprint, p.expires_at, p.result, p.consumer, p.tenant, p.id
FROM unnest($1::uuid[]) AS r(key), LATERAL (SELECT * FROM @processed_messages WHERE key = r.key LIMIT 1) AS p
WHERE current_setting('transaction_read_only') = 'off'`),

		// Nothing is found where a claim must fail: a standby, and a former primary that was made read-only, may lack
		// what the primary has.
		ExistingOne: q(`SELECT key, fingerprint, expires_at, result, consumer, tenant, id, ` + standbys + `, ` + session + `
FROM @processed_messages WHERE key = $1::uuid AND current_setting('transaction_read_only') = 'off'`),

		// Before Existing, where no claim of the transaction has told it. A server that accepts no writes is not noted,
		// because no answer comes from it.
		State: `SELECT ` + standbys + `, CASE current_setting('transaction_read_only') WHEN 'off' THEN ` + session + ` ELSE ' ' || ` + unnoted + ` END`,

		// For a transaction that begins after its claim has found that all keys have rows.
		Open: `SELECT ` + standbys + `, ` + session + strings.Replace(idleLimit, "$8", "$1", 1),

		Forget: q(`WITH gone AS (DELETE FROM @processed_messages p USING unnest($1::uuid[]) AS r(key) WHERE p.key = r.key RETURNING 1)
SELECT count(*) FROM gone` + marked),

		// It locks the row in any case, and reads the latest version of it.
		Newer: q(`INSERT INTO @entity_versions AS v (object, version, changed_at) VALUES ($1::text, $2::bigint, clock_timestamp())
ON CONFLICT (object) DO UPDATE SET version = excluded.version, changed_at = excluded.changed_at WHERE v.version < excluded.version`),

		SaveResult: q(`UPDATE @processed_messages SET result = $2::bytea WHERE key = $1::uuid`),

		// As SaveResult, but fails by a division by zero if the key is not claimed, so that a COMMIT in the same round
		// trip is skipped.
		SaveClaimed: q(`WITH saved AS (UPDATE @processed_messages SET result = $2::bytea WHERE key = $1::uuid RETURNING 1)
SELECT 1 / count(*) FROM saved`),

		Lookup: q(`SELECT key, fingerprint, expires_at, result, consumer, tenant, id
FROM @processed_messages WHERE key = $1::uuid`),

		// A duplicate writes nothing, so its COMMIT does not wait for a synchronous standby, although the commit of the
		// first copy may not have reached one. This writes a WAL record, which makes COMMIT wait.
		FlushDuplicate: `SELECT pg_logical_emit_message(true, 'txonce', '')`,

		// Returns the transaction's id, and the schema of the session's temporary tables: 0 if it has never had one.
		Verify: `SELECT coalesce(pg_current_xact_id_if_assigned()::text, ''), pg_my_temp_schema()::text`,

		// Returns the number of the session's temporary tables, and a hash of their names.
		Temporary: `SELECT ` + temporary,

		// Makes this transaction's COMMIT as durable as commits were when Register ran.
		Sync: `SELECT set_config('synchronous_commit', $1::text, true)`,

		// Within a transaction: the state that the session began with (without temporary tables), the temporary tables
		// that it has now, and the server's process. The settings of the role, of the database and of the connection's
		// parameters stay; what was set since is undone, and is there again after ROLLBACK TO. pg_settings does not
		// show the role, and takes longer.
		SessionBegan: `SAVEPOINT txonce_session; RESET SESSION AUTHORIZATION; RESET ROLE; RESET search_path; RESET synchronous_commit;
SELECT ` + sessionBegin + `'0'` + sessionEnd + `, ` + temporary + `, pg_backend_pid();
ROLLBACK TO SAVEPOINT txonce_session; RELEASE SAVEPOINT txonce_session`,

		// The limit applies to this lock only: a select list is evaluated from left to right, and the setting ends with
		// the transaction.
		Lock: `SELECT ` + shortWait + `$2::text, true),
	pg_advisory_xact_lock($1::bigint), ` + formerWait,

		// The row with an empty source is locked first, so that processes that start together compare their sources one
		// after another.
		LockSources: q(`INSERT INTO @txonce_sources AS s (consumer, source) VALUES ($1::text, '')
ON CONFLICT (consumer, source) DO UPDATE SET source = s.source`),
		Sources:   q(`SELECT source FROM @txonce_sources WHERE consumer = $1::text AND source <> '' ORDER BY first_run, source`),
		AddSource: q(`INSERT INTO @txonce_sources (consumer, source) VALUES ($1::text, $2::text)`),
		// For a claim that should wait for less time than the session's lock_timeout. FormerWait follows it.
		ShortWait:  `SELECT ` + shortWait + `$1::text, true)`,
		FormerWait: `SELECT ` + formerWait,
		HeldKeys:   q(heldKeys),
		Held:       `SELECT current_setting('txonce.held')`,

		// The transaction that a session waits for. Other users' sessions show no state and no client.
		Holder: `SELECT pid::bigint, coalesce(xact_start, clock_timestamp()), clock_timestamp(), coalesce(state, ''),
	trim(coalesce(host(client_addr), '') || ' ' || coalesce(application_name, ''))
FROM pg_catalog.pg_stat_activity WHERE pid = ANY(pg_blocking_pids($1::bigint::integer)) ORDER BY xact_start LIMIT 1`,

		UseWindow: q(`INSERT INTO @txonce_windows AS w (consumer, window_seconds, first_run, used_until)
VALUES ($1::text, $2::bigint, clock_timestamp(), clock_timestamp() + $3::float8 * interval '1 second')
ON CONFLICT (consumer, window_seconds) DO UPDATE SET used_until = greatest(w.used_until, excluded.used_until), first_run = least(w.first_run, excluded.first_run)
RETURNING used_until`),

		// The schema where search_path finds the tables, and the schema where a new session would find them: somebody
		// may have changed the search_path of this one. Empty: nowhere. It need not be the first schema in search_path.
		// Then both values of search_path. A select list is evaluated from left to right; in a transaction of the
		// caller, search_path has its value again at the end.
		Schema: `SELECT coalesce(` + found + `, ''), set_config('search_path', p.reset, true), coalesce(` + found + `, ''), set_config('search_path', p.was, true), p.was, p.reset
FROM (SELECT current_setting('search_path') AS was, reset_val AS reset FROM pg_catalog.pg_settings WHERE name = 'search_path' OFFSET 0) AS p`,

		SchemaVersion: q(`SELECT coalesce(max(version), 0), coalesce(max(works_with), 0) FROM @txonce_schema`),
		SchemaTables:  q(`SELECT count(*) FROM @processed_messages, @txonce_windows, @txonce_sources, @txonce_sweep, @dead_letters, @entity_versions, @source_positions WHERE 1 = 0`),

		Settings: `SELECT current_setting('synchronous_commit'), current_setting('fsync'), pg_is_in_recovery(),
	current_setting('default_transaction_read_only'), current_setting('synchronous_standby_names'), current_setting('server_encoding')`,

		// Of two payloads, one may be shortened: the longer one stays.
		Park: q(`INSERT INTO @dead_letters AS d (id, key, consumer, tenant, message_id, fingerprint, window_seconds, message_time,
	cause, error, topic, ordering_key, position, payload, headers, attempts)
VALUES ($1::uuid, $2::uuid, $3::text, $4::text, $5::text, $6::bigint, $7::bigint, $8::timestamptz,
	$9::text, $10::text, $11::text, $12::bytea, $13::text, $14::bytea, $15::json, $16::integer)
ON CONFLICT (id) DO UPDATE SET times = d.times + 1, last_parked = clock_timestamp(), cause = excluded.cause,
	error = excluded.error, attempts = excluded.attempts, position = excluded.position, headers = excluded.headers,
	message_time = excluded.message_time, window_seconds = excluded.window_seconds, fingerprint = excluded.fingerprint,
	payload = CASE WHEN length(excluded.payload) > length(d.payload) THEN excluded.payload ELSE d.payload END`),

		TakeDeadLetter: q(`DELETE FROM @dead_letters WHERE id = $1::uuid AND cause = $2::text`),

		// The letters are chosen before they are joined, because the planner does not stop a sort below a join early.
		// LIMIT 1 keeps it from hashing all claims.
		DeadLetters: q(`SELECT d.id, d.consumer, d.tenant, d.message_id, d.fingerprint, d.window_seconds, d.message_time, d.cause, d.error,
	d.topic, d.ordering_key, d.position, d.payload, d.headers::text, d.attempts, d.times, d.first_parked, d.last_parked,
	` + settled + ` AS settled
FROM (SELECT * FROM @dead_letters d WHERE {where} ORDER BY d.first_parked DESC, d.id DESC LIMIT CAST(? AS bigint)) AS d
	LEFT JOIN LATERAL (SELECT key, fingerprint FROM @processed_messages WHERE key = d.key LIMIT 1) AS p ON true
ORDER BY d.first_parked DESC, d.id DESC`),

		DropSettled: q(`DELETE FROM @dead_letters WHERE id IN (
	SELECT d.id FROM @dead_letters d JOIN @processed_messages p ON p.key = d.key
	WHERE ` + settled + ` LIMIT $1::bigint FOR UPDATE OF d SKIP LOCKED)`),

		// The last one ends the transaction of a process that freezes: it would keep other sweeps, and vacuum, waiting.
		SweepSettings: `SELECT set_config('statement_timeout', $1::text, true), set_config('lock_timeout', '2s', true),
	set_config('idle_in_transaction_session_timeout', $1::text, true)`,

		SweepClock: `SELECT clock_timestamp()`,

		// Only the owner of the lease updates the row. It stays locked until COMMIT, so there is never a second sweep.
		// A lease that ends later than this one would was set before the clock was set back.
		SweepLease: q(`UPDATE @txonce_sweep SET owner = $1::text, lease_until = clock_timestamp() + $2::float8 * interval '1 second'
WHERE owner IS NULL OR owner = $1::text OR lease_until < clock_timestamp() OR lease_until > clock_timestamp() + $2::float8 * interval '1 second'
RETURNING next_page, pg_relation_size('@processed_messages'::regclass) / current_setting('block_size')::bigint`),

		// There is no index on expires_at: a range of pages is read. $4 is the checked value of SweepClock, because the
		// clock may have jumped since. Rows that a handler holds are left for the next pass.
		SweepDelete: q(`WITH expired AS (
	SELECT ctid FROM @processed_messages
	WHERE ctid >= format('(%s,0)', $1::bigint)::tid AND ctid < format('(%s,0)', $2::bigint)::tid AND expires_at <= $4::timestamptz
	LIMIT $3::bigint FOR UPDATE SKIP LOCKED
), gone AS (
	DELETE FROM @processed_messages WHERE ctid = ANY(ARRAY(SELECT ctid FROM expired)) RETURNING expires_at
)
SELECT count(*), max(expires_at), coalesce(extract(epoch FROM $4::timestamptz - min(expires_at)), 0)::float8 FROM gone` + marked),

		// Two statements in place of SweepDelete: SweepExpired reads what is archived, and SweepArchived deletes it later.
		SweepExpired: q(`SELECT key, fingerprint, expires_at, result, consumer, tenant, id FROM @processed_messages
WHERE ctid >= format('(%s,0)', $1::bigint)::tid AND ctid < format('(%s,0)', $2::bigint)::tid AND expires_at <= $4::timestamptz
LIMIT $3::bigint`),
		SweepArchived: q(`WITH expired AS (
	SELECT p.ctid FROM unnest($1::uuid[]) AS r(key), LATERAL (SELECT ctid FROM @processed_messages
		WHERE key = r.key AND expires_at <= $2::timestamptz LIMIT 1 FOR UPDATE SKIP LOCKED) AS p
), gone AS (
	DELETE FROM @processed_messages WHERE ctid = ANY(ARRAY(SELECT ctid FROM expired)) RETURNING expires_at
)
SELECT count(*), max(expires_at), coalesce(extract(epoch FROM $2::timestamptz - min(expires_at)), 0)::float8 FROM gone` + marked),

		SweepDone: q(`UPDATE @txonce_sweep SET next_page = $1::bigint, forgotten_until = greatest(forgotten_until, $2::timestamptz), clock = $3::timestamptz`),
	}
}

// marked says to the trigger txonce_guard that the DELETE in the CTE gone is txonce's own, which records what must be
// recorded. The condition has no columns, so it is evaluated before the first row of gone is read, and with it the
// trigger fires. The trigger accepts a mark once.
const marked = ` WHERE (SELECT set_config('txonce.sweep', pg_current_xact_id()::text, true)) IS NOT NULL`

// settled is true if the dead letter's key was claimed for the same content after it was parked. For a dead letter of
// unknown outcome the claim proves nothing: it may be older than the letter and have no effects (observe.CauseUnknown).
const settled = `(p.key IS NOT NULL AND d.cause <> 'outcome_unknown' AND (p.fingerprint = d.fingerprint OR p.fingerprint IS NULL OR d.fingerprint IS NULL))`
