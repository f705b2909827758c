package dialect

import (
	"fmt"
	"strings"
)

// MySQLOutbox holds the statements of the outbox for MySQL 8.0 and MariaDB 10.6 and later, in the order of a message's
// life. As in MySQL, a list is one JSON text and times are microseconds since 1970 UTC; owners, and binary data in
// lists, are hexadecimal digits. Transactions are READ COMMITTED: they lock no gaps, and each statement sees everything
// that is committed when it begins.
//
// Every statement finds its rows by short reads of an index that it names. Subqueries end in LIMIT 1 because for EXISTS
// the optimizer may choose a join that reads the whole table.
type MySQLOutbox struct {
	// Enqueueing. EnqueueRow and DelayRow are repeated for each row.
	Shards, Now, LockOrderingKey         string
	Enqueue, EnqueueRow, Delay, DelayRow string
	Settings, Numbers                    string
	Begin, Extend, Alive, Survey, Held   string
	Ahead, Restart                       string
	Expired, Bury, Free, Lock, Take      string
	GiveBack, Leave, End                 string
	// Leasing.
	Look, LeaseFew, LeaseShard, Heavy, TryTurn, Slots, Due, Come, Came string
	// Settling.
	TopicEnd, DeferTopic, HoldTopic                                   string
	Own, Sent, Keep, Defer, Hold, Park, HoldParked, Followers, Follow string
	// Upkeep.
	Behind, NeedsMaintenance, Idle, LockHeld, StillIdle, Unhold, ForgetSent string
	// Operations.
	Parked, ShardsOf, LockShards, Listed, Unpark, Discard, First, Release, Released, Behead string
	// CountShard has {shard} and {counted} instead of parameters
	Clock, CountShard, CountOthers, Relays string
}

// Light is the largest size of a message that LeaseShard returns whole. The content of a larger one is read separately,
// once it is known to fit.
const Light = 4 << 10

// TakeTurn is the slot of outbox_locks that a session locks to take shards, MoveTurn the one for moving delayed
// messages. Lower slots are for keys.
const (
	TakeTurn = 1024
	MoveTurn = 1025
)

const (
	// mysqlRefs is a list of messages with parameters for each. Columns that a row leaves out are NULL.
	mysqlRefs = `(SELECT * FROM JSON_TABLE(?, '$[*]' COLUMNS (shard SMALLINT PATH '$[0]', seq BIGINT PATH '$[1]', attempts INT PATH '$[2]',
	error LONGTEXT CHARACTER SET latin1 PATH '$[3]', delay BIGINT PATH '$[4]', keep_order TINYINT PATH '$[5]', behind BIGINT PATH '$[6]',
	id VARCHAR(510) CHARACTER SET latin1 PATH '$[7]')) AS j) AS r`
	// A list of leased messages has their ids: after a failover to a replica that lacked commits, another message may
	// have the seq.
	mysqlMessages = mysqlRefs + ` STRAIGHT_JOIN @outbox_messages AS m FORCE INDEX (PRIMARY) ON m.shard = r.shard AND m.seq = r.seq AND COALESCE(m.id = UNHEX(r.id), true)`
	mysqlParked   = mysqlRefs + ` STRAIGHT_JOIN @outbox_parked AS p FORCE INDEX (PRIMARY) ON p.seq = r.seq`
	mysqlDelayed  = `(SELECT * FROM JSON_TABLE(?, '$[*]' COLUMNS (not_before BIGINT PATH '$[0]', seq BIGINT PATH '$[1]')) AS j) AS r
	STRAIGHT_JOIN @outbox_delayed AS d FORCE INDEX (PRIMARY) ON d.not_before = r.not_before AND d.seq = r.seq`
	mysqlHeld = `(SELECT * FROM JSON_TABLE(?, '$[*]' COLUMNS (shard SMALLINT PATH '$[0]', k CHAR(64) CHARACTER SET latin1 PATH '$[1]')) AS j) AS r
	STRAIGHT_JOIN @outbox_held AS h FORCE INDEX (PRIMARY) ON h.shard = r.shard AND h.key_hash = UNHEX(r.k)`
	mysqlShards = `(SELECT * FROM JSON_TABLE(?, '$[*]' COLUMNS (shard SMALLINT PATH '$[0]', token BIGINT PATH '$[1]')) AS j) AS r
	STRAIGHT_JOIN @txonce_shards AS s FORCE INDEX (PRIMARY) ON s.shard = r.shard`
	mysqlRelays = `(SELECT * FROM JSON_TABLE(?, '$[*]' COLUMNS (k CHAR(32) CHARACTER SET latin1 PATH '$')) AS j) AS r
	STRAIGHT_JOIN @txonce_relays AS t FORCE INDEX (PRIMARY) ON t.owner = UNHEX(r.k)`
)

