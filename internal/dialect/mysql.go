package dialect

import "strings"

// MySQL holds the statements for MySQL 8.0 and MariaDB 10.6 and later, in the order of a message's life. Keys and
// tokens are passed as hexadecimal digits, lists of keys as one JSON text. Times are microseconds since 1970 UTC, so
// they depend neither on the session's time zone nor on the driver's settings.
//
// Lists are joined key by key with STRAIGHT_JOIN and FORCE INDEX. For IN (…) the optimizer may choose a scan of the
// whole table, and a locking scan waits for unrelated rows.
type MySQL struct {
	// Sessions.
	Describe, Locate, Mark, Proof, ProofAndMark, LimitWait, RestoreWait, Autocommit, Server string
	// Claiming.
	Claim, ClaimRow, ClaimAgain, Claimed, ClaimedOne string
	Forgotten, Windows, Existing, Touch              string
	Forget, SaveResult, Lookup, Stands, Newer        string
	SeenKeys, FreeKeys, Holder, HolderMariaDB        string
	// Windows and checks.
	LockSources, Sources, AddSource                                                     string
	UseWindow, WindowUse, SchemaVersion, SchemaTables, Settings, Tables, Columns, Texts string
	// Dead letters. DeadLetters is completed by Operator.Choose; its last parameter is a limit.
	Park, TakeDeadLetter, DeadLetters, SettledLetters, LockLetters, StillSettled, DropLetters string
	// Sweeping.
	SweepLease, SweepLook, SweepWait, SweepExpired, SweepEnd, SweepLock, SweepDelete, SweepDone, SweepRows string
}

// MySQLClock is the database's clock at the beginning of the statement.
const MySQLClock = `TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))`

// mysqlKeys is a list of keys in one parameter. MySQL takes no locks on a JSON_TABLE itself (error 3569), only on what
// is selected from one.
const mysqlKeys = `(SELECT * FROM JSON_TABLE(?, '$[*]' COLUMNS (k CHAR(32) CHARACTER SET latin1 PATH '$')) AS j) AS r`

const (
	mysqlByKey = `FROM ` + mysqlKeys + ` STRAIGHT_JOIN @processed_messages AS p FORCE INDEX (PRIMARY) ON p.` +
		"`key`" + ` = UNHEX(r.k)`
	mysqlByID    = `FROM ` + mysqlKeys + ` STRAIGHT_JOIN @dead_letters AS d FORCE INDEX (PRIMARY) ON d.id = UNHEX(r.k)`
	mysqlLetters = `FROM @dead_letters AS d STRAIGHT_JOIN @processed_messages AS p FORCE INDEX (PRIMARY) ON p.` +
		"`key` = d.`key`"

	// The transaction that a session waits for. MySQL's tables of information_schema cannot be read while any session
	// runs a statement with bytes that are not UTF-8 (error 3854), so its performance_schema answers.
	mysqlHolder = `t.processlist_id, COALESCE(CAST(e.timer_wait DIV 1000000 AS SIGNED), 0), @clock,
	CASE WHEN t.processlist_command IS NULL THEN '' WHEN t.processlist_command = 'Sleep' THEN 'idle in transaction' ELSE 'active' END,
	COALESCE(CONCAT(t.processlist_host, ' ', t.processlist_user), '')
FROM performance_schema.data_lock_waits AS w
JOIN performance_schema.threads AS r ON r.thread_id = w.requesting_thread_id
JOIN performance_schema.threads AS t ON t.thread_id = w.blocking_thread_id
LEFT JOIN performance_schema.events_transactions_current AS e ON e.thread_id = t.thread_id AND e.state = 'ACTIVE'
WHERE r.processlist_id = ? ORDER BY e.timer_wait DESC LIMIT 1`

	// MariaDB writes the transaction's beginning in whole seconds of its own time zone.
	mariaDBHolder = `b.trx_mysql_thread_id, TIMESTAMPDIFF(MICROSECOND, b.trx_started, CONVERT_TZ(NOW(6), @@time_zone, 'SYSTEM')), @clock,
	CASE WHEN p.command IS NULL THEN '' WHEN p.command = 'Sleep' THEN 'idle in transaction' ELSE 'active' END, COALESCE(CONCAT(p.host, ' ', p.user), '')
FROM information_schema.innodb_lock_waits AS w
JOIN information_schema.innodb_trx AS r ON r.trx_id = w.requesting_trx_id
JOIN information_schema.innodb_trx AS b ON b.trx_id = w.blocking_trx_id
LEFT JOIN information_schema.processlist AS p ON p.id = b.trx_mysql_thread_id
WHERE r.trx_mysql_thread_id = ? ORDER BY b.trx_started LIMIT 1`

	mysqlSweep = `SELECT owner, lease_until, next_key, forgotten_until, @clock FROM @txonce_sweep`
)

