package main

// handling is a mutation of the consumer that the test of that name must notice.
func handling(name, file, test string, edits ...edit) mutation {
	return mutation{name: name, file: "consumer/" + file, edits: edits, pkg: "consumer", run: "^" + test + "$", fails: test}
}

// ending is a mutation that the tests of handlers that end the transaction of their batch must notice.
func ending(name, file string, edits ...edit) mutation {
	return mutation{name: name, file: file, edits: edits, pkg: "consumer/consumertest", run: "^TestBatches$", fails: "TestBatches"}
}

var consumerMutations = []mutation{
	handling("the handler runs for a new message and not for a known one", "attempt.go", "TestEffectsOfAMessageHappenOnce", edit{
		`case ans.verdict == dedup.First:
				first`,
		`default:
				first`,
	}),
	handling("a message with a known key and different content is parked", "attempt.go", "TestWhatIsParkedAndWhy", edit{
		`ans.refused = refuse(observe.CauseMismatch, dedup.ErrMismatch)`, `ans.verdict = dedup.Duplicate`,
	}),
	handling("a stranger's replays do not stop other messages", "refusallimit.go", "TestRefusedMessagesStopNoOthers", edit{
		`case observe.CauseMismatch, observe.CauseReplay, observe`, `case observe`,
	}),
	handling("a known alias parks", "attempt.go", "TestFurtherKeys", edit{
		`if alias.Verdict != dedup.First {
				ans.refused`,
		`if alias.Verdict == 99 {
				ans.refused`,
	}),
	handling("a function of Config that ends its goroutine parks its message", "prepare.go", "TestWhatIsParkedAndWhy", edit{
		`if usercode.Run(func() { prepare(false) }) != nil {`, `if prepare(false); usercode.Run(func() {}) != nil {`,
	}),
	handling("a handler that ends its goroutine has failed, and the pass goes on", "attempt.go", "TestAHandlerThatEndsItsGoroutine", edit{
		`err = onOwnGoroutine("the handler", func() error {`, `err = onThisGoroutine(func() error {`,
	}),
	handling("a handler's panic is an error", "prepare.go", "TestPanicsAreReportedWithTheirStack", edit{
		`		err = &PanicError{`, `		_ = &PanicError{`,
	}),
	handling("no message is parked because of a database failure", "judge.go", "TestAttempts", edit{
		`case b.c.cfg.Store.Retryable(err) && !late && !b.faultCounts(ctx, it, err): // even`, `case false: // even`,
	}),
	handling("a batch that a faulty database refuses is not taken apart", "batch.go", "TestABatchAndAFaultyDatabase", edit{
		`case !a.claimed && b.c.cfg.Store.Retryable(a.err) && !errors.Is`, `case false && !errors.Is`,
	}),
	handling("after a deadlock the batches of later passes are smaller", "batch.go", "TestBatchesThatDeadlockStaySmall", edit{
		`n := b.c.limit.of(min(most, len(todo)))`, `n := min(most, len(todo))`,
	}),
	handling("a batch may take any number of transactions", "batch.go", "TestABatchOfManyTransactions", edit{
		`2 * min(most, len(todo))`, `2 * most`,
	}),
	handling("batches become large again after deadlocks", "batchlimit.go", "TestBatchesThatDeadlockStaySmall", edit{
		`l.most *= 2;`, `l.most *= 1;`,
	}),
	handling("the log of a pause names its cause", "pause.go", "TestAPauseNamesItsCause", edit{
		`case errors.Is(err, dedup.ErrNameTaken):`, `case false:`,
	}),
	handling("a shutdown counts no attempt", "batch.go", "TestAContextThatEndsCountsAgainstNobody", edit{
		`case ctx.Err() != nil: // a shutdown`, `case false: // a shutdown`,
	}),
	handling("a copy that another process is handling counts no attempt", "judge.go", "TestATwinInAnotherProcessIsDeferredWithoutBlame", edit{
		`case errors.Is(err, dedup.ErrInFlight) && !late:`, `case false:`,
	}),
	handling("both halves of a failed batch are tried", "batch.go", "TestABatchIsTakenApart", edit{
		`		b.run(ctx, todo[len(todo)/2:])
`, ``,
	}),
	handling("a message that a BatchHandler names is tried alone", "attempt.go", "TestABatchIsTakenApart", edit{
		`a.culprits = b.named(err, answers, first)`, ``,
	}),
	handling("a BatchHandler that always names a wrong message costs no transaction for each message", "attempt.go", "TestALyingMessageError", edit{
		`!ok || b.before >= mostNamed ||`, `!ok ||`,
	}),
	handling("a message that a BatchHandler names after a timeout is not blamed", "attempt.go", "TestAMessageErrorAfterATimeout", edit{
		` || errors.Is(err, ErrHandlerTimeout) {`, ` {`,
	}),
	handling("later messages of a failed message's key wait", "judge.go", "TestABatchHoldsBackOnlyItsOwnKey", edit{
		`	b.blocked[key] = blockedKey{`, `	_ = blockedKey{`,
	}),
	handling("after failures in a row, a batch is tried in ever smaller parts", "batch.go", "TestTheCostOfABatchWhoseMessagesFail", edit{
		`most = max(n/2, 1)`, `most = n`,
	}),
	handling("a batch waits only once for keys that another transaction holds", "heldkeys.go", "TestABatchWithATwinInFlight", edit{
		`	if !w.short {
		return ctx`,
		`	if true {
		return ctx`,
	}),
	{
		name: "one query finds which keys of a batch another transaction holds", file: "consumer/batch.go", pkg: pgx,
		run: "^TestABatchWaitsOnceForKeysInFlight$", fails: "TestABatchWaitsOnceForKeysInFlight",
		edits: []edit{{`b.deferHeldKeys(ctx, todo, epoch, a.err):`, `false && b.deferHeldKeys(ctx, todo, epoch, a.err):`}},
	},
	ending("no handler runs in a transaction that another handler ended", "consumer/attempt.go", edit{
		`if err == nil && verifies && k+1 < len(first) {`, `if err == nil && false && k+1 < len(first) {`,
	}),
	ending("a claim of a transaction that a handler ended makes no message a duplicate", "consumer/attempt.go", edit{
		`case doubtful:`, `case doubtful && false:`,
	}),
	ending("a handler that ended its transaction does not run again for that message", "consumer/attempt.go", edit{
		`		b.addDoubts(a, answers, ran, suspects, true)
`, `		b.addDoubts(a, answers, ran, nil, true)
`,
	}),
	ending("a claim of unknown outcome does not complete its message", "consumer/park.go", edit{
		`if !doubtful || !maybe {`, `if true || !doubtful || !maybe {`,
	}),
	ending("Replay with AsNew runs a dead letter of unknown outcome", "consumer/replay.go", edit{
		`if letter.Cause == observe.CauseUnknown { // a claim`, `if false { // a claim`,
	}),
	ending("without AsNew, Replay does not run a dead letter of unknown outcome", "consumer/replay.go", edit{
		`if letter.Cause == observe.CauseUnknown && !opts.AsNew {`, `if false {`,
	}),
	{
		name: "a sweep keeps dead letters of unknown outcome", file: "internal/dialect/postgres.go", pkg: "adapters/sqlstore",
		run: "^TestBatches$/^SQLite$/^alone$", fails: "TestBatches/SQLite/alone",
		edits: []edit{{`d.cause <> 'outcome_unknown' AND`, `true AND`}},
	},
	handling("Close releases only a name that it has", "start.go", "TestCloseGivesTheNameBack", edit{
		`ok && c.registered.Load() {`, `ok {`,
	}),
	handling("Close releases the name also if a source was added since", "start.go", "TestCloseAfterALateSourceGivesTheNameBack", edit{
		`ok && c.registered.Load() {`, `ok && c.started.Load() {`,
	}),
	handling("a message whose COMMIT succeeded without an answer is not parked", "park.go", "TestParkingSettlesAnUnknownCommit", edit{
		`if it.rec.Key.ID != "" && !errors.Is(failed, dedup.ErrKeyCollision) {`, `if false {`,
	}),
	handling("a parked message leaves no claim", "park.go", "TestReplay", edit{
		`if err := b.c.cfg.Store.Forget(ctx, tx, it.rec.Key); err != nil {`, `if err := error(nil); err != nil {`,
	}),
	handling("two messages of equal bytes and different keys are two dead letters", "park.go", "TestTwoLettersAreTwo", edit{
		`"key", it.rec.Key.Consumer, it.rec.Key.Tenant, it.rec.Key.ID}`, `"key", it.rec.Key.Consumer, it.rec.Key.Tenant}`,
	}),
	handling("failed parking is retried and counts no attempt", "park.go", "TestParkingThatFailsIsRetriedWithoutBlame", edit{
		`b.parkFailed(ctx, i, epoch, fmt.Errorf("park: %w", err))`, `_ = epoch
		b.fail(i, err, cause)`,
	}),
	handling("a consumer pauses when its parking limit is reached", "park.go", "TestParkLimit", edit{
		`; wait > 0 {`, `; wait > 0 && false {`,
	}),
	handling("a handler that exceeds HandlerTimeout counts as failed, also if the server goes on with it", "park.go", "TestHandlerTimeoutCountsWhenTheServerGoesOn", edit{
		`if cause == observe.CauseUnknown && it.counted != nil {`, `if it.counted != nil && it.done {`,
	}),
	handling("RunReplays records neither a source nor a window before the Subscriber has started", "replayer.go", "TestReplaysRecordNothingBeforeTheStart", edit{
		`	c.awaitStart(ctx)
`, ``,
	}),
	handling("a replay claims the key of the parked message", "replay.go", "TestReplay", edit{
		`	if rec.Key != own.Key && (`, `	if rec.Key.ID != "" && (`,
	}),
	handling("a discarded message stays discarded", "replay.go", "TestDiscard", edit{
		`recs = append([]dedup.Record{rec}, letter.AliasRecords(rec)...)`, `_ = rec`,
	}),
	handling("a discarded message does not happen through another one with its content", "replay.go", "TestDiscardClaimsAliases", edit{
		`recs = append([]dedup.Record{rec}, letter.AliasRecords(rec)...)`, `recs = append([]dedup.Record{rec}, letter.AliasRecords(rec)[:0]...)`,
	}),
	handling("a dead letter keeps the aliases of its message", "park.go", "TestReplay", edit{`HeaderAliases: aliases.Join(ids),`, `HeaderAliases: aliases.Join(ids[:0]),`}),
	handling("a dead letter that the database refuses is stored shortened", "shortened.go", "TestALetterThatTheDatabaseRefusesIsShortened", edit{
		`shortened(whole, to, err); changed {`, `shortened(whole, to, err); changed && false {`,
	}),
	handling("a dead letter that cannot be stored stops no other message", "shortened.go", "TestALetterThatCannotBeStoredStopsNoOther", edit{
		`if !b.c.refuses(ctx, err) {`, `if true {`,
	}),
	handling("a shortened dead letter is not replayed without its whole message", "replay.go", "TestALetterThatTheDatabaseRefusesIsShortened", edit{
		`letter.lacks(msgs[0], opts.Repair != nil); err != nil {`, `letter.lacks(msgs[0], opts.Repair != nil); err != nil && false {`,
	}),
	handling("a message whose alias is known meanwhile is not replayed without AsNew", "replay.go", "TestReplay", edit{
		`case suspected, letter.Cause == observe.CauseReplay:`, `case letter.Cause == observe.CauseReplay:`,
	}),
	handling("a replay that finds its message processed claims no alias", "replay.go", "TestReplay", edit{`			unused := free
`, `			unused := free[:0]
`}),
	handling("a replay does not believe a reserved header that was delivered", "park.go", "TestReplay", edit{`delete(headers, name)`, ``}),
	handling("a replayed message has only the aliases that it has claimed", "replay.go", "TestReplayedMessage", edit{
		`for _, alias := range free {
			msgs`, `for _, alias := range aliases {
			msgs`,
	}),
	handling("a replayed message has the key that it is claimed under as its ID", "replay.go", "TestReplayedMessage", edit{`		msg.ID = opts.Key
`, ``}),
	handling("a replayed message has the fingerprint that it is claimed with", "replay.go", "TestReplayedMessage", edit{
		`	msg.Fingerprint = &keys[0].Fingerprint`, `	msg.Fingerprint = nil`,
	}),
	handling("a repaired payload does not have the fingerprint of the original", "replay.go", "TestReplayedMessage", edit{
		` && (own.Fingerprint.IsZero() || !bytes.Equal(msg.Payload, letter.Message.Payload)) {`, ` && own.Fingerprint.IsZero() {`,
	}),
	handling("of two messages with one key, both replayed under the same new key, none is dropped", "replay.go", "TestTwoMismatchesUnderOneNewKey", edit{
		` && (own.Fingerprint.IsZero() || !bytes.Equal(msg.Payload, letter.Message.Payload)) {`, ` {`,
	}),
	handling("copies of a message in one process wait for each other", "keylock.go", "TestAStormOfCopiesIsOneTransaction", edit{
		`	if !held {
		if l.keys`,
		`	if !held || true {
		if l.keys`,
	}),
	handling("a consumer without a Key function is refused", "config.go", "TestNewNamesTheFieldItRefuses", edit{
		`	case cfg.Key == nil:
		return`,
		`	case cfg.Key == nil && false:
		return`,
	}),

	// Pauses, faults of one message, time.
	handling("no handler runs while the parking limit is reached, except for probes", "parkbudget.go", "TestHandlersDoNotRunWhileTheParkingLimitIsSpent", edit{
		`	case !b.spent || b.most >= probesMost:`, `	case true:`,
	}),
	handling("after a failed probe no other probe follows at once", "parkbudget.go", "TestProbesThatFailAreRare", edit{
		`b.most, b.next = 1, time.Now().Add(b.bucket.Interval())`, `b.most = 1`,
	}),
	handling("after a successful probe more messages may run", "parkbudget.go", "TestGoodMessagesGoOnWhenTheFloodIsOver", edit{
		`b.most = min(2*b.most, probesMost)`, `b.most = min(b.most, probesMost)`,
	}),
	handling("a probe that proves nothing ends too", "batch.go", "TestAProbeThatShowsNothing", edit{
		`			b.c.budget.settle(showedNothing)`, ``,
	}),
	handling("a database failure that only one message meets counts attempts in the end", "blame.go", "TestCulpritsDoNotStopTheirBatch", edit{
		`counts := others && met >= v.Beside`, `counts := others && met < 0`,
	}),
	handling("a database failure that every message meets never counts attempts", "history.go", "TestWhatEveryMessageMeetsIsNotCounted", edit{
		`others = p.faults > 0 && h.commits > p.commits`, `others = p.faults > 0`,
	}),
	handling("a message that failed before does not stop its batch", "suspect.go", "TestCulpritsDoNotStopTheirBatch", edit{
		`it.culprit = it.rec.Key.ID != "" && (past.faults > 0 || past.contended > 0)`, `it.culprit = past.faults < 0`,
	}),
	handling("a message that failed before is not overtaken by messages of its key", "suspect.go", "TestACulpritKeepsItsOrder", edit{
		`			keys[it.msg.Key] = true`, ``,
	}),
	handling("disagreeing clocks never count attempts", "blame.go", "TestClocksThatDisagreeParkNothing", edit{
		`if errors.Is(err, dedup.ErrClocks) {`, `if errors.Is(err, dedup.ErrClocks) && false {`,
	}),
	handling("a message refused for disagreeing clocks stops no other message", "batch.go", "TestClocksThatDisagreeParkNothing", edit{
		` && !errors.Is(a.err, dedup.ErrClocks): // the messages`, `: // the messages`,
	}),
	handling("a crash of the process counts no attempt", "judge.go", "TestCrashesAreNoFailures", edit{
		`seen >= min(2, most)`, `seen >= 1`,
	}),
	handling("a message that ends every process that handles it is parked", "suspect.go", "TestAMessageThatEndsEachProcessIsParked", edit{
		`	if times >= trialsMost {
		it.refused`,
		`	if false {
		it.refused`,
	}),
	handling("a stop during a trial does not count as a crash", "suspect.go", "TestAStopDuringATrial", edit{
		`context.WithTimeout(context.WithoutCancel(ctx), takeWithin)`, `context.WithTimeout(ctx, takeWithin)`,
	}),
	handling("a handler that exceeds HandlerTimeout has failed", "handlertime.go", "TestHandlerTimeout", edit{
		`	case err == nil:
		return fmt`,
		`	case err == nil:
		return nil
	case false:
		return fmt`,
	}),
	handling("a handler that exceeds HandlerTimeout counts an attempt", "judge.go", "TestHandlerTimeout", edit{
		`late := errors.Is(err, ErrHandlerTimeout)`, `late := false`,
	}),
	handling("a slow handler is logged", "handlertime.go", "TestASlowHandlerIsLogged", edit{
		`		c.logSlow(ctx, key, msgs, began)`, `		_ = began`,
	}),
	{
		name: "a message's time is judged by the database's clock", file: "dedup/record.go", pkg: "dedup/deduptest", run: "^TestStoreInMemory$/^clocks_that_disagree",
		fails: "TestStoreInMemory/clocks_that_disagree_are_not_the_message's_fault", short: true,
		edits: []edit{{`skew.Abs() > MaxClockSkew`, `skew.Abs() > MaxClockSkew*1000`}},
	},
	handling("messages of unknown outcome are parked before they are given back", "batch.go", "TestMessagesInDoubtAreParkedBeforeAnotherProcessGetsThem", edit{
		`	b.parkDoubts(ctx)
`, ``,
	}),
	handling("messages of unknown outcome are kept until parking succeeds", "doubt.go", "TestMessagesInDoubtAreParkedBeforeAnotherProcessGetsThem", edit{
		`		waiting = append(waiting, i)
		failed++`, `		failed++
		break`,
	}),
	handling("a message stays of unknown outcome while another transaction holds its claim", "doubt.go", "TestMessagesInDoubtAreParkedBeforeAnotherProcessGetsThem", edit{
		`			b.claimWait.waited()
		}
		if b.errs[i] == nil ||`, `			b.claimWait.waited()
			continue
		}
		if b.errs[i] == nil ||`,
	}),
	handling("a transaction that is known to be rolled back is not of unknown outcome", "attempt.go", "TestAttempts", edit{
		`case ended && !errors.Is(a.err, dedup.ErrRolledBack):`, `case ended:`,
	}),
	handling("the parking limit does not apply to messages of unknown outcome", "park.go", "TestMessagesInDoubtAreParkedBeforeAnotherProcessGetsThem", edit{
		`limited := cause != observe.CauseUnknown`, `limited := true`,
	}),
	handling("interleaved: after a failure, the messages run one after the other", "interleave.go", "TestInterleaveThatFailsCountsAgainstNobody", edit{
		`		b.plain = true
`, ``,
	}),
	handling("interleaved: after a failure, it stops for a while", "interleave.go", "TestInterleaveStopsForAWhileAfterAFailure", edit{
		`|| b.c.plainly.now() {`, `{`,
	}),
	handling("interleaved: a message that has failed before does not cost others their work", "interleave.go", "TestInterleaveLeavesOutMessagesThatHaveFailed", edit{
		`if b.c.history.knows(answers[j].item.hash) {`, `if b.c.history.knows(answers[j].item.hash) && false {`,
	}),
	handling("interleaved: a message is never judged by a transaction that it shares", "interleave.go", "TestInterleaveForksTheNewMessagesOfABatch", edit{
		`len(places) < 2 ||`, ``,
	}),
	handling("interleaved: a handler that had not returned when another ended the transaction is in doubt", "attempt.go", "TestInterleaveWhenAHandlerEndsTheTransaction", edit{
		`a.complete = first[:failed]`, `a.complete = first`,
	}),
	handling("Interleave is refused where it has no effect", "config.go", "TestInterleaveIsRefusedWhereItHasNoEffect", edit{
		`cfg.Interleave && !forks {`, `cfg.Interleave && !forks && false {`,
	}),
}
