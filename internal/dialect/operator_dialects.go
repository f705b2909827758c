package dialect

import (
	"fmt"
	"strings"
)

// functions has the expressions that differ between the databases.
type functions struct {
	now       string                  // the clock, in the type of a time column
	time      func(col string) string // the column of a time as microseconds, 0 for NULL
	after     func(micros string) string
	key       string                  // a parameter that is an ID
	id        func(col string) string // the column of an ID as digits
	text      func(param string) string
	equal     func(col string) string // the column of a text is the parameter, byte by byte; no index is used
	indexed   func(col string) string // the same with an index
	contains  func(col string) string // the parameter is a part of the column of a text
	name      string                  // a parameter that is a consumer, as the index of dead letters compares it
	byOwner   string                  // hint: use the index of dead letters
	among     func(col string) string // whether a column is one of the texts of a parameter that is a JSON array
	since     string                  // a parameter that is a time
	rows      string                  // an estimate of the rows of processed_messages
	number    string                  // a parameter that is a whole number
	double    string
	limit     string // a parameter of LIMIT
	lock      string
	free      string // locks a row, and leaves out rows that others have locked
	limits    string // the first statement of a transaction
	greatest  string
	least     string
	micros    func(seconds string) string // a number of seconds as a difference of times
	insertNew string                      // begins an INSERT of a row whose key may be there
	whereTrue string                      // between SELECT and ON CONFLICT
	orNothing string                      // ends that INSERT
	bytes     string                      // a parameter of bytes, which may be NULL
	replaced  string                      // what follows an INSERT into consumer_activity whose key is there
	old       string                      // OldTransactions
	names     func(sql string) string     // replaces @ before the names of tables
	numbered  func(sql string) string     // replaces each ? by the database's parameter

	positions positions
}

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
		// IS TRUE keeps the planner from a join, so that the texts are hashed whatever the settings. A list of
		// parameters would be compared one by one.
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
		limits:    `SELECT set_config('lock_timeout', '10s', true), set_config('idle_in_transaction_session_timeout', '10s', true)`,
		greatest:  `greatest`,
		least:     `least`,
		insertNew: `INSERT INTO`, orNothing: ` ON CONFLICT (call_key) DO NOTHING`, bytes: `CAST(? AS bytea)`,
		replaced: `ON CONFLICT (minute, consumer, node) DO UPDATE SET counts = excluded.counts`,
		micros:   func(param string) string { return param + ` * interval '1 microsecond'` },
		old: `SELECT CAST(pid AS bigint), CAST(extract(epoch FROM xact_start) * 1000000 AS bigint), coalesce(state, ''),
	trim(coalesce(host(client_addr), '') || ' ' || coalesce(application_name, ''))
FROM pg_catalog.pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
	AND xact_start < clock_timestamp() - $1::bigint * interval '1 microsecond' ORDER BY xact_start LIMIT 5`,
		names:    postgresNames(schema),
		numbered: numbered,

		positions: postgresPositions(),
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
	f.name, f.byOwner = `CONVERT(CAST(? AS BINARY) USING utf8mb4) COLLATE utf8mb4_bin`,
		` FORCE INDEX (dead_letters_consumer)`
	f.indexed = func(col string) string { return col + ` = ` + f.name + ` AND ` + f.equal(col) }
	f.among = func(col string) string {
		return col + ` IN (SELECT CAST(r.k AS BINARY) FROM JSON_TABLE(?, '$[*]' COLUMNS (k CHAR(36) CHARACTER SET latin1 PATH '$')) AS r)`
	}
	f.rows = `COALESCE((SELECT table_rows FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'processed_messages'), -1)`
	f.lock, f.free, f.greatest, f.least, f.replaced = ` FOR UPDATE`, ` FOR UPDATE SKIP LOCKED`, `GREATEST`, `LEAST`,
		`ON DUPLICATE KEY UPDATE counts = VALUES(counts)`
	f.insertNew = `INSERT IGNORE INTO`
	f.id = func(col string) string { return `LOWER(HEX(` + col + `))` }
	f.names, f.positions = MySQLNames(schema), mysqlPositions()
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
	f.greatest, f.least, f.replaced = `max`, `min`,
		`ON CONFLICT (minute, consumer, node) DO UPDATE SET counts = excluded.counts`
	f.insertNew, f.whereTrue, f.orNothing = `INSERT INTO`, ` WHERE true`, ` ON CONFLICT (call_key) DO NOTHING`
	f.id = func(col string) string { return `lower(hex(` + col + `))` }
	f.names = func(sql string) string { return strings.ReplaceAll(sql, "@", "") }
	f.positions = sqlitePositions()
	return newOperator(f)
}

// micros has the functions of databases whose time columns are microseconds.
func micros() functions {
	return functions{
		time:   func(col string) string { return `COALESCE(` + col + `, 0)` },
		double: `?`,
		bytes:  `?`,
		limit:  `?`,
		micros: func(param string) string { return param },

		numbered: func(sql string) string { return sql },
	}
}
