package main

// single is a mutation of what pgxstore does for one message. It must fail the named test of adapters/pgxstore.
func single(name, file, test string, edits ...edit) mutation {
	return mutation{name: name, file: file, edits: edits, pkg: pgx, run: exactly(test), fails: test}
}

// pgxstoreMutations are about the round trips that pgxstore saves.
var pgxstoreMutations = []mutation{
	single("a claim's transaction ends before the handler only if all keys had rows", pgx+"/row.go", "TestBatchWithADuplicateRollsBack", edit{
		`len(c.Inserted) == 0 && !c.standbys`, `!c.standbys`,
	}),
	single("a short wait for a claim that is a duplicate does not shorten later waits", pgx+"/row.go", "TestClaimWaitOfADuplicateThatVanishes", edit{
		"		b.Queue(sql.FormerWait)\n", "",
	}),
	single("a row that vanishes after its claim's transaction has ended is claimed in a new one", pgx+"/row.go", "TestRowVanishesWithTheTransactionOfItsDuplicate", edit{
		"if err == nil && ends {\n\t\tc.tx = nil", "if err == nil && ends {\n\t\t_ = c.tx",
	}),
	single("what a duplicate's handler writes is undone with its transaction", pgx+"/begin.go", "TestTransactionOfADuplicate", edit{
		`failed = c.open(ctx); failed`, `failed = errors.Join(c.open(ctx), c.tx.Commit(ctx)); failed`,
	}),
	single("a frozen process loses its claim, also after a duplicate's transaction has begun", "internal/dialect/postgres.go", "TestTransactionOfADuplicate", edit{
		`strings.Replace(idleLimit, "$8", "$1", 1)`, "` WHERE coalesce($1::text, '') <> '-'`",
	}),
	single("a redelivered message that is not found is claimed", "internal/claims/claim.go", "TestRedeliveredWhileTheFirstRuns", edit{
		"if err := d.Existing(ctx, rows); err != nil {\n\t\t\treturn err\n\t\t}",
		"if err := d.Existing(ctx, rows); err != nil {\n\t\t\treturn err\n\t\t}\n\t\tif n == 0 && c.Look {\n\t\t\treturn nil\n\t\t}",
	}),
	single("a standby does not decide that a message is a duplicate", "internal/dialect/postgres.go", "TestRedeliveredOnAStandby", edit{
		` AND current_setting('transaction_read_only') = 'off'`, ``,
	}),
	single("a result that is saved while another is written is written too", pgx+"/result.go", "TestAResultThatIsSavedDuringAWrite", edit{
		`g.results = g.results[len(results):]`, `g.results = nil`,
	}),
	single("a read-only session acknowledges nothing", "internal/dialect/postgres.go", "TestNothingIsAcknowledgedReadOnly", edit{
		` AND current_setting('transaction_read_only') = 'off'`, ` AND NOT pg_is_in_recovery()`,
	}),
	single("a standby does not decide that a batch has only duplicates", "internal/dialect/postgres.go", "TestRedeliveredOnAStandby", edit{
		"\nWHERE current_setting('transaction_read_only') = 'off'", ``,
	}),
	single("a deadlock after many errors is not the message's fault", pgx+"/guard.go", "TestBlame", edit{
		`errors.AsType[*pgconn.PgError](err); ok {`, `errors.AsType[*pgconn.PgError](err); ok && len(g.answers) < mostAnswers {`,
	}),
	single("a value that COPY cannot encode is its message's fault", pgx+"/errors.go", "TestBlame", edit{
		`pg.Routine == "CopyGetData"`, `pg.Routine == ""`,
	}),
	single("a panic of the rows of a COPY is an error of their handler", pgx+"/guarded.go", "TestCopyOfRowsThatPanic", edit{
		`cmp.Or(rows.ended, t.g.note(err))`, `cmp.Or(t.g.note(err), rows.ended)`,
	}),
	single("a COMMIT by QueryRow of a prepared statement is noticed", pgx+"/guardrows.go", "TestPreparedStatementEndsTheTransaction", edit{
		"	defer r.rows.Close()\n\tif slices", "	defer r.rows.Rows.Close()\n\tif slices",
	}, edit{
		`firstRow{r.rows}.Scan`, `firstRow{r.rows.Rows}.Scan`,
	}),
	single("a COMMIT by a prepared statement in a batch is noticed", pgx+"/guarded.go", "TestPreparedStatementEndsTheTransaction", edit{
		`t.Tx.SendBatch(ctx, t.g.watched(b))`, `t.Tx.SendBatch(ctx, b)`,
	}),
	single("a handler cannot roll back to a savepoint of another one by EXECUTE", "internal/dialect/control.go", "TestPreparedStatementsSetSavepoints", edit{
		"	case wordExecute:\n\t\tc.unknown()", "	case wordExecute:",
	}),
	single("COMMIT is durable although an argument of a prepared statement says otherwise", "internal/dialect/control.go", "TestPreparedStatementsSetSynchronousCommit", edit{
		`c.Savepoint, c.Sets = true, true`, `c.Savepoint = true`,
	}),
	single("COMMIT is durable although a named argument says otherwise", pgx+"/session.go", "TestCommitIsDurable", edit{
		`names(fmt.Sprintf("%.1000s", reflect.Indirect(reflect.ValueOf(arg))))`, `names(fmt.Sprintf("%.1000s", reflect.Indirect(reflect.ValueOf(""))))`,
	}),
	single("a deadlock before many errors is not the message's fault", pgx+"/errors.go", "TestBlame", edit{
		`!g.exposed && !errors.Is(err, g.first) && `, `!g.exposed && `,
	}),
	single("a statement that a goroutine of the handler has begun does not run after the handler has returned", pgx+"/guard_use.go", "TestHandlerLeavesACallInProgress", edit{
		`before, inUse := g.over, g.using > 0`, `before, inUse := g.over, false`,
	}),
	single("a goroutine that asks for the connection after its handler has returned does not get it", pgx+"/guarded.go", "TestNobodyGetsTheConnectionLater", edit{
		`	if t.g.enter() != nil {
		runtime.Goexit()
	}
	defer t.g.exit()
	_ = t.g.ready(t.g.ctx)
	t.g.expose()
	if t.Tx == nil { // the connection`, `	if t.g.enter() == nil {
		defer t.g.exit()
	}
	if t.Tx == nil { // the connection`,
	}),
	single("rows give a goroutine no connection after its handler has returned", pgx+"/guardrows.go", "TestNobodyGetsTheConnectionLater", edit{
		`		return nil
	}
	defer r.g.exit()
	r.g.expose()`, `	}`,
	}),
	single("the handler of a batch is named that leaves a call in progress", pgx+"/verify.go", "TestVerifyTxFindsACallInProgress", edit{
		`if g.inUse() {`, `if false {`,
	}),
	single("no handler runs in a transaction with another one's temporary table", pgx+"/savepoint.go", "TestATemporaryTableOfANeighbour", edit{
		`temporary && renew {`, `false {`,
	}),
	single("handlers that drop their temporary tables share a transaction", pgx+"/savepoint.go", "TestATemporaryTableThatIsDropped", edit{
		`g.temporary = temporary; temporary && renew {`, `temporary = temporary || g.temporary; temporary && renew {`,
	}),
	single("a temporary table of a pool's hook does not keep handlers apart", pgx+"/savepoint.go", "TestATemporaryTableOfAHook", edit{
		`string(row[2]) != temporariesOf(g.sessionState)`, `string(row[2]) != "0"`,
	}),
	single("a duplicate ends well in a session that has had a temporary table", pgx+"/session.go", "TestADuplicateInASessionThatHadATemporaryTable", edit{
		`	case c.tx == nil: // all`, `	case c.tx == nil && s.hooked: // all`,
	}),
	single("in a pool with a hook, a temporary table of a handler does not take what the next one writes", pgx+"/hooks.go", "TestATemporaryTableInAPoolWithAHook", edit{
		`return tables && (settings`, `return s.hooked || tables && (settings`,
	}),
	single("a temporary table of a pool's hook is accepted", pgx+"/hooks.go", "TestATemporaryTableOfAHook", edit{
		`	_, err = hook(ctx, conn)`, `	_ = hook`,
	}),
	single("a replay may leave a temporary table", "consumer/replay.go", "TestAReplayMayLeaveATemporaryTable", edit{
		`err = nil // no other handler follows`, ``,
	}),
	single("the watermark waits for prepared transactions", "internal/dialect/postgres_outbox.go", "TestOutboxLeaseFindsWhatWasPrepared", edit{
		`pid IS DISTINCT FROM pg_backend_pid()`, `pid <> pg_backend_pid()`,
	}),
	single("the watermark reads no seq before it is assigned", "internal/dialect/postgres_outbox_begin.go", "TestOutboxReadsNoSeqBeforeItIsAssigned", edit{
		`coalesce(pg_sequence_last_value('@outbox_seq'::regclass), 0)`, `last_value`,
	}),
	single("the watermark is dropped after the server has recovered from a crash", "internal/dialect/postgres_outbox_begin.go", "TestOutboxLeaseAfterTheServerHasRecovered", edit{
		` + coalesce(extract(epoch FROM pg_stat_get_bgwriter_stat_reset_time()), 0)`, ``,
	}),
	single("delayed messages become due in the order of their times while two sessions move them", "internal/dialect/postgres_outbox.go", "TestOutboxMovesWhatIsDueInOrder", edit{
		"\n\t\t\tAND (SELECT pg_try_advisory_xact_lock(` + outboxMoves + `) FROM pg_class WHERE oid = '@txonce_shards'::regclass)", ``,
	}),
	single("a settlement leaves another message with the seq of a leased one alone", "internal/dialect/postgres_outbox.go", "TestOutboxSettlesNoOtherMessage", edit{
		` AND m.id = r.id`, ``,
	}),
	single("a read-only session acknowledges no batch", "internal/dialect/postgres.go", "TestNothingIsAcknowledgedReadOnly", edit{
		"\nWHERE current_setting('transaction_read_only') = 'off'", "\nWHERE NOT pg_is_in_recovery()",
	}),
	single("a batch is looked for first only if all of its messages are redelivered", "internal/claims/plan.go", "TestRoundTripsOfABatchOfDuplicates", edit{
		`return !slices.ContainsFunc(p.Rows, func(row Row) bool { return !row.Record.Redelivered })`,
		`return slices.ContainsFunc(p.Rows, func(row Row) bool { return row.Record.Redelivered })`,
	}),
	single("a duplicate that is found in a batch waits for the standbys too", pgx+"/row.go", "TestABatchOfDuplicatesWaitsForAStandby", edit{
		`return row.Scan(&c.standbys, &c.sessionState)`, `return row.Scan(new(bool), &c.sessionState)`,
	}),
	single("a batch of duplicates is not acknowledged in a session that was changed", pgx+"/row.go", "TestABatchOfDuplicatesInAChangedSession", edit{
		`return row.Scan(&c.standbys, &c.sessionState)`, `return row.Scan(&c.standbys, new(string))`,
	}),
	single("a handler that ends the transaction of a duplicate commits nothing alone", pgx+"/guarded.go", "TestATransactionThatHasNotBegun", edit{
		"	if err := t.g.ready(ctx); err != nil {\n		return err\n	}\n	if !t.nested {\n		return t.g.end(how)\n	}",
		"	if !t.nested {\n		return t.g.end(how)\n	}\n	if err := t.g.ready(ctx); err != nil {\n		return err\n	}",
	}),
	single("a short wait for a claim does not shorten the handler's waits", "internal/dialect/postgres.go", "TestClaimWaitEndsWithTheClaim", edit{
		"unlessKnown + claimed + `, ` + formerWait)", "unlessKnown + claimed + `, ''`)",
	}),
	single("a claim that fails does not shorten the waits of the caller's own transaction", pgx+"/claim.go", "TestAClaimThatIsCancelledLeavesNoShortWait", edit{
		`short && len(rows) == 1 && c.conn != nil //`, `short && len(rows) == 1 //`,
	}),
	single("in a run of duplicates each message is looked for first", pgx+"/repeats.go", "TestRoundTripsInARunOfDuplicates", edit{
		`return r.n.Load() >= run`, `return false`,
	}),
	single("a new message ends a run of duplicates", pgx+"/repeats.go", "TestRoundTripsInARunOfDuplicates", edit{
		`		r.n.Store(0)`, `		r.n.Load()`,
	}),
	single("nothing runs in a transaction whose begin panicked", pgx+"/begin.go", "TestAPanicWhileATransactionBegins", edit{
		`g.begin, g.ended = nil, errNotBegun`, `g.begin = nil`,
	}),
	single("COMMIT is skipped when the claim of a saved result is gone", "internal/dialect/postgres.go", "TestSaveResultWithCommit", edit{
		`SELECT 1 / count(*) FROM saved`, `SELECT count(*) FROM saved`,
	}),
	single("a result is written before the handler's next statement", pgx+"/begin.go", "TestSaveResultWithCommit", edit{
		`	return g.flushResults(ctx)`, `	return nil`,
	}),
	single("a result is reported as saved only if the server has taken it", pgx+"/outbox_buffer.go", "TestSaveResultWithCommit", edit{
		"late.results); err != nil {\n\t\treturn lostWith(err)", "late.results); err != nil {\n\t\treturn nil",
	}),
	single("a saved result is a copy of the caller's bytes", pgx+"/result.go", "TestSaveResultWithCommit", edit{
		`slices.Clone(result)`, `slices.Clip(result)`,
	}),
	single("Queue: a failed statement belongs to its own message", pgx+"/queue.go", "TestQueueNamesTheMessageThatFails", edit{
		"		q.current = o.msg\n", "		q.current = q.owners[0].msg\n",
	}),
	single("Queue: a callback that ignores an error commits nothing", pgx+"/queue_result.go", "TestQueueNamesTheMessageThatFails", edit{
		"	r.close()\n	return r.err\n}\n\nfunc (r *queuedResult) close", "	return nil\n}\n\nfunc (r *queuedResult) close",
	}),
	single("Queue: a message cannot roll back to a savepoint of another", pgx+"/queue.go", "TestQueueNamesTheMessageThatFails", edit{
		`surround := q.shared && slices`, `surround := false && slices`,
	}),
	single("Queue: an argument that cannot be encoded is not the database's fault", pgx+"/queue_result.go", "TestQueueNamesTheMessageThatFails", edit{
		`return ok && strings.HasPrefix(`, `return ok && false && strings.HasPrefix(`,
	}),
	single("Queue: all statements take one round trip", pgx+"/queue.go", "TestQueueTakesOneRoundTrip", edit{
		"				q.add(msg, own)\n", "				q.add(msg, own)\n				if err := q.send(ctx); err != nil {\n					return err\n				}\n				q.batch, q.owners = pgx.Batch{}, nil\n",
	}),
	single("outbox: polls move all delayed messages that are due", pgx+"/outbox_lease.go", "TestOutboxLeaseMovesAllThatIsDue", edit{
		`&& s.dueLeft.Load() {`, `&& s.dueLeft.Load() && false {`,
	}),
	single("interleaved: the statements of all handlers take one round trip", pgx+"/fork_run.go", "TestForkSendsTheStatementsOfAllHandlersTogether", edit{
		`case len(f.queue) > 0 && quiet:`, `case len(f.queue) > 0:`,
	}),
	single("interleaved: a handler that locks has the transaction for itself", pgx+"/fork_branch.go", "TestForkKeepsHandlersApartThatLock", edit{
		`return b.f.alone || c.Alone ||`, `return b.f.alone ||`,
	}),
	single("interleaved: a hidden statement has the transaction for itself", pgx+"/fork_branch.go", "TestForkKeepsHandlersApartThatLock", edit{
		`pgx.QueryResultFormatsByOID, pgx.QueryRewriter:`, `pgx.QueryResultFormatsByOID:`,
	}),
	single("interleaved: above READ COMMITTED handlers run one after the other", pgx+"/fork.go", "TestForkKeepsHandlersApartThatLock", edit{
		`s.cfg.Isolation != pgx.ReadCommitted ||`, ``,
	}),
	single("interleaved: nobody comes between the statements of a handler that has its turn", pgx+"/fork_run.go", "TestForkLetsNobodyComeBetween", edit{
		"		f.turn, b.alone = b, true\n", "		b.alone = true\n",
	}),
	single("interleaved: messages with the same key are handled in order", pgx+"/fork.go", "TestForkKeepsTheOrder", edit{
		`if at, ok := byKey[keys[i]]; ok {`, `if at, ok := byKey[keys[i]]; ok && false {`,
	}),
	single("interleaved: outbox messages are in the order of the handlers", pgx+"/fork_run.go", "TestForkKeepsTheOrder", edit{
		`		return f.move(f.ctx, b.place)`, `		return nil`,
	}),
	single("interleaved: a turn begins when all earlier handlers have returned", pgx+"/fork_run.go", "TestForkKeepsTheOrder", edit{
		"	for f.low < len(f.branches) && f.branches[f.low].returned {", "	for f.low < len(f.branches) && (f.branches[f.low].returned || f.low < b.place) {",
	}),
	single("interleaved: a handler that holds a mutex gets its results", pgx+"/fork_run.go", "TestForkOfHandlersThatShareAMutex", edit{
		`quiet := f.busy == 0 || idle`, `quiet := f.busy == 0`,
	}),
	single("interleaved: handlers do not wait for each other forever", pgx+"/fork_run.go", "TestForkOfHandlersThatWaitForEachOther", edit{
		`if idle && !f.turn.using {`, `if false {`,
	}),
	single("interleaved: statements without end keep no handler from its turn", pgx+"/fork_run.go", "TestForkOfAHandlerThatSendsStatementsWithoutEnd", edit{
		` || f.passed == maxPassed)`, ` || f.passed < 0)`,
	}),
	single("interleaved: handlers do not wait for a turn forever", pgx+"/fork_run.go", "TestForkOfHandlersThatWaitForEachOther", edit{
		"		case f.turns > 0:\n			if idle {", "		case f.turns > 0:\n			if false {",
	}),
	single("interleaved: an argument does not wait for a handler forever", pgx+"/fork_send.go", "TestForkOfHandlersThatWaitForEachOther", edit{
		`	close(f.stuck)`, `	_ = f.stuck`,
	}),
	single("interleaved: a call that gets no answer has an error", pgx+"/fork_branch.go", "TestForkOfTwoCallsWhenAnArgumentWaits", edit{
		`if f.failed == b.place && ctx.Err() != nil {`, `if f.failed == b.place {`,
	}),
	single("interleaved: a slow statement is no deadlock", pgx+"/fork_run.go", "TestForkOfASlowHandler", edit{
		`if idle && !f.turn.using {`, `if idle {`,
	}),
	single("interleaved: a handler that has returned cannot use the transaction", pgx+"/fork_branch.go", "TestForkOfAHandlerThatLeavesAGoroutine", edit{
		"	case b.returned:\n		return errReturned\n", "	case b.returned && false:\n		return errReturned\n",
	}),
	single("interleaved: a handler that leaves rows open commits nothing", pgx+"/fork_run.go", "TestForkFails", edit{
		`case b.using || b.open > 0:`, `case b.using:`,
	}),
	single("interleaved: a handler cannot rely on reading rows beside its statements", pgx+"/fork_branch.go", "TestForkFails", edit{
		`case b.using, b.open > 0:`, `case b.using:`,
	}),
	single("interleaved: the end of a handler's ctx commits nothing", pgx+"/fork_branch.go", "TestForkFails", edit{
		`		f.fail(b.place, ctx.Err())`, ``,
	}),
	single("interleaved: runtime.Goexit commits nothing", pgx+"/fork.go", "TestForkFails", edit{
		`			f.returned(running, errGoexit)`, `			f.returned(running, nil)`,
	}),
	single("interleaved: currval does not return another handler's number", pgx+"/fork_branch.go", "TestForkFails", edit{
		`	if c.Recalls {`, `	if c.Recalls && false {`,
	}),
	single("interleaved: a handler cannot roll back to a savepoint of an earlier one", pgx+"/fork_run.go", "TestForkFails", edit{
		"		case f.turn != nil && f.turn.returned:\n			f.verify()", "		case f.turn != nil && f.turn.returned:\n			f.turn = nil",
	}),
	single("interleaved: handlers do not share the cache of an enum's codec", pgx+"/fork_types.go", "TestForkHandlersDoNotShareCodecs", edit{
		`own.RegisterType(unshared)`, `_ = unshared`,
	}),
	single("interleaved: the handler that fails first is named", pgx+"/fork_send.go", "TestForkFails", edit{
		`p.culprit = p.owners[i].place`, `p.culprit = p.owners[0].place`,
	}),
	single("interleaved: the transaction is verified after the last turn", pgx+"/fork_run.go", "TestForkVerifiesTheLastTurn", edit{
		`f.live > 0 || f.turn != nil && f.err == nil`, `f.live > 0`,
	}),
	single("a savepoint can be rolled back after the server has refused a result", pgx+"/result.go", "TestSaveResultWithCommit", edit{
		`if g.conn.PgConn().TxStatus() == 'E' {`, `if false {`,
	}),
}
