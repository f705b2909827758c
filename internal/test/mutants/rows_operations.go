package main

var operationRows = []row{
	{
		promise: "When the database loses commits of a source that cannot be read again, the error names the time and how many messages at most.",
		in:      "internal/losses.lost",
		body:    `return nil`,
		fails:   "TestLostCommitsAreReported in consumer",
	},
	{
		promise: "The answer of a COMMIT may come when the next server has answered others: its message is compared all the same.",
		in:      "internal/losses.(*marks).add",
		body: `m.addOriginal(m.history, key, count, now)
		m.history, m.kept = history, nil
		return false`,
		fails: "TestLossesWithManyWorkers in consumer",
	},
	{
		promise: "A restart of the database, and a failover that loses nothing, are not reported as a loss.",
		in:      "internal/losses.(*Watch).compare",
		body: `changed := w.met != 0 && w.store.History() != w.met
		err := w.compareOriginal(ctx)
		if err == nil && changed {
			w.report(ctx, observe.Loss{})
		}
		return err`,
		fails: "TestNothingLostIsNotReported in consumer",
	},
	{
		promise: "A consumer behind a Subscriber that keeps positions reports no loss, because the lost messages are read again.",
		in:      "internal/losses.(*Watch).Close",
		body:    `_ = w`,
		fails:   "TestLossesOfSubscribersWithPositions in consumer",
	},
	{
		promise: "When a failover loses the work of answered HTTP requests, one error names the time that they are from.",
		in:      "adapters/httpidem.(*Guard).noteLosses",
		body:    `_ = recs`,
		fails:   "TestLostRequestsAreReported in adapters/httpidem",
	},
	{
		promise: "After a failover to an asynchronous PostgreSQL standby, what was lost is in the time that the error names.",
		in:      "internal/losses.(*marks).since",
		body: `if all := m.sinceOriginal(n, oldest); len(all) > 0 {
			return all[len(all)-1:]
		}
		return nil`,
		fails: "TestLostCommitsAreReportedAfterFailover in adapters/pgxstore",
	},
	{
		promise: "A requested replay settles each dead letter once.",
		sql:     "internal/dialect.newOperator.Settle",
		cut:     " AND outcome = ''",
		fails:   "TestOperator/a_settlement_happens_once in adapters/pgxstore",
	},
	{
		promise: "A dead letter that one worker has taken is not given to another.",
		sql:     "internal/dialect.newOperator.NextLetter",
		cut:     " AND (taken_until <= {f.now} OR at > {f.now})",
		fails:   "TestOperator/a_taken_letter_is_nobody_else's in adapters/pgxstore",
	},
	{
		promise: "A dead letter whose outcome became unknown is not removed by a replay that was requested before.",
		sql:     "internal/dialect.NewPostgres.TakeDeadLetter",
		cut:     "AND cause = $2::text",
		put:     "AND $2::text <> ''",
		fails:   "TestOperator/a_letter_whose_outcome_became_unknown_after_it_was_taken in adapters/pgxstore",
	},
	{
		promise: "A sweep keeps dead letters of unknown outcome, although their keys are claimed.",
		sql:     "internal/dialect.settled",
		cut:     "d.cause <> 'outcome_unknown' AND ",
		fails:   "TestBatches/SQLite/alone in adapters/sqlstore/test",
	},
	{
		promise: "A repair changes exactly one dead letter, and is made with the new payload.",
		sql:     "internal/dialect.newOperator.RepairPayload",
		cut:     "SELECT note",
		put:     "SELECT ''",
		fails:   "TestOperator/a_letter_is_repaired in adapters/pgxstore",
	},
	{
		promise: "A sweeper notices when the database's clock jumps ahead, and deletes nothing.",
		in:      "dedup.(*Sweeper).confirmed",
		body:    `return true`,
		fails:   "TestSweepersRefuseAClockThatJumpsAhead in dedup",
	},
	{
		promise: "An audit finds effects that are missing, that were made twice, or that have no claim.",
		in:      "consumer/ops/audit.(*Report).add",
		body:    `return`,
		fails:   "TestPlantedFaults/sqlite in internal/test/system/audit",
	},
	{
		promise: "An audit does not call a message lost that is parked.",
		in:      "consumer/ops/audit.(*Config).parked",
		body:    `return nil, nil`,
		fails:   "TestMessages/sqlite in internal/test/system/audit",
	},
	{
		promise: "The command line changes nothing without a confirmation.",
		in:      "adapters/cli.(*printer).confirm",
		body:    `return nil`,
		fails:   "TestConfirm in adapters/cli",
	},
	{
		promise: "Text of messages cannot control a terminal.",
		in:      "adapters/cli.Harmless",
		body:    `return text`,
		fails:   "TestTextIsHarmless in adapters/cli",
	},
	{
		promise: "An error about a DSN does not show its password.",
		in:      "cmd/txonce.hidden",
		body:    `return err`,
		fails:   "TestErrorsHideThePassword in cmd/txonce",
	},
	{
		promise: "Hidden keys appear in no page, metric, span, log or line of the command line.",
		in:      "consumer/ops.(HideKeys).Key",
		body:    `return key`,
		fails:   "TestCanaries in internal/test/system/canaries",
	},
	{
		promise: "A process is ready only while its consumers work.",
		in:      "consumer/ops.(*Health).Reasons",
		body:    `return nil`,
		fails:   "TestHealth in consumer/ops",
	},
	{
		promise: "Dashboard: who may not view gets no page.",
		in:      "adapters/dashboard.(*Dashboard).viewersOnly",
		body:    `return next`,
		fails:   "TestWithoutView in internal/test/system/dashboard",
	},
	{
		promise: "Dashboard: payloads and header values are for those who may see payloads.",
		in:      "adapters/dashboard.(*Dashboard).may",
		body:    `return true`,
		fails:   "TestPermissions in internal/test/system/dashboard",
	},
	{
		promise: "Dashboard: an action takes the permission to act, and a name.",
		in:      "adapters/dashboard.(*Dashboard).act",
		body: `authorize := d.cfg.Authorize
		other := *d
		other.cfg.Authorize = func(r *http.Request, _ Permission) (string, error) {
			who, err := authorize(r, View)
			return who + "?", err
		}
		return other.actOriginal(f)`,
		fails: "TestRefusedActionsChangeNothing in internal/test/system/dashboard",
	},
	{
		promise: "Dashboard: an action that would choose other letters than its dry run is refused.",
		in:      "adapters/dashboard.expected",
		body:    `return -1, nil`,
		fails:   "TestExpect in internal/test/system/dashboard",
	},
	{
		promise: "Dashboard: Loopback grants nothing but View, and not to pages of other sites.",
		in:      "adapters/dashboard.Loopback",
		body:    "return \"\", nil",
		fails:   "TestLoopback in internal/test/system/dashboard",
	},
	{
		promise: "An order's spans are one graph through outbox, relay and Kafka.",
		in:      "adapters/telemetry.creator",
		body:    `return trace.SpanContext{}`,
		fails:   "TestOneGraphThroughTheOutbox in internal/test/system/telemetry",
	},
	{
		promise: "Import: keys that no real message has are refused, and so is a table that lacks a real key.",
		in:      "adapters/cli.(*app).compare",
		body:    `return &compared{Real: len(sample.keys), Found: len(sample.keys)}, nil`,
		fails:   "TestImportComparesWithATopic in cmd/txonce",
	},
	{
		promise: "Import: a key that a transaction holds is reported, and imported by the next run.",
		in:      "adapters/cli.(*importer).again",
		body:    `im.held = nil; return nil`,
		fails:   "TestImportLeavesAHeldKey in cmd/txonce",
	},
	{
		promise: "Import: a message whose row was left out, because it is older than the window, is parked and not handled.",
		in:      "adapters/cli.(*sourceKeys).parkOlder",
		body:    `return nil, nil, nil`,
		fails:   "TestImportParksMessagesWhoseRowsItLeavesOut in cmd/txonce",
	},
	{
		promise: "Import: rows without a usable key are counted, and make the command exit with 1.",
		in:      "adapters/cli.(*imported).findings",
		body:    `return nil`,
		fails:   "TestScripts in cmd/txonce",
	},
	{
		promise: "PostgreSQL: a DELETE of keys that is not txonce's own is refused.",
		in:      "internal/test/testdb.joinedMigrations",
		body: `all, err := joinedMigrationsOriginal(database)
		return strings.Replace(all, "BEFORE DELETE OR TRUNCATE", "BEFORE TRUNCATE", 1), err`,
		fails: "TestForeignDeletionsAreRefused/15 in adapters/pgxstore",
	},
	{
		promise: "PostgreSQL: after Forget, the handler's transaction cannot delete other keys.",
		in:      "internal/test/testdb.joinedMigrations",
		body: `all, err := joinedMigrationsOriginal(database)
		return strings.Replace(all, "PERFORM pg_catalog.set_config('txonce.sweep', '', true);", "", 1), err`,
		fails: "TestForgetAllowsNoOtherDeletion in adapters/pgxstore",
	},
	{
		promise: "txonce_sweep records up to when keys were forgotten.",
		in:      "internal/test/testdb.joinedMigrations",
		body: `all, err := joinedMigrationsOriginal(database)
		return strings.Replace(all, "greatest(forgotten_until, $2), clock", "forgotten_until, clock", 1), err`,
		fails: "TestSweepProcedureDoesWhatASweeperDoes/15 in adapters/pgxstore",
	},
	{
		promise: "txonce_sweep deletes nothing when the clock has jumped ahead.",
		in:      "internal/test/testdb.joinedMigrations",
		body: `all, err := joinedMigrationsOriginal(database)
		return strings.Replace(all, "ELSIF clock > last + clock_jump THEN", "ELSIF false THEN", 1), err`,
		fails: "TestSweepProcedureRefusesAClockThatJumpsAhead/15 in adapters/pgxstore",
	},
	{
		promise: "txonce_sweep does nothing while a Sweeper has the lease.",
		in:      "internal/test/testdb.joinedMigrations",
		body: `all, err := joinedMigrationsOriginal(database)
		return strings.Replace(all, "WHERE owner IS NULL OR owner = 'txonce_sweep' OR", "WHERE true OR", 1), err`,
		fails: "TestSweepProcedureTakesTheLeaseOfSweepers/15 in adapters/pgxstore",
	},
	{
		promise: "txonce_sweep and the trigger use their own schema, whatever search_path finds.",
		in:      "migrations.steps",
		body: `all, err := stepsOriginal(db)
		for i := range all {
			all[i].up = strings.Replace(all[i].up, "set_config('search_path', 'pg_catalog, pg_temp', true)", "current_schema()", 1)
		}
		return all, err`,
		fails: "TestSweepProcedureUnderAHostileSearchPath in adapters/pgxstore",
	},
	{
		promise: "A sweeper deletes no key whose archive has failed.",
		in:      "dedup.(*Sweeper).purgeOnce",
		body:    `return s.cfg.Store.Purge(ctx, sweep)`,
		fails:   "TestSweeperDeletesWhatItHasArchived in dedup",
	},
	{
		promise: "A key that is claimed anew while it is archived is not deleted.",
		sql:     "internal/dialect.NewPostgres.SweepArchived",
		cut:     " AND expires_at <= $2::timestamptz LIMIT",
		put:     " LIMIT",
		fails:   "TestStore/postgres15/a_key_that_is_claimed_anew_while_it_is_archived_stays in adapters/pgxstore",
	},
}
