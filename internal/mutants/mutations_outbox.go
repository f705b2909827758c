package main

const (
	lease      = "internal/dialect/postgres_outbox.go"
	outboxCase = "TestOutboxStore/table/postgres15/"
)

// relayed is a mutation of the outbox on pgx that the case of outboxtest.TestStore of that name must notice.
func relayed(name, file, caseName string, edits ...edit) mutation {
	return mutation{name: "outbox: " + name, file: file, edits: edits, pkg: pgx, run: "TestOutboxStore/table/postgres15$/^" + caseName + "$", fails: outboxCase + caseName}
}

// enqueuing is a mutation of the outbox on pgx that a test of its own must notice.
func enqueuing(name, file, test string, edits ...edit) mutation {
	return mutation{name: "outbox: " + name, file: file, edits: edits, pkg: pgx, run: "^" + test + "$/postgres15", fails: test}
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
	enqueuing("a look begins behind what is gone only after a fence", pgx+"/outbox_fence.go", "TestOutboxLeaseFindsLateCommitsBehindWhatIsGone", edit{
		`	if len(writers) == 0 {`, `	if true {`,
	}),
	enqueuing("what comes back is looked for", lease, "TestOutboxLeaseFindsWhatComesBack", edit{
		`SET returned = returned + 1 WHERE`, `SET returned = returned WHERE`,
	}),
	enqueuing("a generation is locked before it is looked at", lease, "TestOutboxRotationKeepsLateCommits", edit{
		"	LOCK TABLE ONLY @outbox_messages_%[1]d IN ACCESS EXCLUSIVE MODE;\n", "",
	}),
	enqueuing("what has moved is settled where it is", lease, "TestOutboxSettleFindsWhatMoved", edit{
		` AND (SELECT count(*) FROM gone) < cardinality($1::smallint[])`, ` AND (SELECT count(*) FROM gone) < 0`,
	}),
	enqueuing("a generation's survivors move", lease, "TestOutboxRotationMovesSurvivors", edit{
		`cause FROM ONLY @outbox_messages_%[1]d;`, `cause FROM ONLY @outbox_messages_%[1]d WHERE false;`,
	}),
	enqueuing("a dead Discard is finished", pgx+"/outbox_tidy.go", "TestOutboxTidyFinishesADeadDiscard", edit{
		`	for _, k := range stranded {`, `	for _, k := range stranded[:0] {`,
	}),
	enqueuing("a savepoint's rollback takes its messages along", pgx+"/guard.go", "TestOutboxWriterAndSavepoints", edit{
		`t.g.drop()`, ``,
	}),
	enqueuing("a stream begins where nothing was settled since", pgx+"/wal_stream.go", "TestOutboxWALSettlesWhileTheStreamBegins",
		edit{`s.restart(), pglogrepl`, `state.recorded, pglogrepl`},
		edit{"		s.setStream(stream, nil)\n		if", "		s.window.restart()\n		s.setStream(stream, nil)\n		if"}),
	enqueuing("a new slot's first snapshot is not used", pgx+"/wal_slot.go", "TestOutboxWALTablesCreatedBesideTheSlot", edit{
		"	lsn, err := s.freshSnapshot(ctx, conn, name, lsn)\n	if err", "	var err error\n	if err",
	}),
	enqueuing("the stream tells of what is unparked", "internal/dialect/postgres_wal.go", "TestOutboxWALUnparkedGoesFirst", edit{
		"FROM @txonce_slots s, unnest($2::bytea[]) AS k (key)", "FROM @txonce_slots s, unnest($2::bytea[]) AS k (key) WHERE false",
	}),
	committing("a stream that broke meanwhile is reported", pgx+"/wal_session.go", "TestOutboxWALRemembersItsFailure", edit{
		`s.failed == nil && s.lastFailed.Before(t)`, `s.failed == nil`,
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
