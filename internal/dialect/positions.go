package dialect

import "strings"

// Positions holds the statements for source_positions, the rows that say how far the messages of a source are handled.
// Times are read as microseconds since 1970 UTC; 0: none.
type Positions struct {
	// Lock reads a row and locks it. History returns what tells the server apart from another one, and from itself
	// before its last start.
	Lock, History string
	// Write inserts a row unless it is there, and Rewrite writes all columns of one. The last-but-three parameter of
	// both is 0 if there was no rewind, 1 if there was none since the row was read (Rewrite only), 2 if this is one.
	Write, Rewrite string
	// Move has the moves as one JSON text, see Hex, and the history. It changes no row, not even the one of a move that
	// could be made, if the server has another history. Left returns the row of each move, and the history.
	Move, Left string
	// List returns the history, whether the server refuses to write, and the rows of a consumer, or of all if the
	// parameter is empty. Without a row it returns one whose consumer is NULL.
	List string
	// Summary returns for each consumer and source the partition that was rewound last and the one that was tried most,
	// which may be the same, with figures of all partitions.
	Summary string
	Hex     bool // the texts in the JSON are hexadecimal digits
}

// positions has the expressions of Positions that differ between the databases.
type positions struct {
	history  string
	readOnly string // 1 if the server refuses to write
	moves    string // the moves of a JSON parameter as m: i, c, s, p, e, f, n, x
	move     string // the statement Move; {moves} and {same} are replaced
	same     string // the key of p is that of m
	table    string
	quoted   string // the name of the column partition
	ignore   string // between INSERT and INTO, and ignored at the end: do nothing if the row is there
	ignored  string
	hex      bool
}

// PostgresHistory is when the server was started. A standby has a start of its own, and a promotion does not change it:
// but no session can have written to the standby before.
const PostgresHistory = `extract(epoch FROM pg_postmaster_start_time())::text`

// MySQLHistory tells servers apart.
const MySQLHistory = `concat_ws(':', @@server_id, @@hostname, @@port)`

// SQLiteHistory is the same for all files: a file that was replaced is known by its lower positions.
const SQLiteHistory = `file`

func postgresPositions() positions {
	return positions{
		history:  PostgresHistory,
		readOnly: `CASE current_setting('transaction_read_only') WHEN 'on' THEN 1 ELSE 0 END`,
		moves:    `json_to_recordset(CAST(CAST(? AS text) AS json)) AS m(i integer, c text, s text, p integer, e bigint, f bigint, n bigint, x integer)`,
		same:     `p.consumer = m.c AND p.source = m.s AND p.partition = m.p`,
		move: `UPDATE {table} AS p SET position = m.n, open = p.open AND m.x = 0, updated = clock_timestamp()
FROM {moves} WHERE {same} AND p.epoch = m.e AND p.position BETWEEN m.f AND m.n AND ` + PostgresHistory + ` = CAST(? AS text)`,
		table:   `@source_positions`,
		quoted:  `partition`,
		ignored: ` ON CONFLICT DO NOTHING`,
	}
}

func mysqlPositions() positions {
	return positions{
		history: MySQLHistory,
		// 0 and 1, or a name
		readOnly: `CASE WHEN CAST(@@global.read_only AS CHAR) IN ('0', 'OFF') THEN 0 ELSE 1 END`,
		moves: `(SELECT * FROM JSON_TABLE(?, '$[*]' COLUMNS (i INT PATH '$.i', c VARCHAR(510) CHARACTER SET latin1 PATH '$.c', s VARCHAR(2048) CHARACTER SET latin1 PATH '$.s',
	p INT PATH '$.p', e BIGINT PATH '$.e', f BIGINT PATH '$.f', n BIGINT PATH '$.n', x INT PATH '$.x')) AS j) AS m`,
		same: "p.consumer = UNHEX(m.c) AND p.source = UNHEX(m.s) AND p.`partition` = m.p",
		move: `UPDATE {moves} STRAIGHT_JOIN {table} AS p FORCE INDEX (PRIMARY) ON {same}
SET p.position = m.n, p.open = p.open AND m.x = 0, p.updated = @clock
WHERE p.epoch = m.e AND p.position BETWEEN m.f AND m.n AND ` + MySQLHistory + ` = ?`,
		table:  `@source_positions`,
		quoted: "`partition`",
		ignore: ` IGNORE`,
		hex:    true,
	}
}

func sqlitePositions() positions {
	return positions{
		history:  `'` + SQLiteHistory + `'`,
		readOnly: `0`,
		moves: `(SELECT value ->> 'i' AS i, value ->> 'c' AS c, value ->> 's' AS s, value ->> 'p' AS p, value ->> 'e' AS e, value ->> 'f' AS f,
	value ->> 'n' AS n, value ->> 'x' AS x FROM json_each(?)) AS m`,
		same: `p.consumer = m.c AND p.source = m.s AND p.partition = m.p`,
		move: `UPDATE {table} AS p SET position = m.n, open = p.open AND m.x = 0, updated = ` + clock + `
FROM {moves} WHERE {same} AND p.epoch = m.e AND p.position BETWEEN m.f AND m.n AND '` + SQLiteHistory + `' = ?`,
		table:   `main.source_positions`, // a handler may have left a temporary table of this name
		quoted:  `partition`,
		ignored: ` ON CONFLICT DO NOTHING`,
	}
}

