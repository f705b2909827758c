package dialect

// Calls holds the statements about calls to other systems.
type Calls struct {
	Read, Insert, Try, Token, Claimed, Restore, Remove, Answer, Drop string
}

func newCalls(f *functions, q func(sql string) string) Calls {
	is := `call_key = ` + f.key
	insert := f.insertNew + ` @txonce_calls (call_key, fingerprint, first_try, last_try, until, unanswered, token, verdict)
SELECT ` + f.key + `, ` + f.number + `, ` + f.now + `, ` + f.now + `, ` + f.after(f.number) + `, ` + f.number + `, ` + f.number + `, 0` + f.whereTrue
	return Calls{
		Read: q(`SELECT ` + f.time(f.now) + `, ` + f.positions.history + `, CASE WHEN p.key IS NULL THEN 0 ELSE 1 END, COALESCE(p.fingerprint, 0),
	COALESCE(c.token, 0), COALESCE(c.fingerprint, 0), ` + f.time("c.first_try") + `, ` + f.time("c.last_try") + `, ` + f.time("c.until") + `,
	COALESCE(c.unanswered, 0), COALESCE(c.verdict, 0), c.result
FROM (SELECT 1 AS one) AS d LEFT JOIN @txonce_calls AS c ON c.call_key = ` + f.key + ` LEFT JOIN @processed_messages AS p ON p.key = ` + f.key),
		Insert: q(insert + f.orNothing),
		// first_try is first, because MySQL assigns from left to right and reads what it has assigned.
		Try: q(`UPDATE @txonce_calls SET first_try = CASE WHEN ` + f.number + ` = 1 OR unanswered = 0 THEN ` + f.now + ` ELSE first_try END,
	unanswered = CASE WHEN ` + f.number + ` = 1 THEN 1 ELSE unanswered + 1 END, last_try = ` + f.now + `,
	until = ` + f.greatest + `(until, ` + f.after(f.number) + `), token = ` + f.number + `, verdict = 0, result = NULL
WHERE ` + is + ` AND token = ` + f.number),
		Token:   q(`SELECT token FROM @txonce_calls WHERE ` + is),
		Claimed: q(`SELECT count(*) FROM @processed_messages AS p WHERE p.key = ` + f.key),
		Restore: q(`UPDATE @txonce_calls SET first_try = ` + f.since + `, last_try = ` + f.since + `, until = ` + f.since + `,
	unanswered = ` + f.number + `, verdict = ` + f.number + `, result = ` + f.bytes + ` WHERE ` + is + ` AND token = ` + f.number),
		Remove: q(`DELETE FROM @txonce_calls WHERE ` + is + ` AND token = ` + f.number),
		Answer: q(`UPDATE @txonce_calls SET verdict = ` + f.number + `, result = ` + f.bytes + `, token = ` + f.number + ` WHERE ` + is + ` AND ` + f.number + ` IN (token, -1)`),
		Drop:   q(`DELETE FROM @txonce_calls WHERE ` + is),
	}
}