// MySQLNames returns a function that inserts the schema before every table name in a statement. Statements mark table
// names with a leading @. An empty schema means the session's own database.
func MySQLNames(schema string) func(sql string) string {
	prefix := ""
	if schema != "" {
		prefix = "`" + strings.ReplaceAll(schema, "`", "``") + "`."
	}
	return strings.NewReplacer("@@", "@@", "@txonce_was_", "@txonce_was_", "@clock", MySQLClock, "@", prefix).Replace
}

// NewMySQL returns the statements for tables in the database schema.
func NewMySQL(schema string) MySQL {
	q := MySQLNames(schema)
	return MySQL{
		Describe: `SELECT version(), @@version_comment`,

		// The database in the DSN, read on a connection whose session has not been changed.
		Locate: `SELECT COALESCE(DATABASE(), '')`,

		// A savepoint ends with its transaction, so releasing it proves that the transaction still runs. It is gone
		// after COMMIT and ROLLBACK, after a deadlock, which rolls everything back, and after DDL, which commits.
		Mark:  `SAVEPOINT txonce_claimed`,
		Proof: `RELEASE SAVEPOINT txonce_claimed`,

		// MariaDB executes both in one statement.
		ProofAndMark: `BEGIN NOT ATOMIC RELEASE SAVEPOINT txonce_claimed; SAVEPOINT txonce_claimed; END`,

		// For servers without SET STATEMENT … FOR.
		LimitWait:   `SET @txonce_was_lock_wait = @@innodb_lock_wait_timeout, innodb_lock_wait_timeout = `,
		Server:      `SELECT ` + MySQLHistory,
		Autocommit:  `SELECT @@autocommit`,
		RestoreWait: `SET innodb_lock_wait_timeout = @txonce_was_lock_wait`,

		// A claim is Claim, then ClaimRow once per row, with commas between, then ClaimAgain. It waits for a
		// transaction that holds the key. It also locks an existing row, so that the row cannot vanish before it is
		// read. The number of affected rows depends on the driver's settings, and an update without change can look
		// like an insert, so only the token tells whether the row is new. The parameters of ClaimRow are key, token,
		// time, window, fingerprint, consumer, tenant, id.
		Claim:      q("INSERT INTO @processed_messages (`key`, token, expires_at, fingerprint, consumer, tenant, id) VALUES "),
		ClaimRow:   q(`(UNHEX(?), UNHEX(?), GREATEST(@clock, ?) + ?, ?, ?, ?, ?)`),
		ClaimAgain: " ON DUPLICATE KEY UPDATE `key` = `key`",

		// Locking reads return the latest version of a row, even if the transaction's snapshot is older.
		Claimed:    q("SELECT p.`key`, p.token, @clock, " + MySQLHistory + " " + mysqlByKey + ` FOR UPDATE`),
		ClaimedOne: q("SELECT `key`, token, @clock, " + MySQLHistory + " AS history FROM @processed_messages WHERE `key` = UNHEX(?) FOR UPDATE"),

		// The horizon is read after the claim. If the transaction's snapshot may be older than the claim, it is read on
		// another connection.
		Forgotten: q(`SELECT forgotten_until FROM @txonce_sweep`),

		Windows: q(`SELECT window_seconds, first_run, used_until FROM @txonce_windows WHERE consumer = ?`),

		Existing: q("SELECT p.`key`, p.fingerprint, p.expires_at, p.result, p.consumer, p.tenant, p.id " + mysqlByKey +
			` FOR UPDATE`),

		// A duplicate writes nothing, so its COMMIT does not wait for a replica, although the commit of the first copy
		// may not have reached one. Writing a new token into the row makes it wait. No other transaction still needs
		// the old token.
		Touch: q(`UPDATE ` + strings.TrimPrefix(mysqlByKey, "FROM ") + ` SET p.token = UNHEX(?)`),

		Forget: q(`DELETE p ` + mysqlByKey),

		// SeenKeys, at READ UNCOMMITTED, also returns rows that are not committed yet. FreeKeys leaves out rows that
		// others have locked.
		SeenKeys: q("SELECT p.`key` " + mysqlByKey),
		FreeKeys: q("SELECT p.`key` " + mysqlByKey + ` FOR UPDATE SKIP LOCKED`),

		Holder:        q(`SELECT ` + mysqlHolder),
		HolderMariaDB: q(`SELECT ` + mariaDBHolder),

		// The first row marks that of a newer version by NULL, and the second one removes the mark. Assignments run
		// from left to right.
		Newer: q(`INSERT INTO @entity_versions (object, version, changed_at) VALUES (?, ?, NULL), (?, ?, @clock)
ON DUPLICATE KEY UPDATE changed_at = IF(VALUES(changed_at) IS NULL AND VALUES(version) > version, NULL, COALESCE(changed_at, VALUES(changed_at))),
	version = GREATEST(version, VALUES(version))`),

		SaveResult: q("UPDATE @processed_messages SET result = ? WHERE `key` = UNHEX(?)"),

		Lookup: q("SELECT `key`, fingerprint, expires_at, result, consumer, tenant, id FROM @processed_messages WHERE `key` = UNHEX(?)"),

		// The row with an empty source is locked first, so that processes that start together compare their sources one
		// after another.
		LockSources: q(`INSERT INTO @txonce_sources (consumer, source, first_run) VALUES (?, '', @clock)
ON DUPLICATE KEY UPDATE first_run = first_run`),
		Sources:   q(`SELECT source FROM @txonce_sources WHERE consumer = ? AND source <> '' ORDER BY first_run, source`),
		AddSource: q(`INSERT INTO @txonce_sources (consumer, source, first_run) VALUES (?, ?, @clock)`),
		Stands:    q("SELECT count(*) FROM @processed_messages WHERE `key` = UNHEX(?) AND token = UNHEX(?)"),

		UseWindow: q(`INSERT INTO @txonce_windows (consumer, window_seconds, first_run, used_until) VALUES (?, ?, @clock, @clock + ?)
ON DUPLICATE KEY UPDATE used_until = GREATEST(used_until, VALUES(used_until)), first_run = LEAST(first_run, VALUES(first_run))`),
		WindowUse: q(`SELECT used_until FROM @txonce_windows WHERE consumer = ? AND window_seconds = ?`),

		SchemaVersion: q(`SELECT coalesce(max(version), 0), coalesce(max(works_with), 0) FROM @txonce_schema`),
		SchemaTables:  q(`SELECT count(*) FROM @processed_messages, @txonce_windows, @txonce_sources, @txonce_sweep, @dead_letters, @entity_versions, @source_positions WHERE 1 = 0`),

		// The names differ between servers and versions. SHOW leaves out the ones that the server does not know.
		Settings: `SHOW SESSION VARIABLES WHERE Variable_name IN ('autocommit', 'binlog_format', 'character_set_client',
	'character_set_connection', 'character_set_results', 'innodb_flush_log_at_trx_commit', 'log_bin', 'max_allowed_packet', 'read_only',
	'rpl_semi_sync_master_enabled', 'rpl_semi_sync_master_wait_point', 'rpl_semi_sync_source_enabled', 'rpl_semi_sync_source_wait_point',
	'sql_auto_is_null', 'sql_big_selects', 'sql_mode', 'sql_safe_updates', 'super_read_only', 'sync_binlog', 'transaction_read_only', 'tx_read_only')`,

		Tables: `SELECT table_name, engine FROM information_schema.tables WHERE table_schema = COALESCE(?, DATABASE())
	AND (table_name IN ('processed_messages', 'dead_letters', 'entity_versions', 'source_positions') OR table_name LIKE 'txonce\_%' OR table_name LIKE 'outbox\_%')
	AND table_type = 'BASE TABLE' AND engine <> 'InnoDB' ORDER BY table_name`,

		Columns: `SELECT table_name, column_name, column_type, collation_name FROM information_schema.columns
WHERE table_schema = COALESCE(?, DATABASE()) AND collation_name IS NOT NULL AND ((table_name, column_name) IN
	(('processed_messages', 'key'), ('processed_messages', 'token'), ('dead_letters', 'id'), ('dead_letters', 'key'), ('txonce_windows', 'consumer'), ('txonce_sources', 'consumer'), ('entity_versions', 'object'),
	('source_positions', 'consumer'), ('source_positions', 'source')))
ORDER BY table_name, column_name`,

		Texts: `SELECT table_name, column_name, character_set_name FROM information_schema.columns
WHERE table_schema = COALESCE(?, DATABASE()) AND character_set_name <> 'utf8mb4'
	AND (table_name IN ('processed_messages', 'dead_letters', 'entity_versions', 'source_positions') OR table_name LIKE 'txonce\_%' OR table_name LIKE 'outbox\_%')
ORDER BY table_name, column_name`,

		Park: q("INSERT INTO @dead_letters (id, `key`, consumer, tenant, message_id, fingerprint, window_seconds, message_time," + `
	cause, error, topic, ordering_key, position, payload, headers, attempts, first_parked, last_parked)
VALUES (UNHEX(?), UNHEX(?), ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, @clock, @clock)
ON DUPLICATE KEY UPDATE times = times + 1, last_parked = VALUES(last_parked), cause = VALUES(cause), error = VALUES(error),
	attempts = VALUES(attempts), position = VALUES(position), headers = VALUES(headers), message_time = VALUES(message_time),
	window_seconds = VALUES(window_seconds), fingerprint = VALUES(fingerprint),
	payload = IF(LENGTH(VALUES(payload)) > LENGTH(payload), VALUES(payload), payload)`), // one of them may be shortened

		TakeDeadLetter: q(`DELETE FROM @dead_letters WHERE id = UNHEX(?) AND cause = ?`),

		// The letters are chosen in the index, which has the columns of the most used conditions.
		DeadLetters: q(`SELECT d.id, d.consumer, d.tenant, d.message_id, d.fingerprint, d.window_seconds, d.message_time, d.cause, d.error,
	d.topic, d.ordering_key, d.position, d.payload, d.headers, d.attempts, d.times, d.first_parked, d.last_parked,
	` + settled + ` AS settled
FROM (SELECT d.id FROM @dead_letters AS d{index} WHERE {where} ORDER BY d.first_parked DESC, d.id DESC LIMIT ?) AS chosen
	STRAIGHT_JOIN @dead_letters AS d FORCE INDEX (PRIMARY) ON d.id = chosen.id
	LEFT JOIN @processed_messages AS p ON p.` + "`key` = d.`key`" + `
ORDER BY d.first_parked DESC, d.id DESC`),

		// Settled dead letters are found, locked, checked again and deleted. A single statement for this would wait for
		// the claims that it joins.
		SettledLetters: q(`SELECT d.id ` + mysqlLetters + ` WHERE ` + settled + ` LIMIT ?`),
		LockLetters:    q(`SELECT d.id ` + mysqlByID + ` FOR UPDATE SKIP LOCKED`),
		StillSettled: q(`SELECT d.id ` + mysqlByID + ` STRAIGHT_JOIN @processed_messages AS p FORCE INDEX (PRIMARY) ON p.` + "`key` = d.`key`" + `
WHERE ` + settled),
		DropLetters: q(`DELETE d ` + mysqlByID),

		// The row stays locked until COMMIT, so there is never a second sweep. SweepWait is for the owner of the lease:
		// it waits for other sweepers, which lock the row only to read the lease.
		SweepLease: q(mysqlSweep + ` FOR UPDATE SKIP LOCKED`),
		SweepLook:  q(mysqlSweep),
		SweepWait:  q(mysqlSweep + ` FOR UPDATE`),

		// There is no index on expires_at. The next part of the table is read in the order of its key, without locks.
		// Then the expired rows are locked and deleted. Rows that a handler holds are left for the next pass.
		SweepExpired: q("SELECT `key`, expires_at FROM (SELECT `key`, expires_at FROM @processed_messages WHERE `key` > UNHEX(?) ORDER BY `key` LIMIT ?) AS part\n" +
			"WHERE expires_at <= ? ORDER BY `key` LIMIT ?"),
		SweepEnd: q("SELECT count(*), max(`key`) FROM (SELECT `key` FROM @processed_messages WHERE `key` > UNHEX(?) ORDER BY `key` LIMIT ?) AS part"),
		SweepLock: q("SELECT p.`key`, p.expires_at " + mysqlByKey +
			` WHERE p.expires_at <= ? FOR UPDATE SKIP LOCKED`),
		SweepDelete: q(`DELETE p ` + mysqlByKey),
		SweepRows:   q("SELECT p.`key`, p.fingerprint, p.expires_at, p.result, p.consumer, p.tenant, p.id " + mysqlByKey),

		SweepDone: q(`UPDATE @txonce_sweep SET owner = ?, lease_until = ?, next_key = UNHEX(?), forgotten_until = ?`),
	}
}
