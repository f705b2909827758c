package dialect

// waits is until when the message c waits for its own retry or behind another message of its key. NULL: it does not
// wait. It uses the statement's time: with a running clock, a hold that ends during the statement could let a message
// pass but not the one before it. A wait that begins in the future was set before the clock was set back: it is over.
const waits = `greatest(CASE WHEN c.retry_at > statement_timestamp() AND (c.failed_at > statement_timestamp()) IS NOT TRUE THEN c.retry_at END, CASE WHEN c.key IS NOT NULL THEN (
	SELECT h.until FROM @outbox_held h WHERE h.shard = c.shard AND h.key = c.key AND c.seq >= h.from_seq AND h.until > statement_timestamp()
		AND (h.set_at > statement_timestamp()) IS NOT TRUE ORDER BY h.endless DESC LIMIT 1) END)`

// skips tells whether a poll of shard s begins at the seq "skip" of r: no message has returned to the shard since the
// skip was noted, and all messages below it still wait. See watermark.Poll. The server reads the time once for all
// shards, because it is in a query of its own.
//
// LeaseFrom looks at most a minute ahead: a skip that lasts longer was noted before the clock was set back.
const skips = `(s.returned = r.returned AND r.until - (SELECT (extract(epoch FROM statement_timestamp()) * 1000000)::bigint) BETWEEN 1 AND 60000000)`

// lastSeq is the last seq that was assigned, 0 if none was, and a number that changes whenever the server starts or
// recovers from a crash.
//
// A query of last_value in outbox_seq would sometimes be wrong: nextval writes a number up to 32 above the one that it
// assigns into that row, to log it, and then the right one. A query reads the row without waiting for nextval;
// pg_sequence_last_value waits. It returns NULL for a role without privileges on PostgreSQL 18; FROM makes that an
// error.
//
// When a process of the server is killed, the server recovers without a new pg_postmaster_start_time, but with new
// statistics.
const lastSeq = `(SELECT coalesce(pg_sequence_last_value('@outbox_seq'::regclass), 0) FROM @outbox_seq),
	((extract(epoch FROM pg_postmaster_start_time()) + coalesce(extract(epoch FROM pg_stat_get_bgwriter_stat_reset_time()), 0)) * 1000000)::bigint`

// begins is the seq where a poll of shard s begins.
const begins = `CASE WHEN ` + skips + ` THEN r.skip WHEN s.returned = r.returned THEN r.low ELSE 0 END`

// below finds the shards in $3 that have messages below the seq where a poll begins ($4).
const below = `SELECT r.shard FROM unnest($3::smallint[], $4::bigint[], $5::bigint[]) AS r(shard, low, returned)
		JOIN @txonce_shards s ON s.shard = r.shard AND s.owner = $1::uuid AND s.returned = r.returned
		WHERE EXISTS (SELECT FROM @outbox_messages c WHERE c.shard = r.shard AND c.seq < r.low)`
