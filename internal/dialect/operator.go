package dialect

import "strings"

// Operator holds the statements for operators: status, actions and their results. They are the same on all databases
// except for the expressions in functions. IDs are passed and read as 32 hexadecimal digits, times as microseconds
// since 1970 UTC; 0 or NULL: none.
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
	OpenReplays, RepairPayload, LockAction, Failures, NextLetter, FreeAt, TakeLetter, NextTurn, Settle, Fail, Release,
	AddResult, Discards string
	// Sweeping.
	PassEnded string
	// Activity.
	AddActivity, Activity, ForgetActivity string
	// Keys.
	KeyOfClaim, KeyOfLetter, ClaimsAfter, LetterKeys string
	ClaimedKeys                                      func(n int) string // the claims of n keys
	// The outbox.
	OutboxTopics, OutboxIDs string
	// Calls to other systems.
	Calls Calls

	Positions Positions

	letters letters
}

// early is how many microseconds before its turn the letter of a request with a rate may be taken, when earlier letters
// were taken late: a worker comes some milliseconds after the turn begins, and these must not add up. So all workers
// together take at most rate × (t + 0.1 s) + 1 letters in any time t, also after a time without a worker.
const early = `100000`

func newOperator(f functions) Operator {
	q := func(sql string) string { return f.numbered(f.names(sql)) }
	open := `NOT EXISTS (SELECT 1 FROM @operator_results o WHERE o.letter = d.id AND o.outcome = '')`
	return Operator{
		State: q(`SELECT ` + f.time(f.now) + `, ` + f.time("s.forgotten_until") + `, COALESCE(s.owner, ''), ` +
			f.time("s.lease_until") + `, ` +
			f.time("p.ended_at") + `, (SELECT max(version) FROM @txonce_schema), ` + f.rows +
			` FROM @txonce_sweep s CROSS JOIN @txonce_passes p`),
		Windows: q(`SELECT consumer, window_seconds, ` + f.time("first_run") + `, ` + f.time("used_until") +
			` FROM @txonce_windows ORDER BY consumer, window_seconds`),
		Sources: q(`SELECT consumer, source, ` + f.time("first_run") +
			` FROM @txonce_sources WHERE source <> '' ORDER BY consumer, first_run, source`),
		// The first consumer with dead letters after a name. Few consumers may have many letters, so the index is not
		// read from end to end.
		NextOwner: q(`SELECT d.consumer FROM @dead_letters AS d` + f.byOwner + ` WHERE d.consumer > ` + f.name +
			` ORDER BY d.consumer LIMIT 1`),
		// Each consumer's letters are counted up to a limit, newest first.
		Letters: q(`SELECT cause, count(*), ` + f.time("min(first_parked)") + `, ` + f.time("max(last_parked)") + ` FROM (
	SELECT d.cause, d.first_parked, d.last_parked FROM @dead_letters AS d` + f.byOwner + ` WHERE d.consumer = ` + f.name + ` ORDER BY d.first_parked DESC LIMIT ` + f.limit + `) AS part
GROUP BY cause ORDER BY 2 DESC, 1`),
		LetterTime: f.names(`SELECT ` + f.time("d.first_parked") +
			` FROM @dead_letters AS d{index} WHERE {where} ORDER BY d.first_parked DESC, d.id DESC LIMIT 1 OFFSET ` +
			f.limit),
		WaitingLetters: func(n int) string {
			return q(`SELECT ` + f.id("letter") + ` FROM @operator_results WHERE outcome = '' AND letter IN (` +
				list(f.key, n) + `)`)
		},
		WaitingActions: q(`SELECT ` + f.id("id") + `, consumer FROM @operator_actions WHERE ended_at IS NULL AND kind IN ('replay', 'repair')`),
		Waiting: q(`SELECT count(*) FROM (SELECT 1 FROM @operator_results WHERE action = ` + f.key +
			` AND outcome = '' LIMIT ` + f.limit + `) AS part`),

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
WHERE action = ` + f.key + ` AND outcome = ` + f.text("?") + ` ORDER BY lost DESC, number DESC LIMIT ` + f.limit),
		EndAction: q(`UPDATE @operator_actions SET ended_at = ` + f.now + `, note = ` + f.text("?") + ` WHERE id = ` +
			f.key + ` AND ended_at IS NULL`),
		Unmark: q(`UPDATE @operator_results SET outcome = ` + f.text("?") + `, at = ` + f.now + ` WHERE action = ` +
			f.key + ` AND outcome = ''`),

		OpenReplays: q(`SELECT ` + f.id("id") + `, new_key, CASE WHEN as_new THEN 1 ELSE 0 END, rate, max_failures,
	CASE WHEN kind = 'repair' THEN 1 ELSE 0 END FROM @operator_actions
WHERE consumer = ` + f.text("?") + ` AND kind IN ('replay', 'repair') AND ended_at IS NULL ORDER BY CASE WHEN next_at > ` + f.now + ` THEN 1 ELSE 0 END, requested_at, id LIMIT 100`),
		RepairPayload: q(`SELECT note FROM @operator_actions WHERE id = ` + f.key + ` AND ended_at IS NULL`),
		LockAction: q(`SELECT ` + f.time("next_at") + ` - ` + f.time(f.now) + ` FROM @operator_actions WHERE id = ` +
			f.key + ` AND ended_at IS NULL` + f.lock),
		Failures: q(`SELECT count(*) FROM @operator_results WHERE action = ` + f.key + ` AND outcome = 'parked'`),
		// A letter whose latest taking or return lies in the future was taken before the clock was set back: it waits
		// no longer.
		NextLetter: q(`SELECT ` + f.id("letter") + `, tries, lost FROM @operator_results WHERE action = ` + f.key + ` AND outcome = '' AND (taken_until <= ` + f.now + ` OR at > ` + f.now + `)
ORDER BY lost, number LIMIT 1` + f.free),
		FreeAt: q(`SELECT count(*), COALESCE(min(` + f.time("taken_until") + `), 0) - ` + f.time(f.now) +
			` FROM @operator_results WHERE action = ` + f.key + ` AND outcome = ''`),
		TakeLetter: q(`UPDATE @operator_results SET tries = tries + 1, lost = lost + 1, taken_until = ` +
			f.after(f.number) + `, at = ` + f.now + ` WHERE action = ` + f.key + ` AND letter = ` + f.key +
			` AND outcome = ''`),
		NextTurn: q(`UPDATE @operator_actions SET next_at = ` + f.least + `(` + f.greatest + `(next_at, ` +
			f.after("-"+early) + `), ` + f.now + `) + ` + f.micros(f.number) + ` WHERE id = ` + f.key),
		Settle: q(`UPDATE @operator_results SET outcome = ` + f.text("?") + `, at = ` + f.now + ` WHERE action = ` +
			f.key + ` AND letter = ` + f.key + ` AND outcome = ''`),
		Fail: q(`UPDATE @operator_results SET outcome = ` + f.text("?") + `, cause = ` + f.text("?") + `, error = ` + f.text("?") + `, at = ` + f.now + `
WHERE action = ` + f.key + ` AND letter = ` + f.key + ` AND outcome = ''`),
		Release: q(`UPDATE @operator_results SET lost = lost - 1, taken_until = ` + f.after(f.number) + `, at = ` +
			f.now + ` WHERE action = ` + f.key + ` AND letter = ` + f.key + ` AND outcome = ''`),
		AddResult: q(`INSERT INTO @operator_results (action, letter, number, outcome, cause, error, tries, taken_until, at, claim_key, claimed)
VALUES (` + f.key + `, ` + f.key + `, 0, ` + f.text("?") + `, '', '', 1, ` + f.now + `, ` + f.now + `, ` + f.key + `, ` + f.number + ` <> 0)`),
		Discards: q(`SELECT ` + f.id("r.action") + `, ` + f.id("r.letter") + `, a.who, a.reason, ` + f.time("r.at") + `, CASE WHEN r.claimed THEN 1 ELSE 0 END
FROM @operator_results r JOIN @operator_actions a ON a.id = r.action WHERE r.claim_key = ` + f.key + ` ORDER BY r.at DESC LIMIT ` + f.limit),

		PassEnded: q(`UPDATE @txonce_passes SET ended_at = ` + f.now),

		OldTransactions: f.old,

		AddActivity: q(`INSERT INTO @consumer_activity (minute, consumer, node, counts)
VALUES (` + f.number + `, ` + f.text("?") + `, ` + f.text("?") + `, ` + f.text("?") + `) ` + f.replaced),
		Activity: q(`SELECT minute, consumer, node, counts FROM @consumer_activity WHERE minute >= ` + f.number +
			` ORDER BY minute, consumer, node`),
		ForgetActivity: q(`DELETE FROM @consumer_activity WHERE minute < ` + f.number),

		KeyOfClaim: q(`SELECT p.consumer, p.tenant, p.id FROM @processed_messages AS p WHERE p.key = ` + f.key),
		KeyOfLetter: q(`SELECT d.consumer, d.tenant, d.message_id FROM @dead_letters AS d WHERE d.key = ` + f.key +
			` LIMIT 1`),
		ClaimsAfter: q(`SELECT ` + f.id("p.key") + `, p.consumer, p.tenant, p.id FROM @processed_messages AS p WHERE p.key > ` + f.key + ` ORDER BY p.key LIMIT ` + f.limit),
		LetterKeys:  q(`SELECT d.consumer, d.tenant, d.message_id FROM @dead_letters AS d WHERE d.message_id IS NOT NULL`),
		ClaimedKeys: func(n int) string {
			return q(`SELECT ` + f.id("p.key") + `, p.fingerprint FROM @processed_messages AS p WHERE p.key IN (` +
				list(f.key, n) + `)`)
		},

		OutboxTopics: q(`SELECT topic FROM @outbox_messages UNION SELECT topic FROM @outbox_delayed UNION SELECT topic FROM @outbox_parked UNION SELECT topic FROM @outbox_sent`),
		// A single statement sees a message in one of the tables, also while it moves to another one.
		OutboxIDs: q(outboxIDs(f, "pending", "@outbox_messages") + ` UNION ALL ` + outboxIDs(f, "delayed",
			"@outbox_delayed") + ` UNION ALL ` +
			outboxIDs(f, "parked", "@outbox_parked") + ` UNION ALL ` + outboxIDs(f, "sent", "@outbox_sent")),
		Positions: newPositions(&f),
		Calls:     newCalls(&f, q),
		letters:   newLetters(&f),
	}
}

// outboxIDs finds the messages of a topic that have one of many IDs. There is no index on the IDs, so it scans a table.
func outboxIDs(f functions, state, table string) string {
	return `SELECT '` + state + `', id FROM ` + table + ` WHERE topic = ` + f.text("?") + ` AND ` + f.among("id")
}

// list returns n parameters.
func list(param string, n int) string { return strings.Repeat(param+", ", n-1) + param }
