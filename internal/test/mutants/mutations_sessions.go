package main

// sessionMutations break what pgxstore promises about the sessions of its pool, also behind a pooler.
var sessionMutations = []mutation{
	single("behind a pooler, no message runs in a session that a function has changed", pgx+"/session.go", "TestASessionOfAPoolerThatAFunctionHasChanged", edit{
		"	if known != nil && c.sessionState == *known {\n", "	if known != nil {\n",
	}),
	single("behind a pooler, the state of a session that another client keeps changing is not learned", pgx+"/fresh.go", "TestASessionOfAPoolerThatAnotherClientKeepsChanging", edit{
		"err = s.reset(ctx, pg)\n	}\n	if err", "_ = s.reset\n	}\n	if err",
	}),
	single("behind a pooler, a claim does not wait for a session while it occupies one", pgx+"/session.go", "TestTheOnlySessionOfAPoolerIsReset", edit{
		"		s.undo(ctx, c.conn)\n	}\n	if", "		_ = s.undo\n	}\n	if",
	}),
	single("behind a pooler that takes turns, the session that a claim met is reset", pgx+"/session.go", "TestASessionOfAPoolerThatTakesTurns", edit{
		"		s.undo(ctx, c.conn)\n	}\n	if", "		rollback(ctx, c.tx)\n	}\n	if",
	}),
	single("behind a pooler, what a hook of pgconn sets is expected", pgx+"/hooks.go", "TestSessionsOfAPoolerThatHooksPrepare", edit{
		`err = bare(ctx, conn.PgConn())`, `_ = bare`,
	}),
	single("behind a pooler, what a hook of the pool sets is expected", pgx+"/hooks.go", "TestSessionsOfAPoolerThatHooksPrepare", edit{
		`err == nil && pool.AfterConnect != nil {`, `false {`,
	}),
	single("behind a pooler, what a connection brings as a parameter is expected", pgx+"/fresh.go", "TestAResetOfASessionThatThePoolerSetsUpIsLogged", edit{
		`ok && shown(value)`, `ok && value == ""`,
	}),
	single("behind a pooler, a parameter that the pooler ignores is not expected", pgx+"/fresh.go", "TestAParameterThatThePoolerIgnores", edit{
		`ok && shown(value)`, `ok`,
	}),
	single("a reset of a session that the pooler sets up is logged", pgx+"/fresh.go", "TestAResetOfASessionThatThePoolerSetsUpIsLogged", edit{
		`err == nil && met != reset {`, `err == nil && met == "" {`,
	}),
	single("behind a pooler, a start reads the settings of the database and not those of another client", pgx+"/register.go", "TestAStartBehindAPoolerMeetsChangedSessions", edit{
		`query(ctx, s.plain.Settings)`, `s.cfg.Pool.QueryRow(ctx, s.plain.Settings)`,
	}),
	single("the tables of txonce are those of a new session", pgx+"/session.go", "TestTheSchemaIsThatOfANewSession", edit{
		`case freshPath:`, `case "":`,
	}),
	single("a hook that sets nothing keeps no change of a session from being noticed", pgx+"/hooks.go", "TestASessionThatWasChangedIsNoticedInAPoolWithAHook", edit{
		`(settings || s.hookSets.Load())`, `(settings || s.hooked)`,
	}),
	single("behind a pooler, hooks that do not work in a transaction run outside of one", pgx+"/fresh.go", "TestHooksThatDoNotWorkInATransaction", edit{
		`inTx && (err != nil || !s.stillIn(ctx, pg))`, `inTx && err != nil && !s.stillIn(ctx, pg)`,
	}),
	single("a state that another client may have changed is not learned from one connection", pgx+"/fresh.go", "TestHooksThatDoNotWorkInATransaction", edit{
		`|| found.state == reset`, `|| reset != ""`,
	}),
	single("a session that a hook met after another one says nothing about the hook", pgx+"/hooks.go", "TestHooksThatDoNotWorkInATransaction", edit{
		`err == nil && server == now {`, `err == nil && (server == now || now != "") {`,
	}),
	single("a hook of pgconn runs once per connection", pgx+"/fresh.go", "TestAHookOfPgconnRunsOncePerConnection", edit{
		`	cfg.AfterConnect = nil
`, ``,
	}),
	single("what the pool's hooks have set in a connection that stays in use is not undone", pgx+"/session.go", "TestAHookThatChoosesTheTenantOfAMessage", edit{
		`	if err := s.learn(ctx, nil); err != nil { // the role's`, `	_, _ = c.conn.Exec(ctx, "RESET ROLE")
	if err := s.learn(ctx, nil); err != nil { // the role's`,
	}),
	single("behind a pooler, another client's change is not taken for one of the pool's hook", pgx+"/fresh.go", "TestAHookThatAnotherClientInterrupts", edit{
		`s.renewed(ctx, true, check)`, `s.renewed(ctx, false, check)`,
	}),
	single("a hook's temporary tables may have other names each time", pgx+"/hooks.go", "TestAHookThatMakesTemporaryTablesOfATenant", edit{
		`tables = has == had`, `_ = has == had`,
	}),
	single("behind a pooler, a session whose COMMIT fails is reset", pgx+"/outbox_buffer.go", "TestAChangedSessionWhoseCommitFailsIsReset", edit{
		"SET CONSTRAINTS ALL IMMEDIATE`", "SET CONSTRAINTS ALL DEFERRED`",
	}),
	single("behind a pooler, a session whose COMMIT waits for standbys and fails is reset", pgx+"/intx.go", "TestAChangedSessionWhoseCommitFailsIsReset", edit{
		`if late.chain {`, `if false {`,
	}),
	single("a hook may give each session other settings", pgx+"/hooks.go", "TestPoolThatPreparesItsSessions", edit{
		`		s.hookSets.Store(true)`, ``,
	}),
	single("another temporary table in the place of a hook's is noticed", "internal/dialect/postgres.go", "TestAnotherTemporaryTableInThePlaceOfAHooks", edit{
		`string_agg(c.relname, ' '`, `string_agg('x', ' '`,
	}),
	single("behind a pooler, a session that a handler has changed is not reset before COMMIT", pgx+"/guard.go", "TestADeferredTriggerHasTheSessionOfTheHandler", edit{
		`	return g.resyncs(ctx)`, `	if g.changed && g.store.pooled.Load() {
		_ = g.store.reset(ctx, g.conn.PgConn())
	}
	return g.resyncs(ctx)`,
	}),
	single("behind a pooler, no other client gets the session between COMMIT and its reset", pgx+"/outbox_buffer.go", "TestTheSessionIsResetBeforeAnotherClientGetsIt", edit{
		`g.changed && g.store.pooled.Load()}`, `false}`,
	}),
	single("a program that does not call Register knows that there is a pooler", pgx+"/fresh.go", "TestASessionOfAPoolerIsResetWithoutRegister", edit{
		`	s.pooled.Store(pooled)`, ``,
	}),
	single("behind a pooler, the transaction of a duplicate begins again in a session that was reset", pgx+"/begin.go", "TestADuplicatesTransactionMeetsAChangedSession", edit{
		`!errors.Is(failed, claims.ErrAgain)`, `!errors.Is(failed, claims.ErrAgain) || !errors.Is(failed, errRelearned)`,
	}),
	single("behind a pooler, a session that a statement outside of a transaction met is reset", pgx+"/session.go", "TestASessionOfAPoolerThatAcceptsNoWritesIsReset", edit{
		"			begin := `BEGIN`", "			begin := `-`",
	}),
	single("behind a pooler, a handler leaves no cursor to others", "internal/dialect/postgres.go", "TestASessionOfAPoolerIsReset", edit{
		`RESET ALL; CLOSE ALL; `, `RESET ALL; `,
	}),
	single("behind a pooler, a handler leaves no prepared statement to others", "internal/dialect/postgres.go", "TestASessionOfAPoolerIsReset", edit{
		"pg_prepared_statements WHERE from_sql`", "pg_prepared_statements WHERE NOT from_sql`",
	}),
	single("a temporary table that a function leaves does not take what the next message writes", "internal/dialect/postgres.go", "TestSessionsDoNotLeak", edit{
		`CASE WHEN pg_my_temp_schema() = 0 THEN '0' ELSE (SELECT count(*) ||`, `CASE WHEN pg_my_temp_schema() >= 0 THEN '0' ELSE (SELECT count(*) ||`,
	}),
	single("a lock that a DO block leaves is not the next message's", "internal/dialect/control.go", "TestSessionsDoNotLeak", edit{
		`true, c.Session || in.Session //`, `true, c.Session //`,
	}),
	{
		name: "a setting that a DO block with a tagged body leaves is not the next message's", file: "internal/dialect/control.go",
		edits: []edit{{`+= 1 + strings.IndexByte(body[begin+1:], '$')`, `+= 0`}},
		pkg:   "internal/dialect", run: exactly("TestInspect"), fails: "TestInspect", short: true,
	},
	single("COMMIT is durable although a DO block says otherwise", "internal/dialect/control.go", "TestCommitIsDurable", edit{
		`c.Sets, c.Temporary, c.Session = true, true, `, `c.Temporary, c.Session = true, `,
	}),
	single("COMMIT is durable although an UPDATE of pg_settings says otherwise", "internal/dialect/control.go", "TestCommitIsDurable", edit{
		`c.Sets, c.Session = true, c.Session || words[0] == wordUpdate`, `c.Session = c.Session || words[0] == wordUpdate`,
	}),
	single("a dead letter without a key is not written in a session that was changed", pgx+"/session.go", "TestATransactionThatClaimsNothingInAChangedSession", edit{
		`	if known != nil && c.sessionState == *known {`, `	if known != nil {`,
	}),
	single("a connection whose commits a crash may undo is closed", pgx+"/intx.go", "TestASessionWhoseCommitsACrashMayUndoIsClosed", edit{
		`unfit = err != nil // a newer`, `unfit = false // a newer`,
	}),
	single("a connection that accepts no writes is closed, whatever meets it", pgx+"/session.go", "TestASessionThatAcceptsNoWritesIsClosed", edit{
		"	if blamesSession(err) {\n		s.discard(ctx, conn.Conn())\n	}\n	conn.Release()", "	conn.Release()",
	}),
	single("a connection that accepts no writes is closed after an operator's request", pgx+"/operator.go", "TestASessionThatAcceptsNoWritesIsClosed", edit{
		"			d.store.discard(ctx, driver.(*stdlib.Conn).Conn())\n", "			_ = driver.(*stdlib.Conn).Conn()\n",
	}),
}
