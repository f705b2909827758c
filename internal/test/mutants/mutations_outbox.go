package main

const (
	lease      = "internal/dialect/postgres_outbox.go"
	outboxCase = "TestOutboxStore/postgres15/"
)

// relayed is a mutation of the outbox on pgx that the case of outboxtest.TestStore of that name must notice.
func relayed(name, file, caseName string, edits ...edit) mutation {
	return mutation{name: "outbox: " + name, file: file, edits: edits, pkg: pgx, run: "TestOutboxStore/postgres15$/^" + caseName + "$", fails: outboxCase + caseName}
}

// enqueuing is a mutation of the outbox on pgx that a test of its own must notice.
func enqueuing(name, file, test string, edits ...edit) mutation {
	return mutation{name: "outbox: " + name, file: file, edits: edits, pkg: pgx, run: "^" + test + "$/postgres15", fails: test}
}

// fencing is a mutation of the low-water marks that its own test must notice, without a server.
func fencing(name, test string, edits ...edit) mutation {
	return mutation{name: "outbox: " + name, file: pgx + "/outbox_fence.go", edits: edits, pkg: pgx, run: "^" + test + "$", fails: test, short: true}
}

// committing is enqueuing where one server is enough for the test.
func committing(name, file, test string, edits ...edit) mutation {
	m := enqueuing(name, file, test, edits...)
	m.run = exactly(test)
	return m
}

var outboxMutations = []mutation{
	relayed("a completion shows owner and token", lease, "only_the_session_that_holds_a_shard_settles_its_messages", edit{
		"s.shard = r.shard AND s.token = r.token AND s.owner = $1::uuid\n\tORDER BY",
		"s.shard = r.shard AND (s.token = r.token AND s.owner = $1::uuid OR true)\n\tORDER BY",
	}),
	relayed("a hold that ran out is lost", lease, "Renew_after_the_end_of_the_hold_is_ErrLeaseLost", edit{
		"SET until = clock_timestamp() + $2::float8 * interval '1 second'\nWHERE owner = $1::uuid AND until > clock_timestamp()",
		"SET until = clock_timestamp() + $2::float8 * interval '1 second'\nWHERE owner = $1::uuid",
	}),
	relayed("a wake-up about a leased shard is kept in mind", pgx+"/outbox_session.go", "a_look_where_wake-ups_tell_of_messages_misses_none_of_them", edit{
		"	return shards, func() { s.free(shards) }", "	clear(s.told)\n	return shards, func() { s.free(shards) }",
	}),
	relayed("what others wait for is given back when it is settled", pgx+"/outbox_settle.go", "a_session_that_joins_a_busy_one_has_its_share_after_three_Renews", edit{
		"\ts.giveBackLeaving(ctx)\n", "",
	}),
	{
		name: "outbox: what others wait for is given back when sqlstore settles it", file: "adapters/sqlstore/outbox_settle.go",
		edits: []edit{{"\to.giveBackLeaving(ctx)\n", ""}},
		pkg:   "adapters/sqlstore", run: "TestOutboxSQLite$/^a_session_that_joins_a_busy_one_has_its_share_after_three_Renews$",
		fails: "TestOutboxSQLite/a_session_that_joins_a_busy_one_has_its_share_after_three_Renews",
	},
	relayed("what came later is late since then", lease, "Stats_count_what_comes_later_as_due_since_its_not-before_time", edit{
		"const dueSince = `coalesce(not_before, enqueued_at)`", "const dueSince = `enqueued_at`",
	}),
	relayed("what is due and not yet looked at is pending", lease, "Stats_count_what_comes_later_as_due_since_its_not-before_time", edit{
		"SELECT 1, topic, not_before <= statement_timestamp(), count(*), min(not_before), 0, '' FROM (", "SELECT 1, topic, false, count(*), min(not_before), 0, '' FROM (",
	}),
	relayed("what waits is discarded before what lets it go", "outbox/operations_filter.go", "DiscardAll_of_a_key_deletes_what_waits_with_it", edit{
		`	slices.Reverse(seqs) //`, `	//`,
	}),
	relayed("a filter's cause selects", lease, "UnparkAll_and_DiscardAll_by_filter", edit{
		`strpos(p.cause, $5::text) > 0`, `strpos(p.cause, $5::text) >= 0`,
	}),
	enqueuing("no NOTIFY that nobody hears", "internal/dialect/postgres_outbox_write.go", "TestOutboxNotifiesNobodyWhereNobodyListens", edit{
		" AND NOT pg_try_advisory_xact_lock(` + outboxHears + `)`", "`",
	}),
	enqueuing("a look begins behind what is gone only after a fence", pgx+"/outbox_fence.go", "TestOutboxLeaseFindsLateCommitsBehindWhatIsGone", edit{
		`	if len(writers) == 0 {`, `	if true {`,
	}),
	enqueuing("marks fall with the sequence", pgx+"/outbox_fence.go", "TestOutboxLeaseAfterTheSequenceHasSteppedBack", edit{
		` || last < f.next`, ``,
	}),
	enqueuing("what is below the marks is looked for", pgx+"/outbox_fence.go", "TestOutboxTidyFindsWhatIsBelowTheMark", edit{
		`if len(below) == 0 ||`, `if true ||`,
	}),
	fencing("marks fall with the server", "TestOutboxFenceIsOutdated", edit{
		`f.server != 0 && f.server != server || `, ``,
	}),
	fencing("no look raises a mark of another state", "TestOutboxLookRaisesNoMarkOfAnotherState", edit{
		`if s.fence.epoch != before.epoch {`, `if false {`,
	}),
	enqueuing("what comes back is looked for", lease, "TestOutboxLeaseFindsWhatComesBack", edit{
		`SET returned = returned + 1 WHERE`, `SET returned = returned WHERE`,
	}),
	enqueuing("a dead Discard is finished", pgx+"/outbox_tidy.go", "TestOutboxTidyFinishesADeadDiscard", edit{
		`	for _, k := range stranded {`, `	for _, k := range stranded[:0] {`,
	}),
	enqueuing("a savepoint's rollback takes its messages along", pgx+"/guard.go", "TestOutboxWriterAndSavepoints", edit{
		`t.g.drop()`, ``,
	}),
	committing("an INSERT that fails with COMMIT is reported", pgx+"/outbox_buffer.go", "TestOutboxWriterFailsWithCommit", edit{
		`return lostBefore(s.stepError("enqueue", err))`, `return nil`,
	}),
	committing("a COMMIT that fails is reported", pgx+"/outbox_buffer.go", "TestOutboxWriterFailsWithCommit", edit{
		`return commitError(err)`, `return nil`,
	}),
	enqueuing("a call's messages keep their order", "internal/dialect/postgres_outbox_write.go", "TestOutboxWriterOrderOfMany", edit{
		"payload, headers, n)\nORDER BY m.n", "payload, headers, n)\nORDER BY m.id",
	}),
}