func newPositions(f *functions) Positions {
	p := &f.positions
	q := func(sql string) string {
		sql = strings.NewReplacer("{moves}", p.moves, "{same}", p.same, "{partition}", p.quoted, "{table}", p.table).Replace(sql)
		return f.numbered(f.names(sql))
	}
	row := `p.consumer, p.source, COALESCE(p.{partition}, 0), p.log_id, COALESCE(p.position, 0), COALESCE(p.epoch, 0), CASE WHEN p.open THEN 1 ELSE 0 END,
	COALESCE(p.suspect, 0), COALESCE(p.tries, 0), ` + f.time("p.rewound_at") + `, COALESCE(p.rewound_from, 0), COALESCE(p.rewound_lost, 0), COALESCE(p.rewound_to, 0), ` + f.time("p.updated")
	return Positions{
		Lock: q(`SELECT ` + row + ` FROM {table} AS p WHERE p.consumer = ` + f.text("?") + ` AND p.source = ` + f.text("?") +
			` AND p.{partition} = ` + f.number + f.lock),
		History: q(`SELECT ` + p.history),
		Write: q(`INSERT` + p.ignore + ` INTO {table} (log_id, position, epoch, open, suspect, tries, rewound_at, rewound_from, rewound_lost, rewound_to, updated, consumer, source, {partition})
VALUES (` + f.text("?") + `, ` + f.number + `, ` + f.number + `, ` + f.number + ` <> 0, ` + f.number + `, ` + f.number + `,
	CASE ` + f.number + ` WHEN 2 THEN ` + f.now + ` END, ` + f.number + `, ` + f.number + `, ` + f.number + `, ` + f.now + `, ` + f.text("?") + `, ` + f.text("?") + `, ` + f.number + `)` + p.ignored),
		Rewrite: q(`UPDATE {table} SET log_id = ` + f.text("?") + `, position = ` + f.number + `, epoch = ` + f.number + `, open = ` + f.number + ` <> 0,
	suspect = ` + f.number + `, tries = ` + f.number + `, rewound_at = CASE ` + f.number + ` WHEN 2 THEN ` + f.now + ` WHEN 1 THEN rewound_at END,
	rewound_from = ` + f.number + `, rewound_lost = ` + f.number + `, rewound_to = ` + f.number + `, updated = ` + f.now + `
WHERE consumer = ` + f.text("?") + ` AND source = ` + f.text("?") + ` AND {partition} = ` + f.number),
		Move: q(p.move),
		Left: q(`SELECT ` + p.history + `, ` + p.readOnly + `, m.i, ` + row + ` FROM {moves} LEFT JOIN {table} AS p ON {same}`),
		List: q(`SELECT ` + p.history + `, ` + p.readOnly + `, 0, ` + row + ` FROM (SELECT ` + f.text("?") + ` AS consumer) AS o
LEFT JOIN {table} AS p ON o.consumer = '' OR p.consumer = o.consumer
ORDER BY p.consumer, p.source, p.{partition}`),
		Summary: q(`SELECT consumer, source, partitions, oldest, suspects, rewound, again, missing, by_rewind, by_tries, number, at, COALESCE(rewound_from, 0), COALESCE(rewound_lost, 0), COALESCE(rewound_to, 0), suspect, tries, log_id
FROM (SELECT p.consumer, p.source, p.log_id, p.{partition} AS number, p.rewound_from, p.rewound_lost, p.rewound_to, p.suspect, p.tries, ` + f.time("p.rewound_at") + ` AS at,
	count(*) OVER (PARTITION BY p.consumer, p.source) AS partitions,
	min(` + f.time("p.updated") + `) OVER (PARTITION BY p.consumer, p.source) AS oldest,
	sum(CASE WHEN p.tries >= 2 THEN 1 ELSE 0 END) OVER (PARTITION BY p.consumer, p.source) AS suspects,
	count(p.rewound_at) OVER (PARTITION BY p.consumer, p.source) AS rewound,
	sum(CASE WHEN p.rewound_from > p.rewound_to THEN p.rewound_from - p.rewound_to ELSE 0 END) OVER (PARTITION BY p.consumer, p.source) AS again,
	sum(CASE WHEN p.rewound_to > p.rewound_lost THEN p.rewound_to - p.rewound_lost ELSE 0 END) OVER (PARTITION BY p.consumer, p.source) AS missing,
	row_number() OVER (PARTITION BY p.consumer, p.source ORDER BY ` + f.time("p.rewound_at") + ` DESC, p.{partition}) AS by_rewind,
	row_number() OVER (PARTITION BY p.consumer, p.source ORDER BY p.tries DESC, p.{partition}) AS by_tries
FROM {table} AS p) AS ranked WHERE by_rewind = 1 OR by_tries = 1 ORDER BY consumer, source, number`),
		Hex: p.hex,
	}
}