// A parked message holds back its key, unless the message itself waits for another one, or its keep_order lets later
// messages pass.
const (
	mysqlStops = `p.waiting = 0 AND p.keep_order < 2`
	mysqlFirst = `FROM @outbox_parked AS p FORCE INDEX (outbox_parked_key) WHERE p.shard = %[1]s.shard AND p.key_hash = %[1]s.key_hash AND ` + mysqlStops
	// nothing holds this key back
	mysqlIdle = `(h.until IS NULL OR h.until <= @clock OR h.set_at > @clock) AND (SELECT 1 @parkedOfHeld LIMIT 1) IS NULL`
)

// mysqlLease are the columns of a leased message. mysqlDue selects messages that wait neither for their own retry nor
// for another message of their key.
var mysqlLease = fmt.Sprintf("SELECT m.shard, m.seq, m.id, m.topic, m.size, m.enqueued_at, m.attempts, m.size <= %[1]d AS light,\n"+
	"	IF(m.size <= %[1]d, m.`key`, NULL), IF(m.size <= %[1]d, m.payload, NULL), IF(m.size <= %[1]d, m.headers, NULL)", Light)

const mysqlDue = `(m.retry_at IS NULL OR m.retry_at <= @clock OR m.failed_at > @clock) AND (
	SELECT 1 FROM @outbox_held AS h FORCE INDEX (PRIMARY) WHERE h.shard = m.shard AND h.key_hash = m.key_hash
		AND (h.until > @clock AND (h.set_at > @clock) IS NOT TRUE AND m.seq >= h.from_seq OR (SELECT 1 @parkedOfMessage LIMIT 1) IS NOT NULL) LIMIT 1) IS NULL`

// mysqlColumns are the columns that move with a message from table to table.
const mysqlColumns = "shard, id, topic, `key`, key_hash, payload, headers, size, enqueued_at, not_before"

