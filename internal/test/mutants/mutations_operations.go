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
		"AND outcome = '' AND taken_until <= ` + f.now + `\n", "AND outcome = ''\n",
	}),
	operating("a probe leaves nothing behind", pgx+"/operator_probe.go", "a_probe_leaves_nothing_behind", edit{
		`			rollback(ctx, c.tx)`, `			_ = c.tx.Commit(ctx)`,
	}),
	operating("a letter belongs to one open request", "internal/dialect/operator.go", "a_letter_belongs_to_one_open_request", edit{
		"AND o.outcome = '')`", "AND false)`",
	}),
	operating("the end of a request releases its letters", "internal/operator/actions.go", "the_end_of_a_request_releases_its_letters", edit{
		`	_, err = q.ExecContext(ctx, st.Unmark, id(action))
	return err`, `	return nil`,
	}),
	operating("an unexpected number of letters is refused", "internal/operator/actions.go", "an_unexpected_number_is_refused_and_leaves_nothing", edit{
		`n != int64(r.Expect)`, `n < 0`,
	}),
	operating("the rate of a request is that of all workers", "internal/operator/replays.go", "the_rate_is_that_of_all_workers", edit{
		`a.rate <= 0 {`, `a.rate <= 1e6 {`,
	}),
	handling("a hook that panics has no effect", "trace.go", "TestHooksThatPanic", edit{`		defer p.panics.Recover(ctx, "Done")`, ``}),
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
