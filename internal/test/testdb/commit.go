package testdb

// FailAtCommit returns statements for a transaction on PostgreSQL. Its COMMIT then fails with this SQLSTATE.
func FailAtCommit(code string) []string {
	return []string{
		`CREATE TABLE fails (n int)`,
		`CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'late' USING ERRCODE = '` +
			code + `'; END $$`,
		`CREATE CONSTRAINT TRIGGER fails AFTER INSERT ON fails DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION fail()`,
		`INSERT INTO fails VALUES (1)`,
	}
}
