package main

// operating is a mutation that must fail the case caseName of opstest.TestStore on pgxstore.
func operating(name, file, caseName string, edits ...edit) mutation {
	return mutation{name: name, file: file, edits: edits, pkg: pgx, run: "TestOperator$/^" + caseName + "$", fails: "TestOperator/" + caseName}
}

// observing is a mutation that the test of that name of internal/hooks must notice.
func observing(name, file, test string, edits ...edit) mutation {
	return mutation{name: name, file: "internal/hooks/" + file, edits: edits, pkg: "internal/hooks", run: exactly(test), fails: test, short: true}
}

var operationsMutations = []mutation{
	operating("a requested replay settles each letter once", "internal/dialect/operator.go", "a_settlement_happens_once", edit{
		"q(`UPDATE @operator_results SET outcome = ` + f.text(\"?\") + `, at = ` + f.now + ` WHERE action = ` + f.key + ` AND letter = ` + f.key + ` AND outcome = ''`),",
		"q(`UPDATE @operator_results SET outcome = ` + f.text(\"?\") + `, at = ` + f.now + ` WHERE action = ` + f.key + ` AND letter = ` + f.key),",
	}),
	operating("a letter that one worker has taken is not given to another", "internal/dialect/operator.go", "a_taken_letter_is_nobody_else's", edit{
		"AND outcome = '' AND (taken_until <= ` + f.now + ` OR at > ` + f.now + `)\n", "AND outcome = ''\n",
	}),
	operating("a probe leaves nothing behind", pgx+"/operator_probe.go", "a_probe_leaves_nothing_behind", edit{
		`			rollback(ctx, c.tx)`, `			_ = c.tx.Commit(ctx)`,
	}),
	operating("a letter belongs to one open request", "internal/dialect/operator.go", "a_letter_belongs_to_one_open_request", edit{
		"AND o.outcome = '')`", "AND false)`",
	}),
	operating("the end of a request releases its letters", "internal/operator/actions.go", "the_end_of_a_request_releases_its_letters", edit{
		`st.Unmark, string(observe.Held), id(action))`, `st.Unmark, string(observe.Held), id(ops.ActionID{1}))`,
	}),
	operating("an unexpected number of letters is refused", "internal/operator/actions.go", "an_unexpected_number_is_refused_and_leaves_nothing", edit{
		`n != int64(expect)`, `n < 0`,
	}),
	operating("the rate of a request is that of all workers", "internal/operator/replays.go", "the_rate_is_that_of_all_workers", edit{
		`a.rate <= 0 {`, `a.rate <= 1e6 {`,
	}),
	operating("a rate lets few letters go at once after an idle time", "internal/dialect/operator.go", "a_rate_lets_one_letter_go_after_an_idle_time", edit{
		"f.greatest + `(next_at, ` + f.after(\"-\"+early) + `)", "f.greatest + `(next_at, next_at)",
	}),
	operating("letters that are taken late do not lower the rate", "internal/dialect/operator.go", "letters_that_are_late_do_not_delay_the_next_ones", edit{
		"f.after(\"-\"+early)", "f.now",
	}),
	operating("a repair keeps its payload until it ends, and no longer", "internal/dialect/operator.go", "a_letter_is_repaired", edit{
		`CASE WHEN a.kind = 'repair' AND a.ended_at IS NULL THEN '' ELSE a.note END`, `a.note`,
	}),
	operating("a repair is made with the new payload", "consumer/replayer.go", "a_letter_is_repaired", edit{
		`		how.Repair = func(m *Message) error { m.Payload = bytes.Clone(r.Payload); return nil }`, `		how.Repair = func(m *Message) error { m.Payload = bytes.Clone(m.Payload); return nil }`,
	}),
	operating("a repair is for exactly one letter", "internal/operator/actions.go", "a_repair_is_for_one_letter", edit{
		`			expect = 1`, `			expect = -1`,
	}),
	operating("the payload of a repair reaches the worker", "internal/dialect/operator.go", "a_letter_is_repaired", edit{
		`CASE WHEN kind = 'repair' THEN 1 ELSE 0 END FROM`, `CASE WHEN kind = 'replay' THEN 1 ELSE 0 END FROM`,
	}),
	operating("explain derives the ids of outgoing messages as handlers do", "internal/operator/outgoing.go", "the_messages_that_a_handler_has_enqueued_are_counted", edit{
		`outgoing.Seed(key.Hash(), key.ID)`, `outgoing.Seed(key.Hash(), key.Consumer)`,
	}),
	operating("explain counts parked messages apart from confirmed ones", "internal/operator/outgoing.go", "the_messages_that_a_handler_has_enqueued_are_counted", edit{
		`					out.Parked++`, `					continue`,
	}),
	operating("explain does not call discarded messages confirmed", "consumer/ops/explain.go", "the_messages_that_a_handler_has_enqueued_are_counted", edit{
		`Kind: DiscardOutbox, Limit`, `Kind: Discard, Limit`,
	}),
	operating("a plan knows the claims of today", "consumer/ops/plan.go", "a_plan_looks_at_the_claims_of_today", edit{
		`	case found:
		return dedup.Mismatch`, `	case found:
		return dedup.First`,
	}),
	operating("a plan with a limit is about the letters that the request takes", "consumer/ops/plan.go", "a_plan_with_a_limit_is_about_the_oldest_letters", edit{
		`		letters = letters[n:]`, `		letters = letters[:r.Filter.Limit]`,
	}),
	operating("a plan leaves out letters that wait for another request", "consumer/ops/plan.go", "a_plan_leaves_out_letters_that_wait_for_another_request", edit{
		`bool { return elsewhere[l.ID] }`, `bool { return elsewhere == nil }`,
	}),
	{
		name: "sqlstore names the transaction that holds a key", file: "adapters/sqlstore/operator_probe.go", edits: []edit{{`		found <- &h`, `		_ = h
		found <- nil`}},
		pkg: "adapters/sqlstore", run: "TestOperator(Postgres|MariaDB)$/^a_probe_of_a_key_in_flight$", fails: "TestOperatorMariaDB/a_probe_of_a_key_in_flight",
	},
	{
		name: "on SQLite a claim that is committed is found while another transaction writes", file: "adapters/sqlstore/operator_probe.go",
		edits: []edit{{`	if found {
		claim.Verdict`, `	if found && rec.Window < 0 {
		claim.Verdict`}},
		pkg: "adapters/sqlstore", run: "TestOperatorSQLite$/^a_probe_of_a_key_in_flight$", fails: "TestOperatorSQLite/a_probe_of_a_key_in_flight", short: true,
	},
	{
		name: "sqlstore tells deadlocks from other failures", file: "adapters/sqlstore/errors.go", edits: []edit{{`		return observe.Deadlock`, `		return observe.RolledBack`}},
		pkg: "adapters/sqlstore", run: "TestResult$|TestMySQLResult", fails: "TestMySQLResultOfADeadlock",
	},
	{
		name: "sqlstore names an unknown COMMIT", file: "adapters/sqlstore/errors.go",
		edits: []edit{{`	case errors.Is(err, errCommitUnknown):`, `	case false:`}},
		pkg:   "adapters/sqlstore", run: "TestPostgres$/^15$/^commit_outcome_unknown:_answer_lost$", fails: "TestPostgres/15/commit_outcome_unknown:_answer_lost",
	},
	operating("a handler that ends its transaction in a replay loses no letter", "consumer/replay.go", "a_handler_that_ends_its_transaction_loses_no_letter", edit{
		`errors.Is(err, dedup.ErrTxEnded) && !`, `false && !`,
	}),
	operating("a letter is removed after its handler", "consumer/replay.go", "a_handler_that_ends_its_transaction_loses_no_letter", edit{
		`		p.claimed(ctx, msgs)
		err := onOwn`, `		p.claimed(ctx, msgs)
		if err := settle(ctx, tx, true); err != nil {
			return err
		}
		settle = func(context.Context, TTx, bool) error { return nil }
		err := onOwn`,
	}),
	operating("the end of a request waits for no handler", "consumer/replay.go", "the_end_of_a_request_waits_for_no_handler", edit{
		`		p.claimed(ctx, msgs)
		err := onOwn`, `		p.claimed(ctx, msgs)
		if err := settle(ctx, tx, true); err != nil {
			return err
		}
		settle = func(context.Context, TTx, bool) error { return nil }
		err := onOwn`,
	}),
	operating("a letter that is being settled keeps no worker waiting", "internal/dialect/operator.go", "a_letter_that_is_being_settled_keeps_no_worker_waiting", edit{
		"ORDER BY lost, number LIMIT 1` + f.free", "ORDER BY lost, number LIMIT 1` + f.lock",
	}),
	operating("a replay that fails says why", "consumer/replayer.go", "a_letter_that_stays_in_flight_fails_for_that", edit{
		`observe.CauseInFlight && r.Tries < replayTriesMost`, `observe.CauseInFlight`,
	}),
	{
		name: "the transaction of a frozen process that takes a letter ends", file: "internal/dialect/operator_dialects.go", pkg: pgx, run: "^TestIdleTransactionsEnd$", fails: "TestIdleTransactionsEnd",
		edits: []edit{{`, set_config('idle_in_transaction_session_timeout', '10s', true)`, ``}},
	},
	{
		name: "the transaction of a frozen sweep ends", file: "internal/dialect/postgres.go", pkg: pgx, run: "^TestIdleTransactionsEnd$", fails: "TestIdleTransactionsEnd",
		edits: []edit{{`'2s', true),
	set_config('idle_in_transaction_session_timeout', $1::text, true)`, `'2s', true)`}},
	},
	operating("an operator's discard claims the aliases", "internal/operator/replays.go", "a_discard_claims_the_aliases", edit{
		`letter.AliasRecords(rec)...`, `letter.AliasRecords(rec)[:0]...`,
	}),
	operating("a discard by filter claims the aliases", "consumer/ops/discard.go", "a_discard_claims_the_aliases", edit{
		`l.Message.Headers[consumer.HeaderAliases]; found {`, `l.Message.Headers[consumer.HeaderAliases]; found && false {`,
	}),
	operating("a dry run knows that another message has claimed an alias", "consumer/ops/plan.go", "a_letter_whose_alias_is_known_needs_a_person", edit{
		`(suspected || l.Cause == observe.CauseReplay):`, `l.Cause == observe.CauseReplay:`,
	}),
	operating("a key is not explained as new if another message has claimed an alias of its letter", "consumer/ops/explain.go",
		"a_letter_whose_alias_is_known_needs_a_person", edit{`			e.Verdict = SuspectedReplay
`, ``}),
	operating("a discard uses no window that is given up", "internal/operator/replays.go", "a_discard_uses_no_window_that_is_given_up", edit{
		`rec.Window, latest =`, `_, latest =`,
	}),
	operating("a plan knows what is unprovable by now", "consumer/ops/plan.go", "a_plan_knows_what_is_unprovable_by_now", edit{
		`!storekit.Provable(rec.Time, horizon)`, `!storekit.Provable(rec.Time, time.Time{})`,
	}),
	operating("a letter that is unprovable is explained as such", "consumer/ops/explain.go", "a_key_is_explained", edit{
		`		e.Verdict = Unprovable`, `		e.Verdict = First`,
	}),
	operating("a key is explained without the letters of other tenants", "consumer/ops/explain.go", "a_key_is_explained", edit{
		`l.Record.Key == key {`, `true {`,
	}),
	{
		name: "on MySQL a request chooses no letter that the listing does not show", file: "internal/dialect/operator_dialects.go", pkg: "adapters/sqlstore",
		run: "TestOperatorMariaDB$/^dead_letters_by_filters_with_spaces_and_odd_bytes$", fails: "TestOperatorMariaDB/dead_letters_by_filters_with_spaces_and_odd_bytes",
		edits: []edit{{"return `CAST(` + col + ` AS BINARY) = CAST(? AS BINARY)`", "return col + ` = ?`"}},
	},
	handling("a replay does not remove a letter that was parked again for another cause", "replay.go", "TestALetterThatChangedAfterItWasRead", edit{
		`func(ctx context.Context, tx TTx, _ bool) error { return c.lot.TakeDeadLetter(ctx, tx, letter) })`, `func(ctx context.Context, tx TTx, _ bool) error {
		letter.Cause = observe.CauseUnknown
		return c.lot.TakeDeadLetter(ctx, tx, letter)
	})`,
	}),
	handling("the end of a trial removes only the letter of the trial", "suspect.go", "TestALetterThatChangedDuringATrial", edit{
		`DeadLetter{ID: id, Cause: observe.CauseCrashed}`, `DeadLetter{ID: id, Cause: observe.CauseUnknown}`,
	}),
	operating("a requested replay does not remove a letter that was parked again for another cause", "internal/dialect/postgres.go", "a_letter_whose_outcome_became_unknown_after_it_was_taken", edit{
		"id = $1::uuid AND cause = $2::text", "id = $1::uuid AND $2::text <> ''",
	}),
	operating("a letter whose worker ended keeps no others waiting", "internal/dialect/operator.go", "a_letter_whose_worker_ended_comes_after_the_others", edit{
		"ORDER BY lost, number LIMIT 1", "ORDER BY number LIMIT 1",
	}),
	operating("a letter that ends its workers fails", "consumer/replayer.go", "a_letter_that_ends_its_workers_fails", edit{
		`r.Lost >= replayLostMost`, `r.Lost > 1000*replayLostMost`,
	}),
	operating("many requests that wait for their turn keep no other waiting", "internal/dialect/operator.go", "many_requests_that_wait_for_their_turn_keep_no_other_waiting", edit{
		"ORDER BY CASE WHEN next_at > ` + f.now + ` THEN 1 ELSE 0 END, requested_at", "ORDER BY requested_at",
	}),
	operating("a slow request ends with its last letter", "internal/operator/replays.go", "a_slow_request_ends_with_its_last_letter", edit{
		`if err == nil && left == 0 { // the turn`, `if err == nil && left < 0 { // the turn`,
	}),
	operating("a letter that is gone after its handler keeps its request open no longer", "consumer/replayer.go", "a_letter_that_is_discarded_while_its_handler_runs", edit{
		`		return 0, queue.ReturnReplay(ctx, r, "", "", 0)
	case cause == observe.CauseCancelled:`, `		return 0, nil
	case cause == observe.CauseCancelled:`,
	}),
	{
		name: "a dead letter from a time when the clock was wrong moves no others", file: "internal/dialect/sqlite.go", pkg: "adapters/sqlstore",
		run: "^TestParkedWhileTheClockWasWrong$/^sqlite$", fails: "TestParkedWhileTheClockWasWrong/sqlite", short: true,
		edits: []edit{{` AND first_parked BETWEEN @clock AND @clock + 999`, ``}},
	},
	{
		name: "messages that are given up within a millisecond are replayed in order", file: "internal/dialect/sqlite.go", pkg: "adapters/sqlstore",
		run: "^TestSQLiteParksWithinOneMillisecond$", fails: "TestSQLiteParksWithinOneMillisecond", short: true,
		edits: []edit{{`max(first_parked) + 1`, `max(first_parked)`}},
	},
	{
		name: "a message whose claim was swept during an audit is not lost", file: "consumer/ops/audit/messages.go", pkg: "consumer/ops/audit", run: "^TestMessagesWhoseClaimsAreSwept$/^sqlite$",
		fails: "TestMessagesWhoseClaimsAreSwept/sqlite", short: true, edits: []edit{{`		case expired(m, horizon):
			r.Checked--`, `		case false:
			r.Checked--`}},
	},
	{
		name: "an audit says which offsets a silent broker has not returned", file: "cmd/txonce/reread.go", pkg: "cmd/txonce", run: "^TestRereadOfASilentBroker$",
		fails: "TestRereadOfASilentBroker", short: true, edits: []edit{{`			s.left[partition] = fmt`, `			_ = fmt`}},
	},
	{
		name: "tables that do not work with this program are not touched", file: "adapters/cli/config.go", pkg: "cmd/txonce", run: "^TestTablesOfANewerRelease$",
		fails: "TestTablesOfANewerRelease", short: true, edits: []edit{{`err == nil && need > known {`, `err == nil && need > 1000+known {`}},
	},
	{
		name: "a closed consumer does not keep its process from being ready", file: "consumer/start.go", pkg: "consumer/ops", run: "^TestHealthOfAClosedConsumer$",
		fails: "TestHealthOfAClosedConsumer", short: true, edits: []edit{{`		p.End(context.Background())`, `		_ = p`}},
	},
	{
		name: "a process is not ready because another subscriber of the queue is", file: "consumer/ops/health.go", pkg: "consumer/ops", run: "^TestHealthOfTwoSubscribers$",
		fails: "TestHealthOfTwoSubscribers", short: true, edits: []edit{{`at, of := source{trace, e.System, e.Source}`, `at, of := source{0, e.System, e.Source}`}},
	},
	handling("a replay that was held up is not parked", "replay.go", "TestOutcomesOfReplays", edit{`		o.Outcome = observe.Held
`, ``}),
	handling("the end of a pause is reported after its beginning", "pause.go", "TestPausesAreReportedUnderTheirLock", edit{
		`	report := p.report.Failing(ctx, faults >= faultsToLog, err, about...)
	p.mu.Unlock()`, `	p.mu.Unlock()
	report := p.report.Failing(ctx, faults >= faultsToLog, err, about...)`,
	}),
	handling("a hook that panics has no effect", "trace.go", "TestHooksThatPanic", edit{
		`p.panics.Call(ctx, "Done", func() { p.hooks.Done(ctx, &p.delivery, p.outcomes) })`, `p.hooks.Done(ctx, &p.delivery, p.outcomes)`,
	}),
	observing("a hook that panics does not keep others from being called", "hooks.go", "TestPanics", edit{
		`		defer second(ctx, e) // also when first panics
		first(ctx, e)`, `		first(ctx, e)
		second(ctx, e)`,
	}),
	observing("no hook is called under a lock, and Paused and Resumed alternate", "pause.go", "TestPauseAlternates", edit{
		`	p.order.Add(func() { Call(ctx, p.Panics, name, hook, e) })`, `	go Call(ctx, p.Panics, name, hook, e)`,
	}),
	observing("a continuing pause is logged once a minute", "pause.go", "TestPauseIsLoggedOnceAMinute", edit{`now.Sub(p.logged) >= every`, `false`}),
}
