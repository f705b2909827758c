package main

// sqlstore is a mutation that must fail the named test of adapters/sqlstore.
func sqlstore(name, file, test string, edits ...edit) mutation {
	return mutation{name: name, file: file, edits: edits, pkg: "adapters/sqlstore", run: exactly(test), fails: test}
}

var sqlstoreMutations = []mutation{
	sqlstore("the tables of a schema that a changed session leads to are not used", "internal/claims/register.go", "TestAChangedSessionDoesNotLeadToOtherTables", edit{
		`session != "" && fresh != "" && session`, `fresh == "-" && session`,
	}),
	sqlstore("a changed session does not hide txonce's tables", "internal/claims/register.go", "TestAChangedSessionDoesNotLeadToOtherTables", edit{
		`return cmp.Or(session, fresh), nil`, `return cmp.Or(session), nil`,
	}),
	sqlstore("keys are in the order of their times in every database", "dedup/key.go", "TestKeysAreStoredInTheOrderOfTheirTimes", edit{
		`PutUint64(sum[:8], ms<<16|`, `PutUint64(sum[:8], ms<<56|`,
	}),
	sqlstore("sqlstore: a statement that is wrong or too slow in itself does not hold up all messages", "adapters/sqlstore/internal/postgres/errors.go",
		"TestPostgres/18/each_error_code_is_retryable_or_not", edit{`faults.Postgres.Ambiguous(class),`, `false,`}),
	sqlstore("sqlstore: a COMMIT that the server refused is not reported as unknown", "adapters/sqlstore/internal/postgres/errors.go",
		"TestPostgres/18/each_error_code_of_COMMIT_tells_whether_the_outcome_is_known", edit{`faults.CommitRefusedPostgres(severity(err), state),`, `false,`}),
	sqlstore("mysql: a handler's timestamp is not the clock of later claims", "adapters/sqlstore/internal/mysql/server.go", "TestASettingOfAHandlerIsNotTheNextOnes/mysql/SET_timestamp_=_1600000000", edit{
		"<=> %[2]s AND ` + serversClock + `, ", `<=> %[2]s, `,
	}),
	sqlstore("mysql: a clock that other code has set is not that of a claim", "adapters/sqlstore/internal/mysql/server.go", "TestAClaimNeedsTheServersClock", edit{
		"IF(` + serversClock + `, 'OFF', 'of a session whose clock was SET')", `0`,
	}),
	sqlstore("mysql: a handler that switches CHECK constraints off does so for itself only", "adapters/sqlstore/internal/mysql/server.go", "TestASettingOfAHandlerIsNotTheNextOnes/mysql/SET_SESSION_check_constraint_checks_=_0", edit{
		`@@unique_checks, @@check_constraint_checks, `, `@@unique_checks, `,
	}),
	sqlstore("a session that accepts no writes is closed after a claim", "adapters/sqlstore/store.go", "TestASessionThatAcceptsNoWritesIsClosed", edit{
		`f.Full || f.ReadOnly`, `f.Full`,
	}),
	sqlstore("a session that accepts no writes is closed after a window was refused", "adapters/sqlstore/register.go", "TestASessionThatAcceptsNoWritesIsClosed", edit{
		`s.closeReadOnly(ctx, err)`, ``,
	}),
	sqlstore("mysql: when two sources register the same name at once, one is accepted", "internal/dialect/mysql.go", "TestMySQL/mariadb/a_source_that_another_process_is_registering_is_waited_for", edit{
		"LockSources: q(`INSERT INTO @txonce_sources (consumer, source, first_run) VALUES (?, '', @clock)\nON DUPLICATE KEY UPDATE first_run = first_run`),",
		"LockSources: q(`DO 0 = ?`),",
	}),
	sqlstore("sqlstore: when two sources register the same name at once, one is accepted", "adapters/sqlstore/sources.go", "TestPostgres/18/a_source_that_another_process_is_registering_is_waited_for", edit{
		`if _, err := t.Tx.ExecContext(ctx, q.LockSources, consumer); err != nil {`, `if err := ctx.Err(); err != nil {`,
	}),
	sqlstore("sqlstore: VerifyTx fails if the handler ended the transaction", "adapters/sqlstore/verify.go", "TestVerifyTxTellsWhatAHandlerDid/sqlite", edit{
		`err := t.check(ctx, s.db.Proofs.VerifyAndStamp)`, `var err error`,
	}),
	sqlstore("mysql: VerifyTx works more than once in a transaction", "internal/dialect/mysql.go", "TestVerifyTxTellsWhatAHandlerDid/mysql", edit{
		`RELEASE SAVEPOINT txonce_claimed; SAVEPOINT txonce_claimed; END`, `RELEASE SAVEPOINT txonce_claimed; END`,
	}),
	sqlstore("postgres through database/sql: a handler cannot roll back to a savepoint of another handler of the batch", "internal/dialect/postgres_session.go",
		"TestVerifyTxEndsSavepoints/postgres15", edit{"`RELEASE SAVEPOINT txonce_handler; SAVEPOINT txonce_handler`", "`SAVEPOINT txonce_handler`"}),
	sqlstore("sqlstore: nothing is committed after VerifyTx has failed", "adapters/sqlstore/store.go", "TestVerifyTxTellsWhatAHandlerDid/postgres15", edit{
		`	case t.failed != nil:
		return t.failed
`, ``,
	}),
	sqlstore("postgres through database/sql: a session whose settings a handler changed is closed", "adapters/sqlstore/internal/postgres/proofs.go",
		"TestASettingOfAHandlerIsNotTheNextOnes/postgres15", edit{`t.Changed = settings != t.Claim.Settings`, `t.Changed = false`}),
	sqlstore("mysql: a session whose settings a handler changed is closed", "adapters/sqlstore/internal/mysql/server.go",
		"TestASettingOfAHandlerIsNotTheNextOnes/mysql", edit{`'of another session')`, `'ON')`}),
	sqlstore("sqlstore: statements name the schema of their tables", "adapters/sqlstore/locate.go", "TestStatementsNameTheirSchema/postgres15", edit{
		`s.db.Tables.Name(schema)`, ``,
	}),
	sqlstore("sqlite: statements name the schema of their tables", "internal/dialect/sqlite_schema.go", "TestStatementsNameTheirSchema/sqlite", edit{
		`word+"main."+table`, `word+table`,
	}),
	sqlstore("postgres through database/sql: a handler cannot make COMMIT less durable", "adapters/sqlstore/internal/postgres/proofs.go", "TestPostgresCommitsStayDurable", edit{
		`t.Changed && d.synchronous(settings) != sync`, `false`,
	}),
	sqlstore("postgres through database/sql: a standby that is added later is waited for", "adapters/sqlstore/internal/postgres/postgres.go", "TestPostgresDuplicateWritesForStandbys", edit{
		`if !c.Standbys {`, `if true {`,
	}),
	sqlstore("sqlstore: an error of another database is not blamed on this one", "adapters/sqlstore/verify.go", "TestWhoseErrorItIs/postgres15", edit{
		`case verifyErr == nil && t.store.fault(err).Elsewhere:`, `case false:`,
	}),
	sqlstore("sqlstore: a transaction that was idle for too long names the limit, and may be the handler's failure", "adapters/sqlstore/verify.go", "TestIdleLimitIsNamed/postgres15", edit{
		`if t.store.fault(err).Idle || t.idle() {`, `if false {`,
	}),
	sqlstore("postgres: a temporary table of a handler does not take what the other handlers of its batch write", "internal/dialect/postgres_session.go",
		"TestATemporaryTableOfANeighbour", edit{`SELECT 1 / (pg_my_temp_schema() = 0)::int`, `SELECT 1`}),
	sqlstore("postgres: a batch goes on with the temporary tables that its connection had before", "internal/dialect/postgres_session.go",
		"TestATemporaryTableThatIsDropped", edit{`SELECT current_setting('txonce.temporary') = @temporary`, `SELECT '0 0' = @temporary`}),
	sqlstore("sqlite: a temporary table of a handler does not take what the other handlers of its batch write", "adapters/sqlstore/internal/sqlite/session.go",
		"TestSQLiteHandlersOfABatchLeaveNothing", edit{`if temporary != t.Proof {`, `if false && temporary != t.Proof {`}),
	sqlstore("sqlite: an in-memory database outlives a context that ends", "adapters/sqlstore/internal/sqlite/session.go",
		"TestSQLiteInMemoryOutlivesAContext", edit{`context.WithTimeout(context.WithoutCancel(ctx), d.cfg.ClaimTimeout)`, `context.WithTimeout(ctx, d.cfg.ClaimTimeout)`}),
	sqlstore("sqlite: a connection on which a handler left a temporary table is closed", "adapters/sqlstore/internal/sqlite/session.go",
		"TestSQLiteHandlersLeaveNothingOnTheirConnection", edit{`return err != nil || found != t.Proof`, `return err != nil || found == ""`}),
	sqlstore("sqlite: a connection whose settings a handler changed is closed, so that it holds up no other message", "adapters/sqlstore/internal/sqlite/session.go",
		"TestSQLiteQueryOnlyHoldsUpNoOtherMessage", edit{`err != nil || found != t.Claim.Settings {`, `err != nil || found == "" {`}),
	sqlstore("sqlite: a connection that may not grow the file is closed", "adapters/sqlstore/internal/sqlite/errors.go",
		"TestSQLiteHandlersLeaveNothingOnTheirConnection", edit{`primary == codeFull,`, `false,`}),
	sqlstore("sqlite: files that are not committed together are refused", "adapters/sqlstore/internal/sqlite/attached.go",
		"TestSQLiteRefusesFilesThatAreNotCommittedTogether", edit{`[]string{"delete", "truncate", "persist"}`, `[]string{"delete", "truncate", "persist", "wal"}`}),
	sqlstore("sqlite: a handler that attaches a file commits nothing", "adapters/sqlstore/internal/sqlite/session.go",
		"TestSQLiteHandlerThatAttachesAFile", edit{`		err = checkAttached(ctx, t.Tx)`, `		err = nil`}),
	sqlstore("sqlite: a journal whose deletion may be undone by a loss of power is refused", "adapters/sqlstore/internal/sqlite/sweep.go",
		"TestSQLiteRegisterRefusesSettings", edit{` || synchronous < 3 && strings.EqualFold(journal, "delete"):`, `:`}),
	sqlstore("sqlite: COMMIT waits for readers", "adapters/sqlstore/internal/sqlite/sqlite.go", "TestSQLiteCommitWaitsForReaders", edit{
		`	return d.RetryBusy(ctx, func() error {
		_, err := tx.ExecContext(ctx, ` + "`COMMIT`" + `)
		return err
	})`, `	_, err := tx.ExecContext(ctx, ` + "`COMMIT`" + `)
	return err`,
	}),
}
