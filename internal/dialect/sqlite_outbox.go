package dialect

import "strings"

// SQLiteOutbox holds the statements of the outbox for SQLite, in the order of a message's life. As in SQLite, a list is
// one JSON text, times are microseconds since 1970, and a write transaction excludes every other, so sequence numbers,
// shards and completions need no locks.
type SQLiteOutbox struct {
	// Enqueueing.
	Number, Enqueue, Delay, Numbers string
	// Holding shards.
	Begin, Extend, Restart, Survey, Shards, GiveBack, Bury, Take, Leave, End string
	// Leasing.
	Look, Lease, Read, Due, Come, Came string
	// Settling.
	DeferTopic, HoldTopic                                                    string
	Own, Sent, Keep, Defer, Hold, Park, Unpend, HoldParked, Follow, Unfollow string
	// Upkeep.
	Behind, NeedsMaintenance, Unhold, ForgetSent string
	// Operations.
	Parked, Listed, Unpark, Release, Behead, Discard string
	Clock, Count, Relays                             string
}

// A parked message p holds back later messages of its key, unless p itself waits for another one, or its keep_order
// lets later messages pass.
const (
	sqliteStops  = `p.waiting = 0 AND p.keep_order < 2`
	sqliteBefore = `p.shard = m.shard AND p.key = m.key AND p.seq < m.seq AND ` + sqliteStops
	// sqliteIdle: nothing holds this key back.
	sqliteIdle = `(until IS NULL OR until <= @clock OR set_at > @clock) AND NOT EXISTS (
	SELECT 1 FROM outbox_parked p WHERE p.shard = outbox_held.shard AND p.key = outbox_held.key AND ` + sqliteStops + `)`
)

