package dialect_test

import (
	"testing"

	"github.com/txonce/txonce/internal/dialect"
)

// inspected holds strings of statements, and what Inspect must find in them.
var inspected = []struct {
	sql  string
	want dialect.Control
}{
	{"SELECT 1", dialect.Control{}},
	{"SELECT 1;", dialect.Control{}},
	{"SELECT 1; -- done\n /* really */ ;", dialect.Control{}},
	{"INSERT INTO t VALUES ('savepoint')", dialect.Control{}},
	{"INSERT INTO t VALUES ($1, $2)", dialect.Control{}},
	{"RELEASE SAVEPOINT x", dialect.Control{}},
	{"RELEASE x", dialect.Control{}},
	{"SELECT 1; SAVEPOINT x", dialect.Control{Several: true, Savepoint: true}},
	{"SELECT ';' AS no, \";\", $$;$$, $a$;$$;$a$, E'\\';' /* ; */ -- ;", dialect.Control{}},

	// Ending the transaction.
	// one word may be the name of a prepared statement
	{"COMMIT", dialect.Control{Ends: true, Savepoint: true, Sets: true}},
	{"ROLLBACK", dialect.Control{Ends: true, Savepoint: true, Sets: true}},
	{"ROLLBACK AND CHAIN", dialect.Control{Ends: true}},
	{"ROLLBACK WORK AND CHAIN", dialect.Control{Ends: true}},
	{"commit /* c */ and chain", dialect.Control{Ends: true}},
	{"END TRANSACTION", dialect.Control{Ends: true}},
	{"abort work", dialect.Control{Ends: true}},
	{"PREPARE TRANSACTION 'x'", dialect.Control{Ends: true}},
	{"SELECT 1;;COMMIT", dialect.Control{Ends: true, Several: true}},
	{"UPDATE t SET a = ';'; COMMIT", dialect.Control{Ends: true, Several: true}},
	{"-- x\rROLLBACK AND CHAIN", dialect.Control{Ends: true}},
	{"-- x\nROLLBACK AND CHAIN", dialect.Control{Ends: true}},
	{"-- ROLLBACK AND CHAIN", dialect.Control{}},
	{"; -- a\n /* b /* c */ d */ END WORK", dialect.Control{Ends: true}},
	{"SELECT '\\'; COMMIT; --'", dialect.Control{Ends: true, Several: true}},
	{"SELECT E'\\'; COMMIT; --'", dialect.Control{}},
	{"SELECT e'\\\\'; COMMIT", dialect.Control{Ends: true, Several: true}},
	{"SELECT xe'\\'; COMMIT; --'", dialect.Control{Ends: true, Several: true}},
	{"SELECT 'it''s'; COMMIT", dialect.Control{Ends: true, Several: true}},
	{"SELECT 1 AS \"a\"\";\"; COMMIT", dialect.Control{Ends: true, Several: true}},
	{"SELECT $1$$; COMMIT; $$", dialect.Control{}},
	{"SELECT a$$; COMMIT; $$", dialect.Control{Ends: true, Several: true, Unclear: true}},
	{"SELECT $a$ $b$; COMMIT; $a$; END", dialect.Control{Ends: true, Several: true}},
	{"SELECT 1 +-- x\n1; COMMIT", dialect.Control{Ends: true, Several: true}},
	{"SELECT E'a'\n'\\'; COMMIT; --'", dialect.Control{Unclear: true}},
	{"DO $$ BEGIN COMMIT; END $$", dialect.Control{Sets: true, Temporary: true}},
	{"SELECT CASE WHEN true THEN 1 END", dialect.Control{}},
	{"CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT 1; END; SELECT 2", dialect.Control{Unclear: true}},

	// Savepoints.
	{"SAVEPOINT x", dialect.Control{Savepoint: true}},
	{"SAVEPOINT/**/x", dialect.Control{Savepoint: true, Sets: true}},
	{"; -- a\n/* b /* c */ */ Savepoint x", dialect.Control{Savepoint: true}},
	{"ROLLBACK TO x", dialect.Control{Savepoint: true}},
	{"ROLLBACK WORK TO SAVEPOINT x", dialect.Control{Savepoint: true}},
	{"rollback transaction to x", dialect.Control{Savepoint: true}},
	{"name_of_a_statement", dialect.Control{Savepoint: true, Sets: true}},
	{"EXECUTE name_of_a_statement", dialect.Control{Savepoint: true, Sets: true}},
	{"/* a */ execute s(1)", dialect.Control{Savepoint: true, Sets: true}},

	// Settings, and other changes that outlive a transaction.
	{"SET search_path = other", dialect.Control{Sets: true, Session: true}},
	{"SET SESSION search_path TO other", dialect.Control{Sets: true, Session: true}},
	{"SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY", dialect.Control{Sets: true, Session: true}},
	{"SET ROLE other", dialect.Control{Sets: true, Session: true}},
	{"SET SESSION AUTHORIZATION other", dialect.Control{Sets: true, Session: true}},
	{"RESET ALL", dialect.Control{Sets: true, Session: true}},
	{"DISCARD TEMP", dialect.Control{Sets: true, Session: true}},
	{"SET LOCAL search_path = other", dialect.Control{Sets: true}},
	{"SET CONSTRAINTS ALL DEFERRED", dialect.Control{}},
	{"SET TRANSACTION READ ONLY", dialect.Control{}},
	{"UPDATE t SET local = true", dialect.Control{}},
	{"SELECT set_config('a.b', $1, true)", dialect.Control{Sets: true}},
	{"SELECT pg_catalog.set_config('a.b', (SELECT max(x) FROM t), TRUE), 1", dialect.Control{Sets: true}},
	{"SELECT set_config('a.b', $1, false)", dialect.Control{Sets: true, Session: true}},
	{"SELECT set_config('a.b', $1, $2)", dialect.Control{Sets: true, Session: true}},
	{"SELECT set_config('a.b', 'x', true AND false)", dialect.Control{Sets: true, Session: true}},
	{"SELECT set_config('a.b', 'x', true = any(array[false]))", dialect.Control{Sets: true, Session: true}},
	{"SELECT \"set_config\"('a.b', $1, false)", dialect.Control{Sets: true, Session: true}},
	{"SELECT set_config('a', set_config('b', 'x', false), true)", dialect.Control{Sets: true, Session: true}},
	{"CREATE TEMP TABLE t (a int)", dialect.Control{Session: true, Temporary: true}},
	{"CREATE OR REPLACE TEMPORARY VIEW v AS SELECT 1", dialect.Control{Session: true, Temporary: true}},
	{"CREATE TABLE pg_temp.t (a int)", dialect.Control{Session: true, Temporary: true}},
	{"SELECT 1 INTO TEMP t", dialect.Control{Session: true, Temporary: true}},
	{"CREATE TEMP TABLE t (a int) ON COMMIT DROP", dialect.Control{Temporary: true}},
	{"CREATE TEMP TABLE t (a int) ON COMMIT DELETE ROWS", dialect.Control{Session: true, Temporary: true}},
	{"SELECT temp FROM t", dialect.Control{}},
	{"DECLARE c CURSOR WITH HOLD FOR SELECT 1", dialect.Control{Session: true}},
	{"DECLARE c CURSOR FOR SELECT 1", dialect.Control{}},
	{"LISTEN x", dialect.Control{Sets: true, Session: true}},
	{"PREPARE x AS SELECT 1", dialect.Control{Session: true}},
	{"SELECT pg_advisory_lock(1)", dialect.Control{Session: true}},
	{"SELECT pg_advisory_xact_lock(1)", dialect.Control{}},
	{"UPDATE pg_settings SET setting = 'off' WHERE name = $1", dialect.Control{Sets: true, Session: true}},
	{"UPDATE pg_catalog.\"pg_settings\" SET setting = 'off'", dialect.Control{Sets: true, Session: true}},
	{"WITH x AS (SELECT 1) UPDATE pg_settings SET setting = 'off'", dialect.Control{Sets: true}},
	{"INSERT INTO t SELECT setting FROM pg_settings", dialect.Control{Sets: true}},

	// DO blocks. What they do to their transaction, such as COMMIT, the server refuses.
	{
		"DO $$ BEGIN UPDATE t SET temp = 1; INSERT INTO t SELECT 1 RETURNING set; END $$",
		dialect.Control{Sets: true, Temporary: true},
	},
	{
		"DO $$ BEGIN SET LOCAL a.b = 1; PERFORM set_config('a.b', 'c', true); END $$",
		dialect.Control{Sets: true, Temporary: true},
	},
	{"DO $$ BEGIN CREATE TEMP TABLE t (a int) ON COMMIT DROP; END $$", dialect.Control{Sets: true, Temporary: true}},
	{"DO $$ BEGIN CREATE TEMP TABLE t (a int); END $$", dialect.Control{Sets: true, Session: true, Temporary: true}},
	{
		"DO LANGUAGE plpgsql $a$ DECLARE x int; BEGIN IF x > 1 THEN SET a.b = 1; END IF; END $a$",
		dialect.Control{Sets: true, Session: true, Temporary: true},
	},
	{
		"DO $$ BEGIN IF true THEN NULL; ELSE RESET ROLE; END IF; END $$",
		dialect.Control{Sets: true, Session: true, Temporary: true},
	},
	{"DO $$ BEGIN LOOP LISTEN x; END LOOP; END $$", dialect.Control{Sets: true, Session: true, Temporary: true}},
	{"DO $$ BEGIN PERFORM pg_advisory_lock(1); END $$", dialect.Control{Sets: true, Session: true, Temporary: true}},
	{"DO $$ BEGIN PERFORM pg_advisory_xact_lock(1); END $$", dialect.Control{Sets: true, Temporary: true}},
	{
		"DO $$ BEGIN PERFORM set_config('a.b', 'c', false); END $$",
		dialect.Control{Sets: true, Session: true, Temporary: true},
	},
	{
		"DO 'BEGIN PERFORM set_config(''a.b'', ''c'', false); END'",
		dialect.Control{Sets: true, Session: true, Temporary: true},
	},
	{"DO $do$BEGIN SET a.b = 1; END$do$", dialect.Control{Sets: true, Session: true, Temporary: true}},
	{"DO $do$BEGIN PERFORM 1; END$do$", dialect.Control{Sets: true, Temporary: true}},
	{`DO E'BEGIN\nSET a.b = 1; END'`, dialect.Control{Sets: true, Session: true, Temporary: true}},
	{"DO E'BEGIN PERFORM pg_advisory_lock(1); END'", dialect.Control{Sets: true, Session: true, Temporary: true}},
	{"DO $$ BEGIN END $$; SELECT $$ SET a.b = 1 $$", dialect.Control{Sets: true, Several: true, Temporary: true}},
	{"SELECT $$ BEGIN SET a.b = 1; END $$", dialect.Control{}},

	// Unterminated text.
	{"SELECT 'x", dialect.Control{Unclear: true}},
	{"SELECT \"x", dialect.Control{Unclear: true}},
	{"SELECT $x$ $y$", dialect.Control{Unclear: true}},
	{"SELECT 1 /* /* */", dialect.Control{Unclear: true}},
}

