package dialect

import (
	"fmt"
	"strings"
)

// Operator holds the statements for operators: status, actions and their results. They are the same on all databases but for a few
// functions. IDs are passed and read as 32 hexadecimal digits, times as microseconds since 1970 UTC; 0 or NULL: none.
type Operator struct {
	// Status.
	State, Windows, Sources, NextOwner, Letters, WaitingActions, Waiting string
	// Letters that are listed. LetterTime is completed by Choose.
	LetterTime     string
	WaitingLetters func(n int) string // which of n letters wait
	// Old transactions of the database's clients, the oldest first; empty: the database does not tell.
	OldTransactions string
	// Limits begins a transaction that writes; empty: there are no settings.
	Limits string
	// Actions. MarkLetters is completed by Choose.
	AddAction, MarkLetters, Actions, Counts, Count, Results, ResultsOf, EndAction, Unmark string
	// Replays.
	OpenReplays, RepairPayload, LockAction, Failures, NextLetter, FreeAt, TakeLetter, NextTurn, Settle, Fail, Release, AddResult, Discards string
	// Sweeping.
	PassEnded string
	// Activity.
	AddActivity, Activity, ForgetActivity string
	// Keys.
	KeyOfClaim, KeyOfLetter, ClaimsAfter, LetterKeys string
	ClaimedKeys                                      func(n int) string // the claims of n keys
	// The outbox.
	OutboxTopics, OutboxIDs string
	// Audits.
	AddAudit, ForgetAudit string

	letters letters
}

// functions are what the databases call by different names.
type functions struct {
	now      string                  // the clock, in the type of a time column
	time     func(col string) string // the column of a time as microseconds, 0 for NULL
	after    func(micros string) string
	key      string                  // a parameter that is an ID
	id       func(col string) string // the column of an ID as digits
	text     func(param string) string
	equal    func(col string) string // the column of a text is the parameter, byte by byte; no index is used
	indexed  func(col string) string // the same with an index
	contains func(col string) string // the parameter is a part of the column of a text
	name     string                  // a parameter that is a consumer, as the index of dead letters compares it
	byOwner  string                  // hint: use the index of dead letters
	among    func(col string) string // whether a column is one of the texts of a parameter that is a JSON array
	since    string                  // a parameter that is a time
	rows     string                  // an estimate of the rows of processed_messages
	number   string                  // a parameter that is a whole number
	double   string
	limit    string // a parameter of LIMIT
	lock     string
	free     string // locks a row, and leaves out rows that others have locked
	limits   string // the first statement of a transaction
	greatest string
	micros   func(seconds string) string // a number of seconds as a difference of times
	replaced string                      // what follows an INSERT into consumer_activity whose key is there
	old      string                      // OldTransactions
	names    func(sql string) string     // replaces @ before the names of tables
	numbered func(sql string) string     // replaces each ? by the database's parameter
}

// lost is what each worker that takes a letter adds to the letter's number, and subtracts when it returns it: 2 to the power of 32. So letters
// whose workers ended are taken after the others, and their number tells how many workers ended.
const lost = `4294967296`

