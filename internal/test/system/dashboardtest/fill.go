package dashboardtest

import (
	"strconv"
	"strings"
	"testing"
)

// Fill writes many rows with a few statements: pending messages, and dead letters of three consumers. Four fifths of
// the letters are those of billing. Both are multiples of 1,000, at most a million. One letter in a thousand has the
// cause undecodable, and each letter's key is order- with a number. A thousand messages are parked, and a tenth of the
// keys are claimed.
func (d *DB) Fill(t testing.TB, messages, letters int) {
	t.Helper()
	for _, statement := range fill {
		text := d.words.Replace(statement)
		for _, part := range strings.Split(text, ";\n") {
			part = strings.NewReplacer("{messages}", strconv.Itoa(messages/1000), "{letters}",
				strconv.Itoa(letters/1000)).Replace(part)
			if _, err := d.SQL.ExecContext(t.Context(), part); err != nil {
				t.Fatalf("%v\n%s", err, part)
			}
		}
	}
}

// fill are the statements. n numbers the rows from 0. {bytes} to {end} is a text as bytes, {hash:} to {:hash} a number
// as 16 bytes, {ms} a millisecond. {columns}, {parked} and {token} are columns that only some databases have.
var fill = []string{
	`INSERT INTO outbox_messages ({columns}shard, id, topic, {key}, payload, enqueued_at) {rows}
SELECT {values}n % 1000 % 64, concat('m-', n), CASE n % 5 WHEN 0 THEN 'receipts' WHEN 1 THEN 'mails' ELSE 'charges' END, {bytes}concat('customer-', n % 1000){end},
	{bytes}concat('{"order":"order-', n, '"', '` + filler + `"}'){end}, {now} - (4000000 - n) * {ms}
FROM (SELECT a.i * 1000 + b.i AS n FROM numbers AS a CROSS JOIN numbers AS b WHERE a.i < {messages}) AS numbered`,
	`INSERT INTO outbox_parked ({parked}seq, shard, id, topic, {key}, payload, enqueued_at, attempts, error, parked_at) {rows}
SELECT {parkedvalues}10000000 + n, n % 64, concat('p-', n), CASE n % 5 WHEN 0 THEN 'receipts' ELSE 'charges' END, {bytes}concat('parked-', n){end},
	{bytes}'` + filler + `'{end}, {now} - 1000 * {ms}, 10, 'MESSAGE_TOO_LARGE', {now}
FROM (SELECT i AS n FROM numbers) AS numbered`,
	`INSERT INTO dead_letters (id, {key}, consumer, message_id, window_seconds, message_time, cause, error, topic, ordering_key, position, payload, headers, attempts, times,
	first_parked, last_parked) {rows}
SELECT {hash:}n{:hash}, {hash:}n + 5000000{:hash}, CASE WHEN n % 20 = 0 THEN 'shipping' WHEN n % 20 < 4 THEN 'mailer' ELSE 'billing' END, concat('order-', n), 1296000,
	{now} - (100000 - n) * {ms}, CASE WHEN n % 1000 = 7 THEN 'undecodable' WHEN n % 10 = 8 THEN 'panic' WHEN n % 10 = 9 THEN 'mismatch' ELSE 'exhausted' END,
	concat('POST /v1/charges: 502 Bad Gateway: request ', n), 'orders', {bytes}concat('customer-', n % 1000){end}, concat('orders/3/', n),
	{bytes}concat('{"order":"order-', n, '"', '` + filler + `"}'){end}, '{"content-type":"application/json"}', 5, 1, {now} - (100000 - n) * {ms}, {now} - (100000 - n) * {ms}
FROM (SELECT a.i * 1000 + b.i AS n FROM numbers AS a CROSS JOIN numbers AS b WHERE a.i < {letters}) AS numbered`,
	`INSERT INTO processed_messages ({token}{key}, expires_at) {rows}
SELECT {tokenvalue}{hash:}n + 5000000{:hash}, {now} + 1000000 * {ms} FROM (SELECT a.i * 1000 + b.i AS n FROM numbers AS a CROSS JOIN numbers AS b WHERE a.i < {letters}) AS numbered WHERE n % 10 = 5`,
	`{analyze}`,
}

const filler = `,"note":"` +
	`a text that makes the message as long as messages are, ....................................................................` +
	`............................................................................................................................`

const numbers = `WITH RECURSIVE numbers (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM numbers WHERE i < 999)`

func words(pairs ...string) *strings.Replacer {
	return strings.NewReplacer(append(pairs, "{rows}", numbers)...)
}

var (
	postgresWords = words("{columns}", "", "{values}", "", "{parked}", "", "{parkedvalues}", "", "{token}", "",
		"{tokenvalue}", "", "{key}", "key",
		"{bytes}", "convert_to(", "{end}", ", 'UTF8')", "{hash:}", "CAST(md5(CAST(", "{:hash}", " AS text)) AS uuid)",
		"{now}", "clock_timestamp()", "{ms}", "interval '1 millisecond'", "{analyze}",
		"ANALYZE outbox_messages, outbox_parked, dead_letters, processed_messages")
	mysqlWords = words("{columns}", "key_hash, size, ", "{values}",
		"UNHEX(SHA2(concat('customer-', n % 1000), 256)), 400, ",
		"{parked}", "key_hash, size, ", "{parkedvalues}", "UNHEX(SHA2(concat('parked-', n), 256)), 400, ", "{token}",
		"token, ", "{tokenvalue}", "'12345678', ", "{key}", "`key`",
		"{bytes}", "CAST(", "{end}", " AS BINARY)", "{hash:}", "UNHEX(LEFT(SHA2(", "{:hash}", ", 256), 32))",
		"{now}", "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))", "{ms}", "1000", "{analyze}",
		"ANALYZE TABLE outbox_messages, outbox_parked, dead_letters, processed_messages")
	sqliteWords = words("{columns}", "seq, ", "{values}", "n + 1, ", "{parked}", "", "{parkedvalues}", "", "{token}",
		"", "{tokenvalue}", "", "{key}", "key",
		"{bytes}", "CAST(", "{end}", " AS BLOB)", "{hash:}", "unhex(printf('%08x%024x', (", "{:hash}",
		") * 2654435761 % 4294967296, n))",
		"{now}", "CAST(unixepoch('subsec') * 1000000 AS INTEGER)", "{ms}", "1000", "{analyze}",
		"UPDATE outbox_seq SET last = 20000000")
)
