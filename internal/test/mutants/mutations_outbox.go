package main

const (
	lease        = "internal/dialect/postgres_outbox.go"
	hidesNothing = "TestOutboxWatermarkHidesNothing/sqlstore/postgres15"
	begins       = "internal/dialect/postgres_outbox_begin.go"
	marks        = "internal/watermark/"
	sqlLease     = "adapters/sqlstore/internal/postgres/outbox_lease.go"
	outboxCase   = "TestOutboxStore/postgres15/"
)

// relayed is a mutation that must fail the case caseName of outboxtest.TestStore on pgxstore.
func relayed(name, file, caseName string, edits ...edit) mutation {
	return mutation{name: "outbox: " + name, file: file, edits: edits, pkg: pgx, run: "TestOutboxStore/postgres15$/^" + caseName + "$", fails: outboxCase + caseName}
}

// enqueuing is a mutation that must fail the named test of pgxstore on PostgreSQL 15.
func enqueuing(name, file, test string, edits ...edit) mutation {
	return mutation{name: "outbox: " + name, file: file, edits: edits, pkg: pgx, run: "^" + test + "$/postgres15", fails: test}
}

// watermark is a mutation of the low-water mark that must fail the named test, which needs no server.
func watermark(name, file, test string, edits ...edit) mutation {
	return mutation{name: "outbox: " + name, file: marks + file, edits: edits, pkg: "internal/watermark", run: "^" + test + "$", fails: test, short: true}
}

// passing is a mutation of sqlstore's low-water mark on PostgreSQL that must fail the named test.
func passing(name, file, pkg, test string, edits ...edit) mutation {
	return mutation{name: "outbox: sqlstore: " + name, file: file, edits: edits, pkg: pkg, run: exactly(test), fails: test, tries: 4}
}

// committing is a mutation that must fail the named test of pgxstore, which uses only one server.
func committing(name, file, test string, edits ...edit) mutation {
	m := enqueuing(name, file, test, edits...)
	m.run = exactly(test)
	return m
}

