package main

// handling is a mutation of the consumer that the test of that name must notice.
func handling(name, file, test string, edits ...edit) mutation {
	return mutation{name: name, file: "consumer/" + file, edits: edits, pkg: "consumer", run: "^" + test + "$", fails: test}
}

// ending is a mutation that a handler which ends the transaction of its batch must show.
func ending(name, file string, edits ...edit) mutation {
	return mutation{name: name, file: file, edits: edits, pkg: "consumer/consumertest", run: "^TestBatches$", fails: "TestBatches"}
}

var consumerMutations = []mutation{
	handling("a new message runs, a known one does not", "attempt.go", "TestEffectsOfAMessageHappenOnce", edit{
		`case ans.verdict == dedup.First:
				first`,
		`default:
				first`,
	}),
	handling("other content is parked", "attempt.go", "TestWhatIsParkedAndWhy", edit{
		`ans.refused = refuse(ReasonMismatch, dedup.ErrMismatch)`, `ans.verdict = dedup.Duplicate`,
	}),
	handling("a known alias parks", "attempt.go", "TestFurtherKeys", edit{
		`if alias.Verdict != dedup.First {
				ans.refused`,
		`if alias.Verdict == 99 {
				ans.refused`,
	}),
	handling("a panic is an error", "handlertime.go", "TestPanicsAreReportedWithTheirStack", edit{
		`		defer recoverPanic(&err)`, `		defer func() {
			if recover() != nil {
				err = nil
			}
		}()`,
	}),
	handling("a faulty database parks nothing", "judge.go", "TestAttempts", edit{
		`case b.c.cfg.Store.Retryable(err) && !late && !b.faultCounts(ctx, it, err): // even`, `case false: // even`,
	}),
	handling("a batch that a faulty database refuses is not taken apart", "batch.go", "TestABatchAndAFaultyDatabase", edit{
		`case !a.claimed && b.c.cfg.Store.Retryable(a.err) && !errors.Is`, `case false && !errors.Is`,
	}),
	handling("a shutdown counts against nobody", "batch.go", "TestAContextThatEndsCountsAgainstNobody", edit{
		`case ctx.Err() != nil: // a shutdown`, `case false: // a shutdown`,
	}),
	handling("a twin in flight is nobody's fault", "judge.go", "TestATwinInAnotherProcessIsDeferredWithoutBlame", edit{
		`case errors.Is(err, dedup.ErrInFlight) && !late:`, `case false:`,
	}),
	handling("the halves of a failed batch are both tried", "batch.go", "TestABatchIsTakenApart", edit{
		`		b.run(ctx, todo[len(todo)/2:])
`, ``,
	}),
	handling("later messages of a failed message's key wait", "judge.go", "TestABatchHoldsBackOnlyItsOwnKey", edit{
		`	b.blocked[key] = blockedKey{`, `	_ = blockedKey{`,
	}),
	handling("messages that fail in a row are tried in ever smaller parts", "batch.go", "TestTheCostOfABatchWhoseMessagesFail", edit{
		`most = max(n/2, 1)`, `most = n`,
	}),
	handling("a batch waits once for keys in flight", "heldkeys.go", "TestABatchWithATwinInFlight", edit{
		`	if !w.short {
		return ctx`,
		`	if true {
		return ctx`,
	}),
	{
		name: "keys in flight are told apart in one go", file: "consumer/batch.go", pkg: pgx,
		run: "^TestABatchWaitsOnceForKeysInFlight$", fails: "TestABatchWaitsOnceForKeysInFlight",
		edits: []edit{{`b.deferHeldKeys(ctx, todo, epoch, a.err):`, `false && b.deferHeldKeys(ctx, todo, epoch, a.err):`}},
	},
	ending("no handler runs in a transaction that another one ended", "consumer/attempt.go", edit{
		`if err == nil && verifies && k+1 < len(first) {`, `if err == nil && false && k+1 < len(first) {`,
	}),
	ending("what a transaction that ended had claimed is no duplicate", "consumer/attempt.go", edit{
		`case doubtful:`, `case doubtful && false:`,
	}),
	ending("a handler that ended its transaction does not run again", "consumer/attempt.go", edit{
		`		b.addDoubts(answers, ran, suspects, true, a.err)
`, `		b.addDoubts(answers, ran, nil, true, a.err)
`,
	}),
	ending("the claim of an unknown outcome settles nothing", "consumer/park.go", edit{
		`if !doubtful || !maybe {`, `if true || !doubtful || !maybe {`,
	}),
	ending("a letter of unknown outcome runs when a person says so", "consumer/replay.go", edit{
		`if letter.Reason == ReasonUnknown { // a claim`, `if false { // a claim`,
	}),
	ending("nobody but a person runs a letter of unknown outcome", "consumer/replay.go", edit{
		`if letter.Reason == ReasonUnknown && !opts.AsNew {`, `if false {`,
	}),
	{
		name: "a sweep keeps letters of unknown outcome", file: "internal/dialect/postgres.go", pkg: "adapters/sqlstore",
		run: "^TestBatches$/^SQLite$/^alone$", fails: "TestBatches/SQLite/alone",
		edits: []edit{{`d.reason <> 'outcome-unknown' AND`, `true AND`}},
	},
	handling("Close releases only a name that it has", "start.go", "TestCloseGivesTheNameBack", edit{
		`ok && c.started.Load() {`, `ok {`,
	}),
	handling("parking settles a COMMIT of unknown outcome", "park.go", "TestParkingSettlesAnUnknownCommit", edit{
		`if it.rec.Key.ID != "" && !errors.Is(cause, dedup.ErrKeyCollision) {`, `if false {`,
	}),
	handling("a parked message leaves no claim", "park.go", "TestReplay", edit{
		`if err := b.c.cfg.Store.Forget(ctx, tx, it.rec.Key); err != nil {`, `if err := error(nil); err != nil {`,
	}),
	handling("two letters of equal bytes are two", "park.go", "TestTwoLettersAreTwo", edit{
		`"key", it.rec.Key.Consumer, it.rec.Key.Tenant, it.rec.Key.ID}`, `"key", it.rec.Key.Consumer, it.rec.Key.Tenant}`,
	}),
	handling("parking that fails is tried again", "park.go", "TestParkingThatFailsIsRetriedWithoutBlame", edit{
		`b.fault(ctx, []int{i}, epoch, fmt.Errorf("park: %w", err))`, `_ = epoch
		b.fail(i, err)`,
	}),
	handling("a spent parking limit pauses", "park.go", "TestParkLimit", edit{
		`; wait > 0 {`, `; wait > 0 && false {`,
	}),
	handling("a replay claims what was parked", "replay.go", "TestReplay", edit{
		`	if rec.Key != own.Key {
		if`, `	if true {
		if`,
	}),
	handling("what is discarded stays discarded", "replay.go", "TestDiscard", edit{
		`recs = append(recs, rec)
	}
	if err == nil {
		err = c.cfg.Store.InTx`,
		`_ = rec
	}
	if err == nil {
		err = c.cfg.Store.InTx`,
	}),
	handling("copies in one process wait for each other", "keylock.go", "TestAStormOfCopiesIsOneTransaction", edit{
		`	if !held {
		if l.keys`,
		`	if !held || true {
		if l.keys`,
	}),
	handling("no default key", "config.go", "TestNewNamesTheFieldItRefuses", edit{
		`	case cfg.Key == nil:
		return`,
		`	case cfg.Key == nil && false:
		return`,
	}),

	// Pauses, faults of one message, time.
	handling("no handler runs while the parking limit is spent", "parkbudget.go", "TestHandlersDoNotRunWhileTheParkingLimitIsSpent", edit{
		`	case !b.spent || b.most >= probesMost:`, `	case true:`,
	}),
	handling("a probe that fails lets nobody follow at once", "parkbudget.go", "TestProbesThatFailAreRare", edit{
		`b.most, b.next = 1, time.Now().Add(b.bucket.Interval())`, `b.most = 1`,
	}),
	handling("a probe that succeeds eases the pause", "parkbudget.go", "TestGoodMessagesGoOnWhenTheFloodIsOver", edit{
		`b.most = min(2*b.most, probesMost)`, `b.most = min(b.most, probesMost)`,
	}),
	handling("a probe ends whatever it has shown", "batch.go", "TestAProbeThatShowsNothing", edit{
		`			b.c.budget.settle(showedNothing)`, ``,
	}),
	handling("a pause that goes on is logged once a minute", "pause.go", "TestHandlersDoNotRunWhileTheParkingLimitIsSpent", edit{
		`now.Sub(n.logged) >= noticeEvery`, `false`,
	}),
	handling("what one message alone meets counts at last", "judge.go", "TestCulpritsDoNotStopTheirBatch", edit{
		`if !others || faults <= uncounted {`, `if !others || faults > 0 {`,
	}),
	handling("what every message meets is never counted", "history.go", "TestWhatEveryMessageMeetsIsNotCounted", edit{
		`others = p.faults > 0 && h.commits > p.commits`, `others = p.faults > 0`,
	}),
	handling("known culprits do not stop their batch", "suspect.go", "TestCulpritsDoNotStopTheirBatch", edit{
		`it.culprit = it.rec.Key.ID != "" && b.c.history.faults(it.hash) > 0`, `it.culprit = false`,
	}),
	handling("a culprit is not overtaken under its key", "suspect.go", "TestACulpritKeepsItsOrder", edit{
		`			keys[it.msg.Key] = true`, ``,
	}),
	handling("clocks that disagree are never counted", "judge.go", "TestClocksThatDisagreeParkNothing", edit{
		`if errors.Is(err, dedup.ErrClocks) {`, `if errors.Is(err, dedup.ErrClocks) && false {`,
	}),
	handling("clocks that disagree stop no other message", "batch.go", "TestClocksThatDisagreeParkNothing", edit{
		` && !errors.Is(a.err, dedup.ErrClocks): // the messages`, `: // the messages`,
	}),
	handling("crashes are no failures", "judge.go", "TestCrashesAreNoFailures", edit{
		`seen >= min(2, most)`, `seen >= 1`,
	}),
	handling("a message that ends each process is parked", "suspect.go", "TestAMessageThatEndsEachProcessIsParked", edit{
		`	if times >= trialsMost {
		it.refused`,
		`	if false {
		it.refused`,
	}),
	handling("a stop is no end of a process", "suspect.go", "TestAStopDuringATrial", edit{
		`context.WithTimeout(context.WithoutCancel(ctx), takeWithin)`, `context.WithTimeout(ctx, takeWithin)`,
	}),
	handling("a handler that outlasts its limit has failed", "handlertime.go", "TestHandlerTimeout", edit{
		`	case err == nil:
		return fmt`,
		`	case err == nil:
		return nil
	case false:
		return fmt`,
	}),
	handling("a handler that outlasts its limit is to blame", "judge.go", "TestHandlerTimeout", edit{
		`late := errors.Is(err, ErrHandlerTimeout)`, `late := false`,
	}),
	handling("a slow handler is logged", "handlertime.go", "TestASlowHandlerIsLogged", edit{
		`		c.logSlow(ctx, key, msgs, began)`, `		_ = began`,
	}),
	{
		name: "only the database's clock judges a message's time", file: "dedup/record.go", pkg: "dedup/deduptest", run: "^TestStoreInMemory$/^clocks_that_disagree",
		fails: "TestStoreInMemory/clocks_that_disagree_are_not_the_message's_fault", short: true,
		edits: []edit{{`skew.Abs() > MaxClockSkew`, `skew.Abs() > MaxClockSkew*1000`}},
	},
	handling("a pass parks what is in doubt before it gives it back", "batch.go", "TestMessagesInDoubtAreParkedBeforeAnotherProcessGetsThem", edit{
		`	b.parkDoubts(ctx)
`, ``,
	}),
	handling("a parking that fails does not give up what is in doubt", "doubt.go", "TestMessagesInDoubtAreParkedBeforeAnotherProcessGetsThem", edit{
		`		waiting = append(waiting, i)
		failed++`, `		failed++
		break`,
	}),
	handling("a claim that another transaction holds is still in doubt", "doubt.go", "TestMessagesInDoubtAreParkedBeforeAnotherProcessGetsThem", edit{
		`			b.claimWait.waited()
		}
		if b.errs[i] == nil ||`, `			b.claimWait.waited()
			continue
		}
		if b.errs[i] == nil ||`,
	}),
	handling("what is known to be rolled back is not in doubt", "attempt.go", "TestAttempts", edit{
		`case ended && !errors.Is(a.err, dedup.ErrRolledBack):`, `case ended:`,
	}),
	handling("the parking limit does not hold back what is in doubt", "park.go", "TestMessagesInDoubtAreParkedBeforeAnotherProcessGetsThem", edit{
		`limited := reason != ReasonUnknown`, `limited := true`,
	}),
}