func TestInspect(t *testing.T) {
	for _, tt := range inspected {
		got := dialect.Inspect(tt.sql)
		got.Alone, got.Recalls = false, false // see TestInspectFindsWhatNeedsTheTransactionAlone
		if got != tt.want {
			t.Errorf("%q:\n%+v, want\n%+v", tt.sql, got, tt.want)
		}
	}
}

func TestInspectFindsWhatNeedsTheTransactionAlone(t *testing.T) {
	for _, tt := range []struct {
		sql            string
		alone, recalls bool
	}{
		{"SELECT 1", false, false},
		{"(SELECT 1) UNION (SELECT 2)", false, false},
		{"/* a */ insert INTO t VALUES ($1) ON CONFLICT (id) DO UPDATE SET n = 1 RETURNING n;", false, false},
		{"UPDATE t SET n = n + 1", false, false},
		{"DELETE FROM t", false, false},
		{"MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN DELETE", false, false},
		{"WITH x AS (SELECT 1) SELECT * FROM x", false, false},
		{"VALUES (1)", false, false},
		{"SELECT substring(x FROM 1 FOR 2), share, no, key FROM t", false, false},
		{"SELECT 'FOR UPDATE', $$ FOR UPDATE $$, \"FOR\" \"UPDATE\" -- FOR UPDATE", false, false},

		{"SELECT * FROM t FOR UPDATE", true, false},
		{"select * from t for\nupdate skip locked", true, false},
		{"SELECT * FROM t FOR /* x */ NO KEY UPDATE", true, false},
		{"SELECT * FROM t FOR SHARE NOWAIT", true, false},
		{"SELECT * FROM t FOR KEY SHARE OF t", true, false},
		{"WITH x AS (SELECT * FROM t FOR UPDATE) UPDATE t SET n = 1 FROM x", true, false},
		{"SELECT pg_advisory_xact_lock(1)", true, false},
		{"SELECT pg_catalog.pg_try_advisory_xact_lock_shared(1)", true, false},
		{"SELECT \"pg_advisory_xact_lock\"(1)", true, false},
		{"SELECT pg_try_advisory_lock(1)", true, false},
		{"LOCK TABLE t", true, false},
		{"LOCK t", true, false},
		{"SELECT set_config('a.b', 'c', true)", true, false},
		{"SET LOCAL a.b = 1", true, false},
		{"SET CONSTRAINTS ALL DEFERRED", true, false},
		{"SAVEPOINT x", true, false},
		{"RELEASE SAVEPOINT x", true, false},
		{"COMMIT", true, false},
		{"CREATE TEMP TABLE t (a int) ON COMMIT DROP", true, false},
		{"CREATE TABLE t (a int)", true, false},
		{"SELECT 1 INTO TEMP t", true, false},
		{"DECLARE c CURSOR FOR SELECT 1", true, false},
		{"FETCH c", true, false},
		{"CALL p()", true, false},
		{"DO $$ BEGIN END $$", true, false},
		{"COPY t FROM STDIN", true, false},
		{"EXECUTE x", true, false},
		{"name_of_a_statement", true, false},
		{"SELECT 1; SELECT 2", true, false},
		{"", true, false},
		{" -- nothing", true, false},
		{"SELECT 'x", true, false},

		{"SELECT currval('s')", false, true},
		{"SELECT lastval()", false, true},
		{"INSERT INTO t VALUES (currval('s'))", false, true},
	} {
		if got := dialect.Inspect(tt.sql); got.Alone != tt.alone || got.Recalls != tt.recalls {
			t.Errorf("%q: alone %v, recalls %v", tt.sql, got.Alone, got.Recalls)
		}
	}
}

func TestInspectDoesNotAllocate(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() { dialect.Inspect("INSERT INTO effects (name) VALUES ($1) ON CONFLICT DO NOTHING") }); n != 0 {
		t.Errorf("Inspect allocates %v times", n)
	}
}

// Inspect either finds a COMMIT after any text, or reports the text as unclear.
func FuzzInspect(f *testing.F) {
	for _, tt := range inspected {
		f.Add(tt.sql)
	}
	f.Fuzz(func(t *testing.T, sql string) {
		before := dialect.Inspect(sql)
		after := dialect.Inspect(sql + "\n;COMMIT")
		if !after.Ends && !after.Unclear {
			t.Errorf("%q: a COMMIT behind it is not seen", sql)
		}
		if before.Ends && !after.Ends || before.Session && !after.Session {
			t.Errorf("%q: %+v, but with a COMMIT behind it %+v", sql, before, after)
		}
	})
}
