package main

var databaseRows = []row{
	{
		promise: "A database that may forget commits in a crash is refused at the start.",
		in:      "internal/claims.PostgresDurable",
		body:    `return nil`,
		fails:   "TestStore/postgres15/Register_refuses_a_database_that_forgets_commits in adapters/pgxstore",
	},
	{
		promise: "Tables of a version that does not work with this program are refused, and the error names the version.",
		in:      "internal/claims.(Schema).Check",
		body:    `return nil`,
		fails:   "TestStore/postgres15/Register_refuses_another_version_of_the_schema_and_names_the_fix in adapters/pgxstore",
	},
	{
		promise: "One store serves only one consumer of each name.",
		in:      "internal/names.(*Names).Take",
		body:    `return nil`,
		fails:   "TestStore/postgres15/Register_takes_a_name_once_per_node in adapters/pgxstore",
	},
	{
		promise: "Two services that take messages from different sources under one consumer name are refused.",
		in:      "internal/claims.NewSources",
		body:    `return newSourcesOriginal(consumer, where, nil, sources)`,
		fails:   "TestStore/postgres15/one_name_for_two_sources_is_refused in adapters/pgxstore",
	},
	{
		promise: "An error of the schema or of permissions pauses the consumer, and does not count as a message's failure.",
		in:      "internal/faults.OfPostgres",
		body: `if len(code) == 5 && code[:2] == "42" {
			code = "22000"
		}
		return ofPostgresOriginal(code)`,
		fails: "TestStore/postgres15/each_error_code_is_retryable_or_not in adapters/pgxstore",
	},
	{
		promise: "A COMMIT that the server has refused is known to have failed.",
		in:      "internal/faults.CommitRefusedPostgres",
		body:    `return false`,
		fails:   "TestStore/postgres15/each_error_code_of_COMMIT_tells_whether_the_outcome_is_known in adapters/pgxstore",
	},
	{
		promise: "An error that leaves the outcome of COMMIT open is not taken for a failed COMMIT.",
		in:      "internal/faults.CommitRefusedPostgres",
		body:    `return true`,
		fails:   "TestStore/postgres15/each_error_code_of_COMMIT_tells_whether_the_outcome_is_known in adapters/pgxstore",
	},
	{
		promise: "A handler cannot make its own COMMIT less durable by a setting.",
		sql:     "internal/dialect.NewPostgres.Sync",
		cut:     "set_config('synchronous_commit'",
		put:     "set_config('txonce.mutant'",
		fails:   "TestCommitIsDurable in adapters/pgxstore",
	},
	{
		promise: "A driver that uses a prepared statement in another session of a pooler is refused at Register.",
		in:      "adapters/sqlstore/internal/postgres.(*occupant).Value",
		body:    `return "second", nil`,
		fails:   "TestPostgresPoolerModes/describe_exec in adapters/sqlstore/test",
	},
	{
		promise: "A standby does not decide that a message is a duplicate.",
		sql:     "internal/dialect.NewPostgres.ExistingOne",
		cut:     " AND current_setting('transaction_read_only') = 'off'",
		fails:   "TestRedeliveredOnAStandby in adapters/pgxstore",
	},
	{
		promise: "A session that accepts no writes acknowledges no batch.",
		sql:     "internal/dialect.NewPostgres.Existing",
		cut:     "current_setting('transaction_read_only') = 'off'",
		put:     "NOT pg_is_in_recovery()",
		fails:   "TestNothingIsAcknowledgedReadOnly in adapters/pgxstore",
	},
	{
		promise: "A duplicate is acknowledged only when its claim has reached the synchronous standbys.",
		sql:     "internal/dialect.standbys",
		cut:     "<> ''",
		put:     "= 'mutant'",
		fails:   "TestABatchOfDuplicatesWaitsForAStandby in adapters/pgxstore",
	},
	{
		promise: "MySQL and MariaDB: a connection whose ROLLBACK failed after it had read uncommitted rows is not used again.",
		in:      "adapters/sqlstore/internal/mysql.undone",
		body: `defer conn.Close()
		defer tx.Rollback()
		return f(tx)`,
		fails: "TestMySQLRollbackThatFails/mariadb in adapters/sqlstore/test",
	},
	{
		promise: "MySQL and MariaDB: only a row that the claim itself has inserted is new.",
		in:      "adapters/sqlstore/internal/mysql.(*DB).readClaimed",
		body: `if err := d.readClaimedOriginal(ctx, c, mine, rows); err != nil {
			return err
		}
		for _, row := range rows {
			c.Inserted[row.KeyHash] = true
		}
		return nil`,
		fails: "TestMySQLClaimsABatchOfManyStatements in adapters/sqlstore/test",
	},
	{
		promise: "MySQL and MariaDB: a clock that other code has SET is not the clock of a claim.",
		sql:     "adapters/sqlstore/internal/mysql.serversClock",
		cut:     "< 5",
		put:     "< 5000000000",
		fails:   "TestAClaimNeedsTheServersClock in adapters/sqlstore/test",
	},
	{
		promise: "SQLite: files that are not committed together are refused.",
		in:      "adapters/sqlstore/internal/sqlite.checkAttached",
		body:    `return nil`,
		fails:   "TestSQLiteRefusesFilesThatAreNotCommittedTogether in adapters/sqlstore/test",
	},
	{
		promise: "SQLite: settings under which a loss of power may undo a commit are refused.",
		in:      "adapters/sqlstore/internal/sqlite.(*DB).Check",
		body:    `return nil`,
		fails:   "TestSQLiteRegisterRefusesSettings in adapters/sqlstore/test",
	},
	{
		promise: "database/sql: a handler that ends its transaction commits no effect without its claim.",
		in:      "adapters/sqlstore.(*Store).VerifyTx",
		body:    `return nil`,
		fails:   "TestVerifyTxTellsWhatAHandlerDid/sqlite in adapters/sqlstore/test",
	},
	{
		promise: "database/sql: a setting that one handler leaves in a session does not reach the next one.",
		in:      "adapters/sqlstore/internal/postgres.(*DB).Restore",
		body:    `return`,
		fails:   "TestASettingOfAHandlerIsNotTheNextOnes/postgres15 in adapters/sqlstore/test",
	},
}
