package dialect

import "strings"

// SQLite holds the statements for SQLite 3.42 and later, in the order of a message's life. A list is one JSON text.
// Keys are 16-byte blobs, in lists their hexadecimal digits. Times are microseconds since 1970.
//
// A write transaction excludes every other. So some cases that PostgreSQL must guard against cannot happen: no claim
// waits for another's key, no row vanishes between conflict and read, and the horizon can be read within the
// transaction.
type SQLite struct {
	// Claiming.
	Lock, Claim, Forgotten, Windows, Existing, Mark, Proof string
	TemporaryVersion, Temporary                            string
	Forget, SaveResult, Lookup, Newer                      string
	// Windows and checks.
	LockSources, Sources, AddSource                                                                   string
	UseWindow, WindowUse, SchemaVersion, SchemaTables, Probe, Version, Synchronous, JournalMode, File string
	// Dead letters. DeadLetters is completed by Operator.Choose; its last parameter is a limit.
	Park, TakeDeadLetter, DeadLetters, DropSettled string
	// Sweeping.
	SweepClock, SweepLease, SweepExpired, SweepEnd, SweepDelete, SweepDone string
}

// clock is the database's clock: milliseconds, expressed in microseconds.
const clock = `CAST(unixepoch('subsec') * 1000000 AS INTEGER)`