func newOperator(f functions) Operator {
	q := func(sql string) string { return f.numbered(f.names(sql)) }
	open := `NOT EXISTS (SELECT 1 FROM @operator_results o WHERE o.letter = d.id AND o.outcome = '')`
	return Operator{
		State: q(`SELECT ` + f.time(f.now) + `, ` + f.time("s.forgotten_until") + `, COALESCE(s.owner, ''), ` + f.time("s.lease_until") + `, ` +
			f.time("p.ended_at") + `, (SELECT max(version) FROM @txonce_schema), ` + f.rows + ` FROM @txonce_sweep s CROSS JOIN @txonce_passes p`),
		Windows: q(`SELECT consumer, window_seconds, ` + f.time("first_run") + `, ` + f.time("used_until") + ` FROM @txonce_windows ORDER BY consumer, window_seconds`),
		Sources: q(`SELECT consumer, source, ` + f.time("first_run") + ` FROM @txonce_sources WHERE source <> '' ORDER BY consumer, first_run, source`),
		// The first consumer with dead letters after a name. Few consumers may have many letters, so the index is not read from end to end.
		NextOwner: q(`SELECT d.consumer FROM @dead_letters AS d` + f.byOwner + ` WHERE d.consumer > ` + f.name + ` ORDER BY d.consumer LIMIT 1`),
		// Each consumer's letters are counted up to a limit, newest first.
		Letters: q(`SELECT reason, count(*), ` + f.time("min(first_parked)") + `, ` + f.time("max(last_parked)") + ` FROM (
	SELECT d.reason, d.first_parked, d.last_parked FROM @dead_letters AS d` + f.byOwner + ` WHERE d.consumer = ` + f.name + ` ORDER BY d.first_parked DESC LIMIT ` + f.limit + `) AS part
GROUP BY reason ORDER BY 2 DESC, 1`),
		LetterTime: f.names(`SELECT ` + f.time("d.first_parked") + ` FROM @dead_letters AS d{index} WHERE {where} ORDER BY d.first_parked DESC, d.id DESC LIMIT 1 OFFSET ` + f.limit),
		WaitingLetters: func(n int) string {
			return q(`SELECT ` + f.id("letter") + ` FROM @operator_results WHERE outcome = '' AND letter IN (` + list(f.key, n) + `)`)
		},
		WaitingActions: q(`SELECT ` + f.id("id") + `, consumer FROM @operator_actions WHERE ended_at IS NULL AND kind IN ('replay', 'repair')`),
		Waiting:        q(`SELECT count(*) FROM (SELECT 1 FROM @operator_results WHERE action = ` + f.key + ` AND outcome = '' LIMIT ` + f.limit + `) AS part`),

		Limits: f.limits,

		AddAction: q(`INSERT INTO @operator_actions (id, kind, consumer, who, reason, filter, new_key, as_new, rate, max_failures, requested_at, next_at, ended_at, note, counts)
SELECT ` + f.key + `, ` + f.text("?") + `, ` + f.text("?") + `, ` + f.text("?") + `, ` + f.text("?") + `, ` + f.text("?") + `, ` + f.text("?") + `,
	` + f.number + ` <> 0, ` + f.double + `, ` + f.number + `, ` + f.now + `, ` + f.now + `, CASE WHEN ` + f.number + ` <> 0 THEN ` + f.now + ` END, ` + f.text("?") + `, ''`),
		// A letter that another action has marked is left out.
		MarkLetters: f.names(`INSERT INTO @operator_results (action, letter, number, outcome, cause, error, tries, taken_until, at)
SELECT ` + f.key + `, m.id, row_number() OVER (ORDER BY m.first_parked, m.id), '', '', '', 0, ` + f.now + `, ` + f.now + ` FROM (
	SELECT d.id, d.first_parked FROM @dead_letters AS d{index} WHERE {where} AND ` + open + ` ORDER BY d.first_parked, d.id LIMIT ` + f.limit + `) AS m`),
		Actions: q(`SELECT ` + f.id("a.id") + `, a.kind, a.consumer, a.who, a.reason, a.filter, a.new_key, CASE WHEN a.as_new THEN 1 ELSE 0 END, a.rate, a.max_failures,
	` + f.time("a.requested_at") + `, ` + f.time("a.ended_at") + `, CASE WHEN a.kind = 'repair' AND a.ended_at IS NULL THEN '' ELSE a.note END, a.counts FROM @operator_actions a
WHERE (` + f.key + ` IS NULL OR a.id = ` + f.key + `) AND (` + f.text("?") + ` = '' OR a.consumer = ` + f.text("?") + `) AND (` + f.text("?") + ` = '' OR a.kind = ` + f.text("?") + `)
	AND (` + f.number + ` = 0 OR a.ended_at IS NULL) AND (` + f.number + ` = 0 OR a.requested_at < ` + f.since + `)
ORDER BY a.requested_at DESC, a.id DESC LIMIT ` + f.limit),
		Count:  q(`UPDATE @operator_actions SET counts = ` + f.text("?") + ` WHERE id = ` + f.key),
		Counts: q(`SELECT outcome, count(*) FROM @operator_results WHERE action = ` + f.key + ` GROUP BY outcome`),
		Results: q(`SELECT ` + f.id("letter") + `, outcome, cause, error, ` + f.time("at") + `, tries FROM @operator_results
WHERE action = ` + f.key + ` ORDER BY at DESC, number DESC LIMIT ` + f.limit),
		// The results with one outcome, in the order of an index: there may be very many.
		ResultsOf: q(`SELECT ` + f.id("letter") + `, outcome, cause, error, ` + f.time("at") + `, tries FROM @operator_results
WHERE action = ` + f.key + ` AND outcome = ` + f.text("?") + ` ORDER BY number DESC LIMIT ` + f.limit),
		EndAction: q(`UPDATE @operator_actions SET ended_at = ` + f.now + `, note = ` + f.text("?") + ` WHERE id = ` + f.key + ` AND ended_at IS NULL`),
		Unmark:    q(`UPDATE @operator_results SET outcome = ` + f.text("?") + `, at = ` + f.now + ` WHERE action = ` + f.key + ` AND outcome = ''`),

		OpenReplays: q(`SELECT ` + f.id("id") + `, new_key, CASE WHEN as_new THEN 1 ELSE 0 END, rate, max_failures,
	CASE WHEN kind = 'repair' THEN 1 ELSE 0 END FROM @operator_actions
WHERE consumer = ` + f.text("?") + ` AND kind IN ('replay', 'repair') AND ended_at IS NULL ORDER BY CASE WHEN next_at > ` + f.now + ` THEN 1 ELSE 0 END, requested_at, id LIMIT 100`),
		RepairPayload: q(`SELECT note FROM @operator_actions WHERE id = ` + f.key + ` AND ended_at IS NULL`),
		LockAction:    q(`SELECT ` + f.time("next_at") + ` - ` + f.time(f.now) + ` FROM @operator_actions WHERE id = ` + f.key + ` AND ended_at IS NULL` + f.lock),
		Failures:      q(`SELECT count(*) FROM @operator_results WHERE action = ` + f.key + ` AND outcome = 'parked'`),
		NextLetter: q(`SELECT ` + f.id("letter") + `, tries, number >> 32 FROM @operator_results WHERE action = ` + f.key + ` AND outcome = '' AND taken_until <= ` + f.now + `
ORDER BY number LIMIT 1` + f.free),
		FreeAt:     q(`SELECT count(*), COALESCE(min(` + f.time("taken_until") + `), 0) - ` + f.time(f.now) + ` FROM @operator_results WHERE action = ` + f.key + ` AND outcome = ''`),
		TakeLetter: q(`UPDATE @operator_results SET tries = tries + 1, number = number + ` + lost + `, taken_until = ` + f.after(f.number) + ` WHERE action = ` + f.key + ` AND letter = ` + f.key + ` AND outcome = ''`),
		NextTurn:   q(`UPDATE @operator_actions SET next_at = ` + f.greatest + `(next_at, ` + f.now + `) + ` + f.micros(f.number) + ` WHERE id = ` + f.key),
		Settle:     q(`UPDATE @operator_results SET outcome = ` + f.text("?") + `, at = ` + f.now + ` WHERE action = ` + f.key + ` AND letter = ` + f.key + ` AND outcome = ''`),
		Fail: q(`UPDATE @operator_results SET outcome = ` + f.text("?") + `, cause = ` + f.text("?") + `, error = ` + f.text("?") + `, at = ` + f.now + `
WHERE action = ` + f.key + ` AND letter = ` + f.key + ` AND outcome = ''`),
		Release: q(`UPDATE @operator_results SET number = number - ` + lost + `, taken_until = ` + f.after(f.number) + ` WHERE action = ` + f.key + ` AND letter = ` + f.key + ` AND outcome = ''`),
		AddResult: q(`INSERT INTO @operator_results (action, letter, number, outcome, cause, error, tries, taken_until, at, claim_key, claimed)
VALUES (` + f.key + `, ` + f.key + `, 0, ` + f.text("?") + `, '', '', 1, ` + f.now + `, ` + f.now + `, ` + f.key + `, ` + f.number + ` <> 0)`),
		Discards: q(`SELECT ` + f.id("r.action") + `, ` + f.id("r.letter") + `, a.who, a.reason, ` + f.time("r.at") + `, CASE WHEN r.claimed THEN 1 ELSE 0 END
FROM @operator_results r JOIN @operator_actions a ON a.id = r.action WHERE r.claim_key = ` + f.key + ` ORDER BY r.at DESC LIMIT ` + f.limit),

		PassEnded: q(`UPDATE @txonce_passes SET ended_at = ` + f.now),

		OldTransactions: f.old,

		AddActivity: q(`INSERT INTO @consumer_activity (minute, consumer, node, counts)
VALUES (` + f.number + `, ` + f.text("?") + `, ` + f.text("?") + `, ` + f.text("?") + `) ` + f.replaced),
		Activity:       q(`SELECT minute, consumer, node, counts FROM @consumer_activity WHERE minute >= ` + f.number + ` ORDER BY minute, consumer, node`),
		ForgetActivity: q(`DELETE FROM @consumer_activity WHERE minute < ` + f.number),

		KeyOfClaim:  q(`SELECT p.consumer, p.tenant, p.id FROM @processed_messages AS p WHERE p.key = ` + f.key),
		KeyOfLetter: q(`SELECT d.consumer, d.tenant, d.message_id FROM @dead_letters AS d WHERE d.key = ` + f.key + ` LIMIT 1`),
		ClaimsAfter: q(`SELECT ` + f.id("p.key") + `, p.consumer, p.tenant, p.id FROM @processed_messages AS p WHERE p.key > ` + f.key + ` ORDER BY p.key LIMIT ` + f.limit),
		LetterKeys:  q(`SELECT d.consumer, d.tenant, d.message_id FROM @dead_letters AS d WHERE d.message_id IS NOT NULL`),
		ClaimedKeys: func(n int) string {
			return q(`SELECT ` + f.id("p.key") + `, p.fingerprint FROM @processed_messages AS p WHERE p.key IN (` + list(f.key, n) + `)`)
		},

		OutboxTopics: q(`SELECT topic FROM @outbox_messages UNION SELECT topic FROM @outbox_delayed UNION SELECT topic FROM @outbox_parked UNION SELECT topic FROM @outbox_sent`),
		// A single statement sees a message in one of the tables, also while it moves to another one.
		OutboxIDs: q(outboxIDs(f, "pending", "@outbox_messages") + ` UNION ALL ` + outboxIDs(f, "delayed", "@outbox_delayed") + ` UNION ALL ` +
			outboxIDs(f, "parked", "@outbox_parked") + ` UNION ALL ` + outboxIDs(f, "sent", "@outbox_sent")),

		AddAudit: q(`INSERT INTO @audit_ledger (claim_key, consumer, position, expires_at)
VALUES (` + f.key + `, ` + f.text("?") + `, ` + f.text("?") + `, ` + f.after(f.number) + `)`),
		// MySQL knows no LIMIT directly in IN (…).
		ForgetAudit: q(`DELETE FROM @audit_ledger WHERE id IN (SELECT id FROM (
	SELECT id FROM @audit_ledger WHERE expires_at <= ` + f.now + ` ORDER BY expires_at LIMIT ` + f.limit + `) AS expired)`),
		letters: newLetters(&f),
	}
}

