package main

var handlerRows = []row{
	{
		promise: "A wrapper that hides that its store keeps dead letters, or that it verifies transactions, is refused by name.",
		in:      "consumer.(*Config).storeLacks",
		body:    `return nil`,
		fails:   "TestNewRefusesAStoreThatLost in consumer",
	},
	{
		promise: "A statement that would end the handler's transaction is recognised, however it is written, and refused.",
		in:      "internal/dialect.Inspect",
		body: `c = inspectOriginal(sql)
		c.Ends = false
		return c`,
		fails: "TestInspect in internal/dialect",
	},
	{
		promise: "The next handler of a batch does not run in a transaction that an earlier handler has ended.",
		in:      "adapters/pgxstore.(*Store).VerifyTx",
		body:    `return nil`,
		fails:   "TestVerifyTx in adapters/pgxstore",
	},
	{
		promise: "oncevet finds statements of a handler that do not run in its transaction.",
		in:      "cmd/oncevet/oncecheck.(*flow).statement",
		body:    `return`,
		fails:   "TestHandlers in cmd/oncevet/oncecheck",
	},
	{
		promise: "TestHandler finds a handler that enqueues other messages when it runs again.",
		in:      "consumer/consumertest.sameOutgoing",
		body:    `return`,
		fails:   "TestHandlersAndStoresThatAreBrokenAreFound in consumer/consumertest",
	},
	{
		promise: "Package chaos never makes an acknowledgement of a failure.",
		in:      "consumer/chaos.joined",
		body:    `return errs`,
		fails:   "TestACopyFails in consumer/chaos",
	},
	{
		promise: "A message that package chaos delivers twice is what its broker would deliver again.",
		in:      "consumer/chaos.(faults).copies",
		body:    `return msgs`,
		fails:   "TestACopyHasMemoryOfItsOwn in consumer/chaos",
	},
	{
		promise: "A message whose transaction a handler has ended is parked, and no later claim makes it a duplicate.",
		in:      "consumer/internal/decide.Doubts",
		body:    `return false, false`,
		fails:   "TestBatches in consumer/consumertest",
	},
	{
		promise: "Messages of unknown outcome are parked before another process can get them.",
		in:      "consumer.(*batch).parkDoubts",
		body:    `return`,
		fails:   "TestMessagesInDoubtAreParkedBeforeAnotherProcessGetsThem in consumer",
	},
	{
		promise: "A message whose COMMIT succeeded without an answer is not parked.",
		in:      "consumer.(*parking).write",
		body: `none := *p
		none.it = &item{msg: p.it.msg}
		return none.writeOriginal(ctx, letter)`,
		fails: "TestParkingSettlesAnUnknownCommit in consumer",
	},
	{
		promise: "A message is parked after MaxAttempts failures.",
		in:      "consumer.New",
		body: `cfg.MaxAttempts = 1000
		return newOriginal(cfg)`,
		fails: "TestAttempts in consumer",
	},
	{
		promise: "A failure that the handler marks as Permanent is parked at once.",
		in:      "consumer.IsPermanent",
		body:    `return false`,
		fails:   "TestWhatIsParkedAndWhy in consumer",
	},
	{
		promise: "A retry comes no sooner than the handler asks for with RetryAfter.",
		in:      "consumer.RetryAfter",
		body:    `return retryAfterOriginal(err, 0)`,
		fails:   "TestAttempts in consumer",
	},
	{
		promise: "A message whose key was used for other content is parked as a mismatch.",
		in:      "consumer.New",
		body: `cfg.Fingerprint = NoFingerprint
		return newOriginal(cfg)`,
		fails: "TestWhatIsParkedAndWhy in consumer",
	},
	{
		promise: "No message is parked because of a failure of the database: the consumer pauses.",
		in:      "consumer/internal/decide.blame",
		body:    `return p, true`,
		fails:   "TestAttempts in consumer",
	},
	{
		promise: "A database error that only one message meets counts as its failure in the end, and its batch goes on.",
		in:      "consumer/internal/decide.blame",
		body: `p, _ = blameOriginal(f, p, n)
		return p, false`,
		fails: "TestCulpritsDoNotStopTheirBatch in consumer",
	},
	{
		promise: "A transaction_timeout that a slow claim used up does not park the message while others are committed.",
		in:      "consumer/internal/decide.blame",
		body: `n.Quick = true
		return blameOriginal(f, p, n)`,
		fails: "TestASlowClaimBlamesNoHandler in internal/test/system/verdicts",
	},
	{
		promise: "A shutdown, a crash or a lost connection does not count as a failure of a message.",
		in:      "consumer/internal/decide.spent",
		body:    `return spentOriginal(seen+100, attempt, n)`,
		fails:   "TestCrashesAreNoFailures in consumer",
	},
	{
		promise: "A message that ends each process that handles it is parked.",
		in:      "consumer.(*trial).begin",
		body: `times, err = t.beginOriginal(ctx, id)
		return min(times, 0), err`,
		fails: "TestAMessageThatEndsEachProcessIsParked in consumer",
	},
	{
		promise: "A handler that exceeds HandlerTimeout has failed.",
		in:      "consumer.New",
		body: `cfg.HandlerTimeout = 0
		return newOriginal(cfg)`,
		fails: "TestHandlerTimeout in consumer",
	},
	{
		promise: "A handler's panic is an error with its stack, and does not end the process.",
		in:      "consumer.onThisGoroutine",
		body:    `return f()`,
		fails:   "TestPanicsAreReportedWithTheirStack in consumer",
	},
	{
		promise: "Later messages of an ordering key wait for a failed one.",
		in:      "consumer.(*batch).fail",
		body:    `b.errs[i] = err`,
		fails:   "TestABatchHoldsBackOnlyItsOwnKey in consumer",
	},
	{
		promise: "A failing message of a batch is found, and the others are committed.",
		in:      "consumer.(*attempt).named",
		body:    `return nil`,
		fails:   "TestABatchIsTakenApart in consumer",
	},
	{
		promise: "When many messages fail in a row, parking stops at a limit until the handler works again.",
		in:      "consumer.New",
		body: `cfg.ParkLimit = ParkLimit{Unlimited: true}
		return newOriginal(cfg)`,
		fails: "TestParkLimit in consumer",
	},
	{
		promise: "A dead letter that the database refuses is stored shortened. A replay then needs the whole message.",
		in:      "consumer.shortened",
		body:    `return letter, false`,
		fails:   "TestALetterThatTheDatabaseRefusesIsShortened in consumer",
	},
	{
		promise: "A discarded message stays discarded: its key is claimed.",
		in:      "consumer.(*Consumer).Discard",
		body:    `return c.cfg.Store.InTx(ctx, nil, func(tx TTx, _ []dedup.Claim) error { return c.letters.lot.TakeDeadLetter(ctx, tx, letter) })`,
		fails:   "TestDiscard in consumer",
	},
	{
		promise: "The content of a discarded message is not handled under another ID either.",
		in:      "consumer.(DeadLetter).AliasRecords",
		body:    `return nil`,
		fails:   "TestDiscardClaimsAliases in consumer",
	},
	{
		promise: "Replay does not run a message that may have happened already, unless an operator says AsNew.",
		in:      "consumer.(*Consumer).Replay",
		body: `opts.AsNew = true
		return c.replayOriginal(ctx, letter, opts)`,
		fails: "TestReplay in consumer",
	},
	{
		promise: "A start waits until the database can be reached.",
		in:      "consumer.(*registration).fatalAtStart",
		body:    `return true`,
		fails:   "TestStartWaitsOutAnOutage in consumer",
	},
	{
		promise: "A configuration without a required field is refused at construction, by the field's name.",
		in:      "consumer.New",
		body: `if cfg.Key == nil {
			cfg.Key = MessageID
		}
		return newOriginal(cfg)`,
		fails: "TestNewNamesTheFieldItRefuses in consumer",
	},
	{
		promise: "Hooks of a Trace that panic have no effect.",
		in:      "internal/hooks.(*Panics).Call",
		body:    `f()`,
		fails:   "TestHooksThatPanic in consumer",
	},
	{
		promise: "Pipeline: a statement that fails counts against its own message.",
		in:      "adapters/pgxstore.(*queue).culprit",
		body:    `return q.owners[0].msg`,
		fails:   "TestPipelineNamesTheMessageThatFails/describe_exec in adapters/pgxstore",
	},
	{
		promise: "Interleave: messages with one ordering key are handled in order.",
		in:      "adapters/pgxstore.(*Store).Interleave",
		body:    `return s.interleaveOriginal(ctx, tx, make([]string, len(keys)), handlers)`,
		fails:   "TestInterleaveKeepsTheOrder in adapters/pgxstore",
	},
}