// NewSQLite returns the statements.
func NewSQLite() SQLite {
	q := func(sql string) string { return strings.ReplaceAll(sql, "@clock", clock) }
	return inMain(SQLite{
		// As the first statement it turns any BEGIN into BEGIN IMMEDIATE: it takes the write lock before the snapshot.
		// If a transaction reads before it writes and another has written since, it fails at once, whatever
		// busy_timeout is.
		Lock: `DELETE FROM processed_messages WHERE false`,

		// A row of the list is [key, fingerprint, consumer, tenant, id, time, window].
		Claim: q(`INSERT INTO processed_messages (key, fingerprint, consumer, tenant, id, expires_at)
SELECT unhex(value ->> 0), value ->> 1, value ->> 2, value ->> 3, value ->> 4, max(@clock, value ->> 5) + (value ->> 6)
FROM json_each(?1) WHERE true
ON CONFLICT (key) DO NOTHING
RETURNING key, @clock`),

		Forgotten: `SELECT forgotten_until FROM txonce_sweep`,

		Windows: `SELECT window_seconds, first_run, used_until FROM txonce_windows WHERE consumer = ?1`,

		Existing: `SELECT ` + existing + ` FROM processed_messages WHERE key IN (SELECT unhex(value) FROM json_each(?1))`,

		// A savepoint ends with its transaction, so releasing it proves that the transaction still runs.
		Mark:  `SAVEPOINT txonce_claimed`,
		Proof: `RELEASE txonce_claimed`,

		// Everything on the connection that hides tables or adds to statements: temporary tables, views and triggers.
		// The version is 0 as long as the connection never had any.
		TemporaryVersion: `PRAGMA temp.schema_version`,
		Temporary:        `SELECT coalesce(group_concat(sql, ';'), '0') FROM temp.sqlite_schema`,

		Forget: `DELETE FROM processed_messages WHERE key IN (SELECT unhex(value) FROM json_each(?1))`,

		Newer: q(`INSERT INTO entity_versions AS v (object, version, changed_at) VALUES (?1, ?2, @clock)
ON CONFLICT (object) DO UPDATE SET version = excluded.version, changed_at = excluded.changed_at WHERE v.version < excluded.version`),

		SaveResult: `UPDATE processed_messages SET result = ?2 WHERE key = ?1`,

		Lookup: `SELECT ` + existing + ` FROM processed_messages WHERE key = ?1`,

		LockSources: q(`INSERT INTO txonce_sources (consumer, source, first_run) VALUES (?1, '', @clock) ON CONFLICT DO NOTHING`),
		Sources:     `SELECT source FROM txonce_sources WHERE consumer = ?1 AND source <> '' ORDER BY first_run, source`,
		AddSource:   q(`INSERT INTO txonce_sources (consumer, source, first_run) VALUES (?1, ?2, @clock)`),

		UseWindow: q(`INSERT INTO txonce_windows (consumer, window_seconds, first_run, used_until)
VALUES (?1, ?2, @clock, @clock + CAST(?3 * 1000000 AS INTEGER))
ON CONFLICT (consumer, window_seconds) DO UPDATE SET used_until = max(used_until, excluded.used_until), first_run = min(first_run, excluded.first_run)
RETURNING used_until`),

		WindowUse: q(`SELECT used_until, @clock FROM txonce_windows WHERE consumer = ?1 AND window_seconds = ?2`),

		SchemaVersion: `SELECT coalesce(max(version), 0), coalesce(max(works_with), 0) FROM txonce_schema`,
		SchemaTables:  `SELECT count(*) FROM processed_messages, txonce_windows, txonce_sources, txonce_sweep, dead_letters, entity_versions, source_positions WHERE 1 = 0`,

		// This statement must fail. Its error shows whether the driver reports SQLite's result codes and messages.
		Probe: `SELECT txonce_no_such_column`,

		Version:     `SELECT sqlite_version(), unixepoch('subsec') IS NOT NULL`,
		Synchronous: `PRAGMA synchronous`,
		JournalMode: `PRAGMA journal_mode`,
		File:        `SELECT coalesce(file, '') FROM pragma_database_list WHERE name = 'main'`, // empty: in memory

		// Letters are replayed in the order of first_parked. The clock shows milliseconds, so a letter gets a later
		// time than those of its consumer in the same millisecond. A letter from a time when the clock was wrong moves
		// no others.
		// Of two payloads, one may be shortened: the longer one stays.
		Park: q(`INSERT INTO dead_letters (id, key, consumer, tenant, message_id, fingerprint, window_seconds, message_time,
	cause, error, topic, ordering_key, position, payload, headers, attempts, first_parked, last_parked)
SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, at, at FROM (
	SELECT max(@clock, coalesce((SELECT max(first_parked) + 1 FROM dead_letters WHERE consumer = ?3 AND first_parked BETWEEN @clock AND @clock + 999), 0)) AS at) WHERE true
ON CONFLICT (id) DO UPDATE SET times = times + 1, last_parked = excluded.last_parked, cause = excluded.cause,
	error = excluded.error, attempts = excluded.attempts, position = excluded.position, headers = excluded.headers,
	message_time = excluded.message_time, window_seconds = excluded.window_seconds, fingerprint = excluded.fingerprint,
	payload = CASE WHEN length(excluded.payload) > length(payload) THEN excluded.payload ELSE payload END`),

		TakeDeadLetter: `DELETE FROM dead_letters WHERE id = ?1 AND cause = ?2`,

		DeadLetters: `SELECT d.id, d.consumer, d.tenant, d.message_id, d.fingerprint, d.window_seconds, d.message_time, d.cause, d.error,
	d.topic, d.ordering_key, d.position, d.payload, d.headers, d.attempts, d.times, d.first_parked, d.last_parked,
	` + settled + ` AS settled
FROM dead_letters d LEFT JOIN processed_messages p ON p.key = d.key
WHERE {where} ORDER BY d.first_parked DESC, d.id DESC LIMIT ?`,

		DropSettled: `DELETE FROM dead_letters WHERE id IN (
	SELECT d.id FROM dead_letters d JOIN processed_messages p ON p.key = d.key WHERE ` + settled + ` LIMIT ?1)`,

		SweepClock: q(`SELECT @clock`),

		SweepLease: q(`UPDATE txonce_sweep SET owner = ?1, lease_until = @clock + CAST(?2 * 1000000 AS INTEGER)
WHERE owner IS NULL OR owner = ?1 OR lease_until < @clock OR lease_until > @clock + CAST(?2 * 1000000 AS INTEGER)
RETURNING next_key, @clock`),

		// There is no index on expires_at: the next part of the table is read in the order of its key. ?2 limits the
		// rows that are read, ?3 those that are deleted, and ?4 is the clock of the lease.
		SweepExpired: `SELECT key, expires_at FROM (
	SELECT key, expires_at FROM processed_messages WHERE key > ?1 ORDER BY key LIMIT ?2)
WHERE expires_at <= ?4 ORDER BY key LIMIT ?3`,

		SweepEnd: `SELECT count(*), max(key) FROM (
	SELECT key FROM processed_messages WHERE key > ?1 ORDER BY key LIMIT ?2)`,

		SweepDelete: `DELETE FROM processed_messages WHERE key IN (SELECT unhex(value) FROM json_each(?1)) AND expires_at <= ?2`,

		SweepDone: `UPDATE txonce_sweep SET next_key = ?1,
	forgotten_until = CASE WHEN ?2 IS NULL OR forgotten_until >= ?2 THEN forgotten_until ELSE ?2 END`,
	})
}

// SQLiteSettings read the settings of a connection that a handler can change in its transaction, and that would then
// refuse or alter what later transactions write. Reading each with a statement of its own is faster than reading all
// with one.
var SQLiteSettings = [...]string{
	`PRAGMA query_only`, `PRAGMA locking_mode`, `PRAGMA ignore_check_constraints`,
	`PRAGMA recursive_triggers`,
}

// existing is a row. Drivers return nil both for NULL and for an empty blob, so an empty result becomes an empty text.
const existing = `key, fingerprint, expires_at, CASE WHEN length(result) = 0 THEN '' ELSE result END, consumer, tenant, id`