// outboxIDs finds the messages of a topic that have one of many IDs. There is no index on the IDs, so it scans a table.
func outboxIDs(f functions, state, table string) string {
	return `SELECT '` + state + `', id FROM ` + table + ` WHERE topic = ` + f.text("?") + ` AND ` + f.among("id")
}

// list returns n parameters.
func list(param string, n int) string { return strings.Repeat(param+", ", n-1) + param }

// NewPostgresOperator returns the statements for tables in schema. Empty means those that search_path finds.
func NewPostgresOperator(schema string) Operator {
	const number = `CAST(? AS bigint)`
	return newOperator(functions{
		now: `clock_timestamp()`,
		time: func(col string) string {
			return `COALESCE(CAST(extract(epoch FROM ` + col + `) * 1000000 AS bigint), 0)`
		},
		after:    func(micros string) string { return `clock_timestamp() + ` + micros + ` * interval '1 microsecond'` },
		key:      `CAST(? AS uuid)`,
		id:       func(col string) string { return `replace(CAST(` + col + ` AS text), '-', '')` },
		text:     func(param string) string { return `CAST(` + param + ` AS text)` },
		equal:    func(col string) string { return col + ` = CAST(? AS text)` }, // the planner chooses well
		indexed:  func(col string) string { return col + ` = CAST(? AS text)` },
		contains: func(col string) string { return `strpos(` + col + `, CAST(? AS text)) > 0` },
		// IS TRUE keeps the planner from a join, so that the texts are hashed whatever the settings. A list of parameters would be compared one by one.
		among: func(col string) string {
			return `(` + col + ` IN (SELECT json_array_elements_text(CAST(CAST(? AS text) AS json)))) IS TRUE`
		},
		name:   `CAST(? AS text)`,
		since:  `timestamptz 'epoch' + ` + number + ` * interval '1 microsecond'`,
		rows:   `(SELECT CAST(reltuples AS bigint) FROM pg_catalog.pg_class WHERE oid = CAST('@processed_messages' AS regclass))`,
		number: number,
		double: `CAST(? AS float8)`,
		limit:  number,
		lock:   ` FOR UPDATE`,
		free:   ` FOR UPDATE SKIP LOCKED`,
		// They release the locks of a process that freezes in the middle of a transaction.
		limits:   `SELECT set_config('lock_timeout', '10s', true), set_config('idle_in_transaction_session_timeout', '10s', true)`,
		greatest: `greatest`,
		replaced: `ON CONFLICT (minute, consumer, node) DO UPDATE SET counts = excluded.counts`,
		micros:   func(param string) string { return param + ` * interval '1 microsecond'` },
		old: `SELECT CAST(pid AS bigint), CAST(extract(epoch FROM xact_start) * 1000000 AS bigint), coalesce(state, ''),
	trim(coalesce(host(client_addr), '') || ' ' || coalesce(application_name, ''))
FROM pg_catalog.pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
	AND xact_start < clock_timestamp() - $1::bigint * interval '1 microsecond' ORDER BY xact_start LIMIT 5`,
		names:    postgresNames(schema),
		numbered: numbered,
	})
}