// NewMySQLOutbox returns the statements for tables in the database schema. Empty means the session's own database.
func NewMySQLOutbox(schema string) MySQLOutbox {
	names := MySQLNames(schema)
	parts := strings.NewReplacer(
		"@refs", mysqlRefs, "@messagesOf", mysqlMessages, "@parkedOfList", mysqlParked, "@delayedOf", mysqlDelayed,
		"@heldOf", mysqlHeld,
		"@shardsOf", mysqlShards, "@relaysOf", mysqlRelays,
		"@parkedOfHeld", fmt.Sprintf(mysqlFirst, "h"), "@parkedOfMessage", fmt.Sprintf(mysqlFirst, "m")+
			" AND p.seq < m.seq",
	)
	q := func(sql string) string { return names(parts.Replace(strings.ReplaceAll(sql, "@idle", mysqlIdle))) }
	return MySQLOutbox{
		Shards: q(`SELECT count(*), COALESCE(max(shard), -1), @@max_allowed_packet FROM @txonce_shards`),
		Now:    q(`SELECT @clock`),

		// Waits until the end of the transaction that has locked the slot. TakeTurn is such a slot.
		LockOrderingKey: q(`SELECT slot FROM @outbox_locks WHERE slot = ? FOR UPDATE`),

		Enqueue:    q("INSERT INTO @outbox_messages (shard, id, topic, `key`, key_hash, payload, headers, size, enqueued_at) VALUES "),
		EnqueueRow: q(`(?, ?, ?, ?, ?, ?, ?, ?, @clock)`),
		Delay:      q("INSERT INTO @outbox_delayed (shard, id, topic, `key`, key_hash, payload, headers, size, enqueued_at, not_before) VALUES "),
		DelayRow:   q(`(?, ?, ?, ?, ?, ?, ?, ?, @clock, ?)`),

		// If a process freezes in the middle of a relay's transaction, the server closes its connection and so releases
		// its locks. The Store resets the setting. the largest number in use that AUTO_INCREMENT does not know of
		Numbers:  q(`SELECT COALESCE(MAX(seq), 0) FROM @outbox_parked`),
		Settings: `SET wait_timeout = CAST(LEAST(@@wait_timeout, 5) AS UNSIGNED)`,

		// Alive tells whether Begin or Extend found a valid hold. The number of changed rows depends on the driver's
		// settings.
		Begin: q(`INSERT INTO @txonce_relays (owner, name, until, set_at) VALUES (UNHEX(?), ?, @clock + ?, @clock)
ON DUPLICATE KEY UPDATE set_at = IF(until > @clock, VALUES(set_at), set_at), until = IF(until > @clock, VALUES(until), until)`),
		Extend: q(`UPDATE @txonce_relays SET until = @clock + ?, set_at = @clock WHERE owner = UNHEX(?) AND until > @clock`),
		Alive:  q(`SELECT until > @clock FROM @txonce_relays WHERE owner = UNHEX(?)`),
		// See PostgresOutbox.Restart.
		Ahead:   q(`SELECT owner FROM @txonce_relays WHERE set_at > @clock FOR UPDATE SKIP LOCKED`),
		Restart: q(`UPDATE @relaysOf SET t.until = @clock + (t.until - t.set_at), t.set_at = @clock WHERE t.set_at > @clock`),
		// The living sessions, and when their holds expire.
		Survey: q(`SELECT HEX(owner), name = ?, until, owner = UNHEX(?) FROM @txonce_relays WHERE until > @clock`),
		Held: q(`SELECT s.shard, s.token, s.owner <=> UNHEX(?), r.owner IS NULL
FROM @txonce_shards AS s LEFT JOIN @txonce_relays AS r ON r.owner = s.owner AND r.until > @clock`),

		// One session at a time takes shards. It first deletes the rows of expired sessions. If a late Renew of such a
		// session commits before the delete, its row is skipped; if it comes later, it finds no row. Free returns
		// shards whose owner has no row. A shard that is being settled is left for the next time.
		Expired: q(`SELECT owner FROM @txonce_relays WHERE until <= @clock - ? FOR UPDATE SKIP LOCKED`),
		Bury:    q(`DELETE t FROM @relaysOf`),
		Free:    q(`SELECT s.shard FROM @txonce_shards AS s LEFT JOIN @txonce_relays AS r ON r.owner = s.owner WHERE r.owner IS NULL ORDER BY RAND()`),
		Lock:    q(`SELECT s.shard, s.token + 1 FROM @shardsOf LIMIT ? FOR UPDATE SKIP LOCKED`),
		Take:    q(`UPDATE @shardsOf SET s.owner = UNHEX(?), s.token = r.token`),

		GiveBack: q(`UPDATE @shardsOf SET s.owner = NULL WHERE s.owner = UNHEX(?)`),
		Leave:    q(`UPDATE @txonce_shards SET owner = NULL WHERE owner = UNHEX(?)`),
		End:      q(`DELETE FROM @txonce_relays WHERE owner = UNHEX(?)`),

		// Returns whether the hold is valid, whether delayed messages are due, and which of the session's shards have
		// messages.
		Look: q(`SELECT r.until > @clock, COALESCE((SELECT min(not_before) FROM @outbox_delayed) <= @clock, 0), s.shard, s.token
FROM @txonce_relays AS r LEFT JOIN @txonce_shards AS s ON s.owner = r.owner
	AND (SELECT m.seq FROM @outbox_messages AS m FORCE INDEX (PRIMARY) WHERE m.shard = s.shard ORDER BY m.seq LIMIT 1) IS NOT NULL
WHERE r.owner = UNHEX(?)`),

		// All due messages of the shards, up to a limit. They are ordered by shard and seq.
		LeaseFew: q(mysqlLease + ` FROM (SELECT * FROM JSON_TABLE(?, '$[*]' COLUMNS (shard SMALLINT PATH '$[0]')) AS j) AS r
STRAIGHT_JOIN @outbox_messages AS m FORCE INDEX (PRIMARY) ON m.shard = r.shard
WHERE ` + mysqlDue + ` LIMIT ?`),
		// One per shard, joined with UNION ALL. No other form stops after the first rows of each shard on both servers.
		LeaseShard: q(`(` + mysqlLease + ` FROM @outbox_messages AS m FORCE INDEX (PRIMARY)
WHERE m.shard = ? AND ` + mysqlDue + ` ORDER BY m.seq LIMIT ?)`),
		Heavy: q("SELECT m.seq, m.`key`, m.payload, m.headers FROM @messagesOf"),

		// Due delayed messages get new sequence numbers, as if they were enqueued now. One session at a time moves
		// them: otherwise the later messages could be committed first.
		TryTurn: q(`SELECT slot FROM @outbox_locks WHERE slot = ? FOR UPDATE SKIP LOCKED`),
		Slots:   q(`SELECT count(*) FROM @outbox_locks WHERE slot = ?`),
		Due:     q(`SELECT not_before, seq FROM @outbox_delayed FORCE INDEX (PRIMARY) WHERE not_before <= @clock ORDER BY not_before, seq LIMIT ? FOR UPDATE SKIP LOCKED`),
		Come: q("INSERT INTO @outbox_messages (" + mysqlColumns + ")\n" +
			"SELECT d.shard, d.id, d.topic, d.`key`, d.key_hash, d.payload, d.headers, d.size, d.enqueued_at, d.not_before FROM @delayedOf ORDER BY d.not_before, d.seq"),
		Came: q(`DELETE d FROM @delayedOf`),

		// Locks those of the shards that the owner still has against takeovers and operations until the end of the
		// transaction.
		Own: q(`SELECT s.shard FROM @shardsOf WHERE s.token = r.token AND s.owner = UNHEX(?) FOR UPDATE`),

		// A row of the list is [shard, seq, -, -, -, -, -, id].
		Sent: q(`DELETE m FROM @messagesOf`),
		Keep: q("INSERT INTO @outbox_sent (sent_at, seq, id, topic, `key`, payload, headers, enqueued_at)\n" +
			"SELECT @clock, m.seq, m.id, m.topic, m.`key`, m.payload, m.headers, m.enqueued_at FROM @messagesOf"),

		// A row of the list is [shard, seq, attempts, error, delay, -, -, id]. Repeating it changes nothing, because
		// attempts are set, not incremented.
		Defer: q("UPDATE @messagesOf SET m.attempts = r.attempts, m.error = UNHEX(r.error), m.retry_at = IF(m.`key` IS NULL, @clock + r.delay, NULL),\n" +
			"	m.failed_at = IF(m.`key` IS NULL, @clock, NULL)"),
		// Assignments are evaluated from left to right, so the one to from_seq still sees the old value of until.
		Hold: q(`INSERT INTO @outbox_held (shard, key_hash, from_seq, until, set_at)
SELECT m.shard, m.key_hash, min(m.seq), @clock + max(r.delay), @clock FROM @messagesOf WHERE m.key_hash IS NOT NULL GROUP BY m.shard, m.key_hash
ON DUPLICATE KEY UPDATE
	set_at = IF(until > @clock AND (set_at > @clock) IS NOT TRUE, -VALUES(set_at), VALUES(set_at)),
	until = IF(set_at < 0 AND from_seq <= VALUES(from_seq), GREATEST(until, VALUES(until)), VALUES(until)),
	from_seq = IF(set_at < 0, LEAST(from_seq, VALUES(from_seq)), VALUES(from_seq)),
	set_at = ABS(set_at)`), // columns are set from left to right: a negative set_at marks a hold that was not over

		// TopicEnd returns the seq of the last row that DeferTopic and HoldTopic look at in a shard, or no row if that
		// is the shard's last one.
		TopicEnd: q(`SELECT seq FROM @outbox_messages FORCE INDEX (PRIMARY) WHERE shard = ? AND seq >= ? ORDER BY shard, seq LIMIT 1 OFFSET ?`),
		// DeferTopic and HoldTopic come after Defer and Hold, and leave alone what waits already. They hold back the
		// due messages of a topic in a shard, from a seq to TopicEnd: HoldTopic those with a key, by their key.
		DeferTopic: q("UPDATE @outbox_messages SET error = UNHEX(?), retry_at = @clock + ?, failed_at = @clock\n" +
			"WHERE shard = ? AND seq BETWEEN ? AND ? AND topic = ? AND `key` IS NULL AND (retry_at IS NULL OR retry_at <= @clock OR failed_at > @clock) ORDER BY shard, seq LIMIT ?"),
		HoldTopic: q(`INSERT INTO @outbox_held (shard, key_hash, from_seq, until, set_at)
SELECT t.shard, t.key_hash, min(t.seq), @clock + ?, @clock FROM (
	SELECT m.shard, m.key_hash, m.seq FROM @outbox_messages AS m FORCE INDEX (PRIMARY)
	WHERE m.shard = ? AND m.seq BETWEEN ? AND ? AND m.topic = ? AND m.key_hash IS NOT NULL AND ` + mysqlDue + ` ORDER BY m.seq LIMIT ?
) AS t GROUP BY t.shard, t.key_hash
ON DUPLICATE KEY UPDATE
	from_seq = IF(until > @clock AND (set_at > @clock) IS NOT TRUE, from_seq, VALUES(from_seq)),
	until = IF(until > @clock AND (set_at > @clock) IS NOT TRUE, until, VALUES(until)), set_at = VALUES(set_at)`),

		// A row of the list is [shard, seq, attempts, error, -, keep_order, -, id].
		Park: q("INSERT INTO @outbox_parked (seq, " + mysqlColumns + ", attempts, error, keep_order, parked_at)\n" +
			"SELECT m.seq, m.shard, m.id, m.topic, m.`key`, m.key_hash, m.payload, m.headers, m.size, m.enqueued_at, m.not_before, r.attempts, UNHEX(r.error), r.keep_order, @clock\n" +
			"FROM @messagesOf"),
		// The row in outbox_held marks a key that may have parked messages. Unhold deletes it.
		HoldParked: q(`INSERT INTO @outbox_held (shard, key_hash, from_seq)
SELECT DISTINCT p.shard, p.key_hash, r.seq FROM @parkedOfList WHERE p.key_hash IS NOT NULL AND p.keep_order <> 2
ON DUPLICATE KEY UPDATE from_seq = IF(until IS NULL, LEAST(from_seq, VALUES(from_seq)), from_seq)`),

		// Messages behind a parked one move to outbox_parked, if they are among the first of their shard. They are read
		// first and then moved.
		Followers: q(`SELECT followers.seq, followers.behind, (SELECT b.keep_order FROM @outbox_parked AS b WHERE b.seq = followers.behind) FROM (
	SELECT m.seq, (SELECT p.seq @parkedOfMessage ORDER BY p.seq LIMIT 1) AS behind
	FROM (SELECT shard, seq, key_hash FROM @outbox_messages FORCE INDEX (PRIMARY) WHERE shard = ? ORDER BY seq LIMIT ?) AS m
		STRAIGHT_JOIN @outbox_held AS h FORCE INDEX (PRIMARY) ON h.shard = m.shard AND h.key_hash = m.key_hash
) AS followers WHERE followers.behind IS NOT NULL ORDER BY followers.seq`),
		// A row of the list is [shard, seq, -, -, -, keep_order, behind].
		Follow: q("INSERT INTO @outbox_parked (seq, " + mysqlColumns +
			", attempts, error, behind, waiting, keep_order, parked_at)\n" +
			"SELECT m.seq, m.shard, m.id, m.topic, m.`key`, m.key_hash, m.payload, m.headers, m.size, m.enqueued_at, m.not_before, m.attempts,\n" +
			"	CONCAT('stands behind message ', r.behind, ' of its key'), r.behind, r.keep_order = 0, r.keep_order, @clock\n" +
			"FROM @messagesOf"),

		// Shards with keys that a parked message holds back.
		Behind: q(`SELECT DISTINCT h.shard FROM (SELECT * FROM JSON_TABLE(?, '$[*]' COLUMNS (shard SMALLINT PATH '$')) AS j) AS r
STRAIGHT_JOIN @outbox_held AS h FORCE INDEX (PRIMARY) ON h.shard = r.shard WHERE (SELECT 1 @parkedOfHeld LIMIT 1) IS NOT NULL`),
		// Whether Unhold, Bury or ForgetSent would change something.
		NeedsMaintenance: q(`SELECT (SELECT 1 FROM @outbox_held AS h WHERE @idle LIMIT 1) IS NOT NULL OR COALESCE((SELECT min(until) FROM @txonce_relays) <= @clock - ?, 0)
	OR COALESCE((SELECT min(sent_at) FROM @outbox_sent) <= @clock - ?, 0)`),
		// Rows of outbox_held that hold nothing are found, locked, checked again and deleted. A transaction that parks
		// a message writes the row of its key, so it commits either before the second check or after the end.
		Idle:      q(`SELECT h.shard, HEX(h.key_hash) FROM @outbox_held AS h WHERE @idle LIMIT ?`),
		LockHeld:  q(`SELECT h.shard, HEX(h.key_hash) FROM @heldOf FOR UPDATE SKIP LOCKED`),
		StillIdle: q(`SELECT h.shard, HEX(h.key_hash) FROM @heldOf WHERE @idle`),
		Unhold:    q(`DELETE h FROM @heldOf`),

		ForgetSent: q(`DELETE FROM @outbox_sent WHERE sent_at <= @clock - ? ORDER BY sent_at, seq LIMIT ?`),

		Parked: q("SELECT shard, seq, id, topic, `key`, payload, headers, enqueued_at, attempts, error, behind, waiting, parked_at\n" +
			`FROM @outbox_parked FORCE INDEX (PRIMARY) WHERE seq > ? AND (? OR topic = ?) AND (? OR key_hash = UNHEX(?))
	AND LOCATE(UNHEX(?), error) > 0 AND parked_at >= ? AND parked_at < ? ORDER BY seq LIMIT ?`),

		// The shards of parked messages are locked in order. Listed then returns those of the list that are parked,
		// with their keys.
		ShardsOf:   q(`SELECT DISTINCT p.shard FROM @parkedOfList ORDER BY p.shard`),
		LockShards: q(`SELECT s.shard FROM @shardsOf FOR UPDATE`),
		Listed:     q(`SELECT p.shard, p.seq, HEX(p.key_hash), p.waiting FROM @parkedOfList`),
		// Release also moves the messages that waited for an unparked one. Behead then records which message the others
		// wait for.
		Unpark: q("INSERT INTO @outbox_messages (seq, " + mysqlColumns + ")\n" +
			"SELECT p.seq, p.shard, p.id, p.topic, p.`key`, p.key_hash, p.payload, p.headers, p.size, p.enqueued_at, p.not_before FROM @parkedOfList WHERE p.waiting = 0"),
		Discard: q(`DELETE p FROM @parkedOfList`),
		First: q(`SELECT p.seq FROM @outbox_parked AS p FORCE INDEX (outbox_parked_key)
WHERE p.shard = ? AND p.key_hash = UNHEX(?) AND ` + mysqlStops + ` ORDER BY p.seq LIMIT 1`),
		Release: q("INSERT INTO @outbox_messages (seq, " + mysqlColumns + ", attempts)\n" +
			"SELECT p.seq, p.shard, p.id, p.topic, p.`key`, p.key_hash, p.payload, p.headers, p.size, p.enqueued_at, p.not_before, p.attempts\n" +
			`FROM @outbox_parked AS p FORCE INDEX (outbox_parked_key) WHERE p.shard = ? AND p.key_hash = UNHEX(?) AND p.waiting = 1 AND p.seq < ?`),
		Released: q(`DELETE p FROM @outbox_parked AS p FORCE INDEX (outbox_parked_key) WHERE p.shard = ? AND p.key_hash = UNHEX(?) AND p.waiting = 1 AND p.seq < ?`),
		Behead:   q(`UPDATE @outbox_parked AS p FORCE INDEX (outbox_parked_key) SET p.behind = ? WHERE p.shard = ? AND p.key_hash = UNHEX(?) AND p.waiting = 1`),

		Clock: q(`SELECT @clock, (SELECT count(*) FROM @outbox_held AS h WHERE NOT (@idle))`),
		// See SQLiteOutbox.Count. One per shard, joined with CountOthers by UNION ALL. The error is cut to 255
		// characters: with a whole BLOB the server would sort each of them on disk.
		CountShard: q(`(SELECT 0, s.shard, m.topic, 0, count(*), min(m.due), count(m.error), min(m.error), min(m.seq),
	(SELECT seq FROM @outbox_messages FORCE INDEX (PRIMARY) WHERE shard = s.shard ORDER BY seq LIMIT 1 OFFSET {counted}) AS next,
	(SELECT max(seq) FROM @outbox_messages FORCE INDEX (PRIMARY) WHERE shard = s.shard) AS last
FROM (SELECT {shard} AS shard) AS s
	CROSS JOIN (SELECT topic, COALESCE(not_before, enqueued_at) AS due, LEFT(error, 255) AS error, seq FROM @outbox_messages FORCE INDEX (PRIMARY) WHERE shard = {shard} ORDER BY seq LIMIT {counted}) AS m
GROUP BY s.shard, m.topic)`),
		// For parked messages the lowest seq is used in place of the earliest due time: reading all of them would read
		// their payloads.
		CountOthers: q(`(SELECT 1, 0, topic, not_before <= @clock AS due, count(*), min(not_before), 0, NULL, 0, NULL, 0
FROM @outbox_delayed FORCE INDEX (outbox_delayed_topic) GROUP BY topic, due)
UNION ALL (SELECT 2, 0, t.topic, t.waiting, t.n, (SELECT COALESCE(p.not_before, p.enqueued_at) FROM @outbox_parked AS p FORCE INDEX (PRIMARY) WHERE p.seq = t.first), 0, NULL, 0, NULL, 0
FROM (SELECT topic, waiting, count(*) AS n, min(seq) AS first FROM @outbox_parked FORCE INDEX (outbox_parked_topic) GROUP BY topic, waiting) AS t)`),
		Relays: q(`SELECT r.name, r.until, (SELECT count(*) FROM @txonce_shards AS s WHERE s.owner = r.owner)
FROM @txonce_relays AS r WHERE r.until > @clock ORDER BY r.name, r.until`),
	}
}