// NewSQLiteOutbox returns the statements.
func NewSQLiteOutbox() SQLiteOutbox {
	q := strings.NewReplacer("@clock", clock, "@before", sqliteBefore, "@idle", strings.ReplaceAll(sqliteIdle, "@clock",
		clock)).Replace
	return inMain(SQLiteOutbox{
		// Takes the write lock before anything is read, so that sequence numbers have the order of transactions.
		Number: q(`UPDATE outbox_seq SET last = last + ?1 RETURNING last, @clock, (SELECT count(*) FROM txonce_shards)`),

		// The last number that was given, and the largest one that is in use.
		Numbers: `SELECT last, max(coalesce((SELECT max(seq) FROM outbox_parked), 0),
	coalesce((SELECT max((SELECT max(seq) FROM outbox_messages m WHERE m.shard = s.shard)) FROM txonce_shards s), 0)) FROM outbox_seq`,

		// A row of the list is [seq, shard, id, topic, position of the key, length of the key, the same for payload and
		// headers]. Positions are in the blob ?2, which avoids encoding the bytes. ?3 is the clock that Number
		// returned.
		Enqueue: `INSERT INTO outbox_messages (seq, shard, id, topic, key, payload, headers, enqueued_at)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, ` + sqliteParts + `, ?3 FROM json_each(?1)`,
		Delay: `INSERT INTO outbox_delayed (seq, shard, id, topic, key, payload, headers, enqueued_at, not_before)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, ` + sqliteParts + `, ?3, value ->> 10 FROM json_each(?1)`,

		// The clock is rounded down to milliseconds; the added one keeps a hold from expiring early.
		Begin: q(`INSERT INTO txonce_relays (owner, name, until, set_at) VALUES (?1, ?2, @clock + 1000 + ?3, @clock)
ON CONFLICT (owner) DO UPDATE SET until = excluded.until, set_at = excluded.set_at WHERE until > @clock
RETURNING until`),
		Extend: q(`UPDATE txonce_relays SET until = @clock + 1000 + ?3, set_at = @clock WHERE owner = ?1 AND ?2 IS NOT NULL AND until > @clock RETURNING until`),
		// See PostgresOutbox.Restart.
		Restart: q(`UPDATE txonce_relays SET until = @clock + (until - set_at), set_at = @clock WHERE set_at > @clock`),
		// The living sessions, and when their holds expire.
		Survey: q(`SELECT hex(owner), name = ?2, until, owner = ?1 FROM txonce_relays WHERE until > @clock`),
		Shards: q(`SELECT s.shard, s.token, s.owner IS ?1, r.owner IS NULL
FROM txonce_shards s LEFT JOIN txonce_relays r ON r.owner = s.owner AND r.until > @clock`),
		GiveBack: `UPDATE txonce_shards SET owner = NULL WHERE owner = ?1 AND shard IN (SELECT value FROM json_each(?2))`,
		Bury:     q(`DELETE FROM txonce_relays WHERE until <= @clock`),
		Take: q(`UPDATE txonce_shards SET owner = ?1, token = token + 1 WHERE shard IN (
	SELECT s.shard FROM txonce_shards s LEFT JOIN txonce_relays r ON r.owner = s.owner WHERE r.owner IS NULL ORDER BY random() LIMIT ?2)
	AND EXISTS (SELECT 1 FROM txonce_relays WHERE owner = ?1 AND until > @clock)
RETURNING shard, token`),
		Leave: `UPDATE txonce_shards SET owner = NULL WHERE owner = ?1`,
		End:   `DELETE FROM txonce_relays WHERE owner = ?1`,

		// Returns whether the hold is valid, whether delayed messages are due, and which of the session's shards have
		// messages.
		Look: q(`SELECT r.until > @clock, EXISTS (SELECT 1 FROM outbox_delayed WHERE not_before <= @clock), s.shard, s.token
FROM txonce_relays r LEFT JOIN txonce_shards s
	ON s.owner = r.owner AND EXISTS (SELECT 1 FROM outbox_messages m WHERE m.shard = s.shard)
WHERE r.owner = ?1`),

		// From each shard in the list the first messages that are due, at most ?2, with their sizes.
		Lease: q(`SELECT l.shard, l.seq, coalesce(length(l.key), 0) + length(l.payload) + coalesce(length(CAST(l.headers AS BLOB)), 0)
FROM json_each(?1) r CROSS JOIN outbox_messages l ON l.shard = r.value AND l.seq IN (
	SELECT seq FROM outbox_messages m
	WHERE shard = r.value AND (retry_at IS NULL OR retry_at <= @clock OR failed_at > @clock) AND NOT EXISTS (
		SELECT 1 FROM outbox_held h WHERE h.shard = m.shard AND h.key = m.key
			AND (h.until > @clock AND (h.set_at > @clock) IS NOT TRUE AND m.seq >= h.from_seq OR EXISTS (SELECT 1 FROM outbox_parked p WHERE @before)))
	ORDER BY seq LIMIT ?2)`),
		Read: `SELECT m.shard, m.seq, m.id, m.topic, m.key, m.payload, m.headers, m.enqueued_at, m.attempts
FROM json_each(?1) r CROSS JOIN outbox_messages m ON m.shard = r.value ->> 0 AND m.seq = r.value ->> 1`,

		// Due delayed messages get new sequence numbers, as if they were enqueued now.
		Due: q(`SELECT not_before, seq FROM outbox_delayed WHERE not_before <= @clock ORDER BY not_before, seq LIMIT ?1`),
		Come: `INSERT INTO outbox_messages (seq, shard, id, topic, key, payload, headers, enqueued_at, not_before)
SELECT ?2 + due.key, d.shard, d.id, d.topic, d.key, d.payload, d.headers, d.enqueued_at, d.not_before
FROM json_each(?1) due JOIN outbox_delayed d ON d.not_before = due.value ->> 0 AND d.seq = due.value ->> 1`,
		Came: `DELETE FROM outbox_delayed WHERE (not_before, seq) IN (SELECT value ->> 0, value ->> 1 FROM json_each(?1))`,

		// Counts those of the shards, each a [shard, token], that the owner still has.
		Own: `SELECT count(*) FROM json_each(?2) JOIN txonce_shards s ON s.shard = value ->> 0 AND s.token = value ->> 1 WHERE s.owner = ?1`,

		// A row of the list is [shard, seq].
		Sent: `DELETE FROM outbox_messages WHERE (shard, seq) IN (SELECT value ->> 0, value ->> 1 FROM json_each(?1))`,
		Keep: q(`INSERT INTO outbox_sent (sent_at, seq, id, topic, key, payload, headers, enqueued_at)
SELECT @clock, m.seq, m.id, m.topic, m.key, m.payload, m.headers, m.enqueued_at
FROM json_each(?1) sent JOIN outbox_messages m ON m.shard = sent.value ->> 0 AND m.seq = sent.value ->> 1`),

		// A row of the list is [shard, seq, attempts, error, delay]. Repeating it changes nothing, because attempts are
		// set, not incremented.
		Defer: q(`UPDATE outbox_messages AS m SET attempts = r.value ->> 2, error = r.value ->> 3,
	retry_at = CASE WHEN m.key IS NULL THEN @clock + (r.value ->> 4) END, failed_at = CASE WHEN m.key IS NULL THEN @clock END
FROM json_each(?1) r WHERE m.shard = r.value ->> 0 AND m.seq = r.value ->> 1`),
		Hold: q(`INSERT INTO outbox_held (shard, key, from_seq, until, set_at)
SELECT m.shard, m.key, min(m.seq), max(@clock + (r.value ->> 4)), @clock
FROM json_each(?1) r JOIN outbox_messages m ON m.shard = r.value ->> 0 AND m.seq = r.value ->> 1
WHERE m.key IS NOT NULL GROUP BY m.shard, m.key
ON CONFLICT (shard, key) DO UPDATE SET
	from_seq = CASE WHEN until > @clock AND (set_at > @clock) IS NOT TRUE THEN min(from_seq, excluded.from_seq) ELSE excluded.from_seq END,
	until = CASE WHEN until > @clock AND (set_at > @clock) IS NOT TRUE AND from_seq <= excluded.from_seq THEN max(until, excluded.until) ELSE excluded.until END,
	set_at = excluded.set_at`),

		// DeferTopic and HoldTopic come after Defer and Hold, and leave alone what waits already. They hold back the
		// due messages of topic ?3 in shard ?1, from seq ?2 on, among the first ?6 rows: HoldTopic those with a key, by
		// their key. ?4 is the delay.
		DeferTopic: q(`UPDATE outbox_messages SET error = ?5, retry_at = @clock + ?4, failed_at = @clock
WHERE shard = ?1 AND seq >= ?2 AND seq <= (SELECT max(seq) FROM (SELECT seq FROM outbox_messages WHERE shard = ?1 AND seq >= ?2 ORDER BY seq LIMIT ?6))
	AND topic = ?3 AND key IS NULL AND (retry_at IS NULL OR retry_at <= @clock OR failed_at > @clock)`),
		HoldTopic: q(`INSERT INTO outbox_held (shard, key, from_seq, until, set_at)
SELECT m.shard, m.key, min(m.seq), @clock + ?4, @clock FROM outbox_messages m
WHERE m.shard = ?1 AND m.seq >= ?2 AND m.seq <= (SELECT max(seq) FROM (SELECT seq FROM outbox_messages WHERE shard = ?1 AND seq >= ?2 ORDER BY seq LIMIT ?6))
	AND m.topic = ?3 AND m.key IS NOT NULL AND ?5 IS NOT NULL AND NOT EXISTS (
		SELECT 1 FROM outbox_held h WHERE h.shard = m.shard AND h.key = m.key
			AND (h.until > @clock AND (h.set_at > @clock) IS NOT TRUE AND m.seq >= h.from_seq OR EXISTS (SELECT 1 FROM outbox_parked p WHERE @before)))
GROUP BY m.shard, m.key
ON CONFLICT (shard, key) DO UPDATE SET
	from_seq = CASE WHEN until > @clock AND (set_at > @clock) IS NOT TRUE THEN from_seq ELSE excluded.from_seq END,
	until = CASE WHEN until > @clock AND (set_at > @clock) IS NOT TRUE THEN until ELSE excluded.until END, set_at = excluded.set_at`),

		Park: q(`INSERT INTO outbox_parked (seq, shard, id, topic, key, payload, headers, enqueued_at, not_before, attempts, error, keep_order, parked_at)
SELECT seq, shard, id, topic, key, payload, headers, enqueued_at, not_before, ?3, ?4, ?5, @clock
FROM outbox_messages WHERE shard = ?1 AND seq = ?2`),
		Unpend: `DELETE FROM outbox_messages WHERE shard = ?1 AND seq = ?2`,
		// The row in outbox_held marks a key that may have parked messages. Unhold deletes it.
		HoldParked: `INSERT INTO outbox_held (shard, key, from_seq, park)
SELECT shard, key, seq, keep_order FROM outbox_parked WHERE seq = ?1 AND key IS NOT NULL AND keep_order <> 2
ON CONFLICT (shard, key) DO UPDATE SET park = excluded.park,
	from_seq = CASE WHEN until IS NULL THEN min(from_seq, excluded.from_seq) ELSE from_seq END`,

		// Messages behind a parked one move to outbox_parked, if they are among the first ?2 of their shard.
		Follow: q(`INSERT INTO outbox_parked (seq, shard, id, topic, key, payload, headers, enqueued_at, not_before, attempts, error, behind, waiting, keep_order, parked_at)
SELECT m.seq, m.shard, m.id, m.topic, m.key, m.payload, m.headers, m.enqueued_at, m.not_before, m.attempts, 'stands behind message ' || b.seq || ' of its key', b.seq, b.keep_order = 0, b.keep_order, @clock
FROM outbox_held h JOIN outbox_messages m ON m.shard = h.shard AND m.key = h.key
	JOIN outbox_parked b ON b.seq = (SELECT p.seq FROM outbox_parked p WHERE @before ORDER BY p.seq LIMIT 1)
WHERE h.shard = ?1 AND m.seq <= (SELECT max(seq) FROM (SELECT seq FROM outbox_messages WHERE shard = ?1 ORDER BY seq LIMIT ?2))
RETURNING seq`),
		Unfollow: `DELETE FROM outbox_messages WHERE shard = ?1 AND seq IN (SELECT value FROM json_each(?2))`,

		// Shards with keys that a parked message holds back.
		Behind: `SELECT DISTINCT h.shard FROM outbox_held h JOIN outbox_parked p ON p.shard = h.shard AND p.key = h.key
WHERE h.shard IN (SELECT value FROM json_each(?1))`,
		// Whether Unhold or ForgetSent would change something.
		NeedsMaintenance: q(`SELECT EXISTS (SELECT 1 FROM outbox_held WHERE @idle) OR EXISTS (SELECT 1 FROM outbox_sent WHERE sent_at <= @clock - ?1)`),
		Unhold:           q(`DELETE FROM outbox_held WHERE @idle`),
		ForgetSent: q(`DELETE FROM outbox_sent WHERE (sent_at, seq) IN (
	SELECT sent_at, seq FROM outbox_sent WHERE sent_at <= @clock - ?1 ORDER BY sent_at, seq LIMIT ?2)`),

		Parked: `SELECT shard, seq, id, topic, key, payload, headers, enqueued_at, attempts, error, behind, waiting, parked_at
FROM outbox_parked WHERE seq > ?1 AND (?2 = '' OR topic = ?2) AND (?3 IS NULL OR key = ?3)
	AND instr(error, ?4) > 0 AND parked_at >= ?5 AND parked_at < ?6 ORDER BY seq LIMIT ?7`,

		// Listed returns those of the list that are parked, with their keys.
		Listed: `SELECT p.shard, p.key FROM json_each(?1) r JOIN outbox_parked p ON p.seq = r.value`,
		// Release also moves the messages that waited for an unparked one. Behead then records which message the others
		// wait for.
		Unpark: `INSERT INTO outbox_messages (seq, shard, id, topic, key, payload, headers, enqueued_at, not_before)
SELECT p.seq, p.shard, p.id, p.topic, p.key, p.payload, p.headers, p.enqueued_at, p.not_before
FROM json_each(?1) r JOIN outbox_parked p ON p.seq = r.value WHERE p.waiting = 0
RETURNING seq`,
		Release: q(`INSERT INTO outbox_messages (seq, shard, id, topic, key, payload, headers, enqueued_at, not_before, attempts)
SELECT m.seq, m.shard, m.id, m.topic, m.key, m.payload, m.headers, m.enqueued_at, m.not_before, m.attempts FROM outbox_parked m
WHERE m.shard = ?1 AND m.key = ?2 AND m.waiting = 1 AND NOT EXISTS (SELECT 1 FROM outbox_parked p WHERE @before)
RETURNING seq`),
		Behead: q(`UPDATE outbox_parked AS m SET behind = (SELECT min(p.seq) FROM outbox_parked p WHERE @before)
WHERE m.shard = ?1 AND m.key = ?2 AND m.waiting = 1`),
		Discard: `DELETE FROM outbox_parked WHERE seq IN (SELECT value FROM json_each(?1))`,

		Clock: q(`SELECT @clock, (SELECT count(*) FROM outbox_held WHERE NOT (@idle))`),
		// Counts the first ?1 rows of each shard. The number of the rest is estimated from the sequence numbers: next
		// is the first one not counted, last is the highest. Counting all rows would read every payload. The flag is
		// true for delayed messages that are due and for parked messages that wait. A single statement sees each
		// message once.
		Count: q(`WITH part AS (SELECT s.shard,
	(SELECT m.seq FROM outbox_messages m WHERE m.shard = s.shard ORDER BY m.seq LIMIT 1 OFFSET ?1) AS next,
	(SELECT max(m.seq) FROM outbox_messages m WHERE m.shard = s.shard) AS last FROM txonce_shards s)
SELECT 0, part.shard, m.topic, 0, count(*), min(coalesce(m.not_before, m.enqueued_at)), count(m.error), min(m.error), min(m.seq), part.next, part.last
FROM part CROSS JOIN outbox_messages m ON m.shard = part.shard AND m.seq < coalesce(part.next, part.last + 1)
GROUP BY part.shard, m.topic
UNION ALL
SELECT 1, 0, topic, not_before <= @clock, count(*), min(not_before), 0, NULL, 0, NULL, 0 FROM outbox_delayed GROUP BY 3, 4
UNION ALL
SELECT 2, 0, topic, waiting, count(*), min(coalesce(not_before, enqueued_at)), 0, NULL, 0, NULL, 0 FROM outbox_parked GROUP BY topic, waiting`),
		Relays: q(`SELECT r.name, r.until, count(s.shard) FROM txonce_relays r LEFT JOIN txonce_shards s ON s.owner = r.owner
WHERE r.until > @clock GROUP BY r.owner ORDER BY r.name, r.until`),
	})
}

// sqliteParts extracts the key, payload and headers of a message from the blob of Enqueue.
const sqliteParts = `CASE WHEN value ->> 5 > 0 THEN substr(?2, value ->> 4, value ->> 5) END, substr(?2, value ->> 6, value ->> 7),
	CASE WHEN value ->> 9 > 0 THEN CAST(substr(?2, value ->> 8, value ->> 9) AS TEXT) END`

// SQLiteStale reports that a transaction cannot write because another one has written since its first read.
func SQLiteStale(code int) bool { return code == 517 } // BUSY_SNAPSHOT