// numbered replaces each ? by $1, $2 and so on, but not in the quoted name of a schema.
func numbered(sql string) string {
	var b strings.Builder
	n, quoted := 0, false
	for _, r := range sql {
		if r == '"' {
			quoted = !quoted
		}
		if r == '?' && !quoted {
			n++
			fmt.Fprintf(&b, "$%d", n)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// NewMySQLOperator returns the statements for tables in the database schema.
func NewMySQLOperator(schema string) Operator {
	const number = `CAST(? AS SIGNED)`
	f := micros()
	f.now, f.key, f.number, f.since = `@clock`, `UNHEX(?)`, number, number
	f.after = func(micros string) string { return `@clock + ` + micros }
	f.text = func(param string) string { return param }
	// Bytes are compared, because the collation of the tables ignores spaces at the end.
	f.equal = func(col string) string { return `CAST(` + col + ` AS BINARY) = CAST(? AS BINARY)` }
	f.contains = func(col string) string { return `LOCATE(CAST(? AS BINARY), CAST(` + col + ` AS BINARY)) > 0` }
	f.name, f.byOwner = `CONVERT(CAST(? AS BINARY) USING utf8mb4) COLLATE utf8mb4_bin`, ` FORCE INDEX (dead_letters_consumer)`
	f.indexed = func(col string) string { return col + ` = ` + f.name + ` AND ` + f.equal(col) }
	f.among = func(col string) string {
		return col + ` IN (SELECT CAST(r.k AS BINARY) FROM JSON_TABLE(?, '$[*]' COLUMNS (k CHAR(36) CHARACTER SET latin1 PATH '$')) AS r)`
	}
	f.rows = `COALESCE((SELECT table_rows FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'processed_messages'), -1)`
	f.lock, f.free, f.greatest, f.replaced = ` FOR UPDATE`, ` FOR UPDATE SKIP LOCKED`, `GREATEST`, `ON DUPLICATE KEY UPDATE counts = VALUES(counts)`
	f.id = func(col string) string { return `LOWER(HEX(` + col + `))` }
	f.names = MySQLNames(schema)
	return newOperator(f)
}

// NewSQLiteOperator returns the statements.
func NewSQLiteOperator() Operator {
	const number = `CAST(? AS INTEGER)`
	f := micros()
	f.now, f.key, f.number, f.since = clock, `unhex(?)`, number, number
	f.after = func(micros string) string { return clock + ` + ` + micros }
	f.text = func(param string) string { return param }
	f.equal = func(col string) string { return `+` + col + ` = ?` }
	f.indexed = func(col string) string { return col + ` = ?` }
	f.contains = func(col string) string { return `instr(` + col + `, ?) > 0` }
	f.name = `?`
	f.among = func(col string) string { return col + ` IN (SELECT value FROM json_each(?))` }
	f.rows = `-1`
	f.greatest, f.replaced = `max`, `ON CONFLICT (minute, consumer, node) DO UPDATE SET counts = excluded.counts`
	f.id = func(col string) string { return `lower(hex(` + col + `))` }
	f.names = func(sql string) string { return strings.ReplaceAll(sql, "@", "") }
	return newOperator(f)
}

// micros has the functions of databases whose time columns are microseconds.
func micros() functions {
	return functions{
		time:   func(col string) string { return `COALESCE(` + col + `, 0)` },
		double: `?`,
		limit:  `?`,
		micros: func(param string) string { return param },

		numbered: func(sql string) string { return sql },
	}
}