var outboxMutations = []mutation{
	relayed("only the session that holds a shard can complete its messages", lease, "only_the_session_that_holds_a_shard_settles_its_messages", edit{
		"s.shard = r.shard AND s.token = r.token AND s.owner = $1::uuid\n\tORDER BY",
		"s.shard = r.shard AND (s.token = r.token AND s.owner = $1::uuid OR true)\n\tORDER BY",
	}),
	relayed("an expired lease cannot be renewed", lease, "Renew_after_the_end_of_the_hold_is_ErrLeaseLost", edit{
		"SET until = clock_timestamp() + $2::float8 * interval '1 second', set_at = clock_timestamp()\nWHERE owner = $1::uuid AND until > clock_timestamp()",
		"SET until = clock_timestamp() + $2::float8 * interval '1 second', set_at = clock_timestamp()\nWHERE owner = $1::uuid",
	}),
	relayed("a notification about a leased shard is kept", pgx+"/outbox_session.go", "a_poll_after_a_notification_misses_no_message", edit{
		"	return shards, func() { s.free(borrowed) }", "	clear(s.notified)\n	return shards, func() { s.free(borrowed) }",
	}),
	relayed("a shard that others wait for is released once its messages are settled", pgx+"/outbox_settle.go", "a_session_that_joins_a_busy_one_has_its_share_after_three_Renews", edit{
		"\ts.giveBackLeaving(ctx)\n", "",
	}),
	{
		name: "outbox: sqlstore releases a shard that others wait for once its messages are settled", file: "adapters/sqlstore/outbox_settle.go",
		edits: []edit{{"\to.giveBackLeaving(ctx)\n", ""}},
		pkg:   "adapters/sqlstore", run: "TestOutboxSQLite$/^a_session_that_joins_a_busy_one_has_its_share_after_three_Renews$",
		fails: "TestOutboxSQLite/a_session_that_joins_a_busy_one_has_its_share_after_three_Renews",
	},
	relayed("a message with a not-before time counts as due since that time", lease, "Stats_count_what_comes_later_as_due_since_its_not-before_time", edit{
		"const dueSince = `coalesce(not_before, enqueued_at)`", "const dueSince = `enqueued_at`",
	}),
	relayed("a due message that no relay has leased yet counts as pending", "internal/dialect/postgres_outbox_operations.go", "Stats_count_what_comes_later_as_due_since_its_not-before_time", edit{
		"SELECT 1, topic, not_before <= statement_timestamp(), count(*), min(not_before), 0, '' FROM (", "SELECT 1, topic, false, count(*), min(not_before), 0, '' FROM (",
	}),
	relayed("Discard deletes the messages that wait behind a message before that message", "outbox/operations_filter.go", "DiscardAll_of_a_key_deletes_what_waits_with_it", edit{
		`	slices.Reverse(seqs) //`, `	//`,
	}),
	relayed("a filter by the error selects only matching messages", "internal/dialect/postgres_outbox_operations.go", "UnparkAll_and_DiscardAll_by_filter", edit{
		`strpos(p.error, $5::text) > 0`, `strpos(p.error, $5::text) >= 0`,
	}),
	enqueuing("no NOTIFY is sent when no relay listens", "internal/dialect/postgres_outbox_write.go", "TestOutboxNotifiesNobodyWhereNobodyListens", edit{
		" AND NOT pg_try_advisory_xact_lock(` + outboxHears + `)`", "`",
	}),
	enqueuing("a relay skips a range of deleted messages only after all transactions that could write into it ended", marks+"sequence.go", "TestOutboxLeaseFindsLateCommitsBehindWhatIsGone", edit{
		`	if len(writers) == 0 {`, `	if true {`,
	}),
	enqueuing("the low-water mark falls when the sequence was reset", marks+"sequence.go", "TestOutboxLeaseAfterTheSequenceHasSteppedBack", edit{
		` || last < s.next`, ``,
	}),
	enqueuing("messages below the low-water mark are found", marks+"check.go", "TestOutboxTidyFindsWhatIsBelowTheWatermark", edit{
		`if len(below) == 0 ||`, `if true ||`,
	}),
	watermark("the low-water mark is dropped when the server restarted", "sequence.go", "TestSequenceIsOutdated", edit{
		`s.server != 0 && s.server != server || `, ``,
	}),
	watermark("the low-water mark waits for each transaction that wrote before", "sequence.go", "TestSequenceWaitsForWriters", edit{
		`if len(s.writers) > 0 {`, `if len(s.writers) > 1 {`,
	}),
	watermark("a poll does not raise the low-water mark of a newer state", "poll.go", "TestMarksOfAPoll", edit{
		`if m.sequence.epoch != p.epoch {`, `if false {`,
	}),
	watermark("a low-water mark holds for one token of its shard", "poll.go", "TestMarksOfAPoll", edit{
		`if l.token != p.tokens[i] {`, `if false {`,
	}),
	watermark("a poll raises a low-water mark at most to the watermark from before the poll", "poll.go", "TestMarksOfAPoll", edit{
		`max(l.seq, min(got.first, p.passed+1))`, `max(l.seq, got.first)`,
	}),
	watermark("a poll whose first row may have been cut off does not raise the low-water mark", "poll.go", "TestMarksOfAPoll", edit{
		`if !any && all {`, `if !any {`,
	}),
	watermark("a poll that messages returned after does not raise the low-water mark", "poll.go", "TestMarksOfAPoll", edit{
		`nothing(p.Returned[i],`, `nothing(l.returned,`,
	}),
	watermark("a poll skips waiting messages at most up to the watermark from before the poll", "poll.go", "TestSkipOfAPoll", edit{
		`min(got.waiting, p.passed+1)`, `got.waiting`,
	}),
	watermark("a poll that began behind waiting messages does not raise the low-water mark", "poll.go", "TestSkipOfAPoll", edit{
		`case !got.skipped:`, `case true:`,
	}),
	watermark("a poll skips waiting messages only until the first of the waits ends", "poll.go", "TestSkipOfAPoll", edit{
		`waiting, min(l.skip.until, got.until)`, `waiting, got.until`,
	}),
	watermark("a poll skips waiting messages for a minute at most", "poll.go", "TestSkipIsLimited", edit{
		` && time.Since(l.skip.since) < skipLimit`, ``,
	}),
	passing("the low-water mark waits for all transactions that were writing", sqlLease, pgx, hidesNothing, edit{
		`by.Marks.Move(ctx, server, last, writers)`, `by.Marks.Move(ctx, server, last, writers[:0])`,
	}),
	passing("unparked messages are found again", begins, pgx, hidesNothing, edit{
		`s.returned = r.returned AND r.until`, `r.until`,
	}, edit{
		`WHEN s.returned = r.returned THEN r.low ELSE 0`, `ELSE r.low`,
	}),
	passing("messages are found when their wait ends", begins, pgx, hidesNothing, edit{
		` AND r.until - (SELECT (extract(epoch FROM statement_timestamp()) * 1000000)::bigint) BETWEEN 1 AND 60000000`, ` AND r.skip > 0`,
	}),
	enqueuing("a poll skips only waiting messages", lease, "TestOutboxLeaseSkipsMessagesThatWait", edit{
		`min(coalesce(waits, '-infinity'))`, `min(waits)`,
	}),
	enqueuing("a poll does not read waiting messages again", begins, "TestOutboxLeaseSkipsMessagesThatWait", edit{
		` THEN r.skip WHEN`, ` THEN r.low WHEN`,
	}),
	passing("a poll notices a sequence that was set back", sqlLease, "adapters/sqlstore", "TestOutboxPostgresFindsWhatIsBelowTheWatermark", edit{
		`if by.Marks.Notice(ctx, server, last) {`, `if false {`,
	}),
	passing("messages below the low-water mark are found", "adapters/sqlstore/internal/postgres/outbox_operations.go", "adapters/sqlstore", "TestOutboxPostgresFindsWhatIsBelowTheWatermark", edit{
		`by.Marks.Checked(ctx, c, below)`, `by.Marks.Checked(ctx, c, below[:0])`,
	}),
	passing("the low-water mark passes published messages without Maintain too", sqlLease, "adapters/sqlstore", "TestOutboxPostgresPassesWhatWasPublished", edit{
		`if by.Marks.Due() {`, `if false {`,
	}),
	enqueuing("unparked messages are found again", "internal/dialect/postgres_outbox_operations.go", "TestOutboxLeaseFindsWhatComesBack", edit{
		`SET returned = returned + 1 WHERE`, `SET returned = returned WHERE`,
	}),
	enqueuing("the Discard of a session that crashed is finished", "internal/pgrelay/repair.go", "TestOutboxTidyFinishesADeadDiscard", edit{
		`	for _, k := range stranded {`, `	for _, k := range stranded[:0] {`,
	}),
	enqueuing("rolling back to a savepoint discards the messages enqueued after it", pgx+"/guarded.go", "TestOutboxWriterAndSavepoints", edit{
		`t.g.drop()`, ``,
	}),
	committing("a failed INSERT of enqueued messages is reported", pgx+"/outbox_buffer.go", "TestOutboxWriterFailsWithCommit", edit{
		`return lostWith(s.stepError("enqueue", err))`, `return nil`,
	}),
	committing("a connection that is lost while messages travel with COMMIT leaves the outcome open", pgx+"/outbox_buffer.go", "TestOutboxWriterCommitUnknown", edit{
		`	return unknownCommit(err)`, `	return database.Errorf("pgxstore: commit: %w", err)`,
	}),
	committing("a failed COMMIT is reported", pgx+"/outbox_buffer.go", "TestOutboxWriterFailsWithCommit", edit{
		`return commitError(err)`, `return nil`,
	}),
	enqueuing("messages of one Enqueue call keep their order", "internal/dialect/postgres_outbox_write.go", "TestOutboxWriterOrderOfMany", edit{
		"payload, headers, n)\nORDER BY m.n", "payload, headers, n)\nORDER BY m.id",
	}),
	enqueuing("a message that is too large for a poll after a notification keeps its payload", pgx+"/outbox_poll.go", "TestOutboxPollAfterNotification", edit{
		` || m.Payload == nil`, ``,
	}),
	enqueuing("a poll after a notification that may have left messages is followed by a full one", pgx+"/outbox_poll.go", "TestOutboxPollAfterNotification", edit{
		`row.mark.N == int64(limit) || `, ``,
	}),
	committing("a poll is one statement, and so is Maintain with nothing to do", pgx+"/outbox_tx.go", "TestOutboxRelayRoundTrips", edit{
		`if b.Len() > 1 {`, `if true {`,
	}),
	committing("the relay's settings do not outlast a transaction on the application's connection", lease, "TestOutboxRelayHasConnectionsOfItsOwn", edit{
		`relaySettings("true")`, `relaySettings("false")`,
	}),
	committing("the relay's own connections have its settings", pgx+"/outbox_conns.go", "TestOutboxRelayHasConnectionsOfItsOwn", edit{
		`_, err := conn.Exec(ctx, s.outbox.OwnSettings, pgx.QueryExecModeExec)
		return err`, `return nil`,
	}),
	committing("a notification names its shards", pgx+"/outbox_wake.go", "TestOutboxNotifiesOfShards", edit{
		`dialect.NotifyShards(s.notifier.take())`, `dialect.NotifyShards(s.notifier.take()[:0])`,
	}),
	{
		name: "outbox: a notification about all shards is not narrowed by others", file: pgx + "/outbox_wake.go",
		edits: []edit{{`n.all = n.all || shards == nil`, ``}}, pkg: pgx, run: "^TestOutboxNotifierTakesShards$", fails: "TestOutboxNotifierTakesShards", short: true,
	},
	{
		name: "outbox: a notification of another version is about all shards", file: "internal/dialect/postgres_outbox_write.go",
		edits: []edit{{`			return nil
		}
		shards = append`, `			continue
		}
		shards = append`}}, pkg: "internal/dialect", run: "^TestNotifiedShards$", fails: "TestNotifiedShards", short: true,
	},
	committing("a relay that moves delayed messages wakes the others", pgx+"/outbox_chores.go", "TestOutboxWakesForDelayedMessages", edit{
		`if moved > 0 {`, `if moved < 0 {`,
	}),
	committing("a session without Maintain finds delayed messages", pgx+"/outbox_chores.go", "TestOutboxLeaseWithoutMaintain", edit{
		`	case all && s.chores`, `	case all && false && s.chores`,
	}),
	committing("Lease does not wait for Maintain", pgx+"/outbox_chores.go", "TestOutboxLeaseDoesNotWaitForMaintain", edit{
		`	case all && s.chores.TryLock():`, `	case all && func() bool { s.chores.Lock(); return true }():`,
	}),
	committing("Renew does not wait for the connections of other calls", pgx+"/outbox_renew.go", "TestOutboxRenewDoesNotWaitForSettle", edit{
		`pgrelay.Renew(ctx, inBatch(s.holdTx)`, `pgrelay.Renew(ctx, inBatch(s.tx)`,
	}),
	committing("Renew meets one lost connection after a failover", pgx+"/outbox_tx.go", "TestOutboxRenewMeetsOneLostConnection", edit{
		`		pool.Reset() //`, `		//`,
	}),
	committing("Close ends with its context", pgx+"/outbox_conns.go", "TestOutboxCloseDoesNotOutlastItsContext", edit{
		"	case <-closed:\n	case <-ctx.Done():\n", "	case <-closed:\n",
	}),
	committing("a session takes shards while VACUUM or REINDEX CONCURRENTLY locks their table", lease, "TestOutboxTakesShardsDuringMaintenanceOfTheTable", edit{
		"SELECT pg_advisory_xact_lock(` + outboxTakes + `) FROM pg_class WHERE oid = '@txonce_shards'::regclass`", "LOCK TABLE @txonce_shards IN SHARE UPDATE EXCLUSIVE MODE`",
	}),
	{
		name: "outbox: sqlstore's relays are woken by commits of other processes", file: "adapters/sqlstore/outbox_listener.go",
		edits: []edit{{"			s.outbox.wake()\n", ""}}, pkg: "adapters/sqlstore", run: "^TestOutboxPostgresListens$", fails: "TestOutboxPostgresListens",
	},
	{
		name: "outbox: a relay of sqlstore that moves delayed messages wakes the others", file: "adapters/sqlstore/outbox_lease.go",
		edits: []edit{{"	o.store.Wake(ctx)\n", ""}}, pkg: "adapters/sqlstore", run: "^TestOutboxWakesForDelayedMessages$/SQLite", fails: "TestOutboxWakesForDelayedMessages",
	},
	{
		name: "outbox: a message that becomes due while sqlstore leases is not left out", file: "adapters/sqlstore/internal/engine/outbox_fair.go",
		edits: []edit{{`found[shard] = again[shard]; len`, `found[shard] = append(found[shard], again[shard][min(len(found[shard]), len(again[shard])):]...); len`}},
		pkg:   "adapters/sqlstore/internal/engine", run: "^TestLeaseFairlyReadsAShardFromItsBeginning$", fails: "TestLeaseFairlyReadsAShardFromItsBeginning", short: true,
	},
	{
		name: "outbox: a Listen that does not return keeps no relay from its end", file: "adapters/sqlstore/outbox_listener.go",
		edits: []edit{{`		case <-ctx.Done():
			return fmt.Errorf("sqlstore: close: Config`, `		case <-make(chan int):
			return fmt.Errorf("sqlstore: close: Config`}}, pkg: "adapters/sqlstore", run: "^TestOutboxPostgresListenDoesNotReturn$", fails: "TestOutboxPostgresListenDoesNotReturn",
	},
	{
		name: "outbox: a Listen that does not return keeps no other relay from its shards", file: "adapters/sqlstore/outbox_session.go",
		edits: []edit{{`	listened := o.store.stopListening(o)
`, `	listened := o.store.stopListening(o)
	_ = listened(ctx)
`}}, pkg: "adapters/sqlstore", run: "^TestOutboxPostgresListenDoesNotReturn$", fails: "TestOutboxPostgresListenDoesNotReturn",
	},
	{
		name: "outbox: a Listen that ends its goroutine is called again", file: "adapters/sqlstore/outbox_listener.go",
		edits: []edit{{"	call.Go(func() {", "	func() {"}, {"	})\n	call.Wait()", "	}()\n	call.Wait()"}}, pkg: "adapters/sqlstore", run: "^TestOutboxPostgresListenEndsItsGoroutine$", fails: "TestOutboxPostgresListenEndsItsGoroutine",
	},
}
