package main

// receiving is a mutation of adapters/webhook that the test of that name must notice, without servers.
func receiving(name, file, test string, edits ...edit) mutation {
	const pkg = "adapters/webhook"
	return mutation{name: "webhook: " + name, file: pkg + "/" + file, edits: edits, pkg: pkg, run: "^" + test + "$", fails: test, short: true}
}

var webhookMutations = []mutation{
	{
		name: "webhook: a delivery without a body leaves no deadline on its connection", file: "adapters/webhook/request.go",
		pkg: "adapters/webhook/hmachook", short: true, run: "^TestEmptyBody$", fails: "TestEmptyBody",
		edits: []edit{{`_ = conn.SetReadDeadline(time.Time{})`, `_ = conn`}},
	},
	receiving("claimed work is finished although the client hangs up", "work.go", "TestTheClientHangsUp", edit{
		`wk.isClaimed = wk.detach()`, `_ = wk.detach`,
	}),
	receiving("work that is not claimed ends with its client", "work.go", "TestTheClientHangsUp", edit{
		`func() { wk.cancel(context.Cause(request)) }`, `func() {}`,
	}, edit{
		`	if !wk.isClaimed {
		wk.cancel(cause)`, `	if false {
		wk.cancel(cause)`,
	}),
	receiving("the response comes before the sender's deadline", "work.go", "TestTheSendersDeadline", edit{
		`time.NewTimer(time.Until(answerAt))`, `time.NewTimer(24 * time.Hour)`,
	}),
	receiving("an event that is not committed is never acknowledged", "work.go", "TestAnswers", edit{
		`after, deferred = max(after, retry.After), true`, `after = max(after, retry.After)`,
	}),
	receiving("an event that the Processor did not keep is never acknowledged", "work.go", "TestAnswers", edit{
		`return failed(nil)`, `continue`,
	}),
	receiving("a failing event is parked before its sender gives up", "work.go", "TestOutageOfTenMinutes", edit{
		`msg.GiveUpAt = msg.Time.Add(r.source.GiveUpAfter)`, ``,
	}),
	receiving("an outage parks nothing while the sender goes on", "work.go", "TestOutageOfTenMinutes", edit{
		`msg.GiveUpAt = msg.Time.Add(r.source.GiveUpAfter)`, `msg.GiveUpAt = msg.Time`,
	}),
	receiving("the window is not shorter than the sender's retries", "config.go", "TestNewRefusesSettings", edit{
		`w.Window() < source.Horizon`, `false`,
	}),
	receiving("events of unknown age are not handled inline", "config.go", "TestNewRefusesSettings", edit{
		`!forwards && !isNil(c.Processor) && !isNil(c.Verifier) && source.GiveUpAfter == 0`, `!forwards && false`,
	}),
	receiving("what the Verifier refuses is not handled", "verify.go", "TestRequestsThatAreRefused", edit{
		`	case why != "":
		return nil, refusal`, `	case why == "-":
		return nil, refusal`,
	}),
	receiving("the tenant of an event is its source's", "verify.go", "TestAnswers", edit{
		`e.Drop == "" && tenant != r.source.Name`, `false && tenant != r.source.Name`,
	}),
	receiving("a tenant is not that of a source whose name begins alike", "verify.go", "TestAnswers", edit{
		`strings.HasPrefix(tenant, r.source.Name+"/")`, `strings.HasPrefix(tenant, r.source.Name)`,
	}),
	receiving("a checkpoint is not saved in another process's row", "checkpoint.go", "TestACheckpointIsSavedAfterAnothers", edit{
		`claims[0].Verdict != dedup.First`, `claims[0].Verdict == 0`,
	}),
	receiving("a checkpoint is saved although others save it meanwhile", "checkpoint.go", "TestACheckpointIsSavedAfterAnothers", edit{
		`tries < 10`, `tries < 1`,
	}),
	receiving("a body is bounded before it is read", "request.go", "TestRequestsThatAreRefused", edit{
		`http.MaxBytesReader(w, req.Body, r.cfg.MaxBody)`, `req.Body`,
	}),
	receiving("a slow body does not hold a connection", "request.go", "TestSlowAndBrokenConnections", edit{
		`conn.SetReadDeadline(began.Add(r.cfg.ReadTimeout))`, `w`,
	}),
	receiving("the end of a request's context is not answered with 200", "receiver.go", "TestTheClientHangsUp", edit{
		`	res.write(w) //`, `	if req.Context().Err() == nil {
		res.write(w)
	} //`,
	}),
	receiving("Shutdown waits for handlers that outlived their request", "receiver.go", "TestShutdown", edit{
		`	select {
	case <-r.idle:
		return nil
	case <-ctx.Done():
	}`, `	select {
	case <-r.idle:
	default:
	}
	if ctx.Err() == nil {
		return nil
	}`,
	}),
	receiving("the inbox and its consumer have different names", "inbox.go", "TestE19OneDatabase", edit{
		`Name: cfg.Name + "/inbox"`, `Name: cfg.Name`,
	}),
	receiving("the Verifier's fingerprint reaches the consumer", "forward.go", "TestWhatIsForwarded", edit{
		`	if msg.Fingerprint != nil {`, `	if false {`,
	}),
	receiving("the consumer behind an inbox knows the aliases of its events", "forward.go", "TestABackfillBesideAnInbox", edit{
		`headers[HeaderAliases] = aliases.Join(msg.Aliases)`, `headers[HeaderAliases] = aliases.Join(nil)`,
	}),
	receiving("a worker restores the aliases of an event", "forward.go", "TestWhatIsForwarded", edit{
		`aliases.Split(m.Headers[HeaderAliases])`, `aliases.Split("")`,
	}),
	{
		name: "webhook: a person decides once about a suspected replay", file: "consumer/replay.go", pkg: "adapters/webhook", short: true,
		run: "^TestASuspectedReplayIsDecidedOnce$", fails: "TestASuspectedReplayIsDecidedOnce",
		edits: []edit{{`for _, alias := range free {
			msgs`, `for _, alias := range aliases {
			msgs`}},
	},
	{
		name: "webhook: an event that is replayed under a new key is forwarded under that key", file: "consumer/replay.go",
		pkg: "adapters/webhook", short: true, run: "^TestReplayOfAnInboxUnderANewKey$", fails: "TestReplayOfAnInboxUnderANewKey",
		edits: []edit{{`		msg.ID = opts.Key
`, ``}},
	},
	{
		name: "webhook: an event that is replayed is forwarded with the fingerprint that its Verifier gave", file: "consumer/replay.go",
		pkg: "adapters/webhook", short: true, run: "^TestReplayOfAnInboxUnderANewKey$", fails: "TestReplayOfAnInboxUnderANewKey",
		edits: []edit{{`	msg.Fingerprint = &keys[0].Fingerprint`, `	msg.Fingerprint = nil`}},
	},
	receiving("a worker counts the attempts of an event", "worker.go", "TestAnswersOfAWorker", edit{
		`w.failures.Add(m.ID)`, ``,
	}),
	receiving("an event that had too little time has not failed", "worker.go", "TestAnswersOfAWorker", edit{
		`ctx.Err() != nil && alone`, `ctx.Err() != nil`,
	}),
	{
		name: "webhook: nothing is acknowledged before COMMIT", file: "adapters/webhook/work.go", pkg: "adapters/webhook",
		run: "^TestRedeliveryStormOfKilledProcesses$/^sqlite,_inline$", fails: "TestRedeliveryStormOfKilledProcesses",
		edits: []edit{{`answered <- r.process(wk, d, msgs)`, `answered <- nil
		r.process(wk, d, msgs)`}},
	},
	{
		name: "webhook: an event leaves the outbox after its effect is committed", file: "adapters/webhook/worker.go", pkg: "adapters/webhook", short: true,
		run: "^TestWorkerAnswersAfterTheProcessor$", fails: "TestWorkerAnswersAfterTheProcessor",
		edits: []edit{{`return deliver.Call(ctx, batches{w.processor}, events)`, `go deliver.Call(context.WithoutCancel(ctx), batches{w.processor}, events)
	return make([]error, len(msgs))`}},
	},
	receiving("the bodies of all deliveries have a bounded size in memory", "budget.go", "TestManyLargeDeliveries", edit{
		`b.used+n <= b.most:`, `true:`,
	}),
	{
		name: "webhook: a sender's largest delivery is accepted by default", file: "adapters/webhook/config.go", pkg: "adapters/webhook", short: true,
		run: "^TestTheSourceSaysHowLargeDeliveriesAre$", fails: "TestTheSourceSaysHowLargeDeliveriesAre",
		edits: []edit{{`cmp.Or(c.MaxBody, source.MaxBody, DefaultMaxBody)`, `cmp.Or(c.MaxBody, DefaultMaxBody)`}},
	},
	{
		name: "webhook: a suspected replay is parked and acknowledged, not handled", file: "consumer/attempt.go", pkg: "adapters/webhook", short: true,
		run: "^TestSuspectedReplays$", fails: "TestSuspectedReplays",
		edits: []edit{{`if alias.Verdict != dedup.First {
				ans`, `if alias.Verdict == 0 {
				ans`}},
	},
	{
		name: "webhook: a failure after the source has given up parks", file: "consumer/judge.go", pkg: "consumer", short: true,
		run: "^TestAFailureAfterGiveUpAtParks$", fails: "TestAFailureAfterGiveUpAtParks",
		edits: []edit{{` || it.msg.givenUpBy(time.Now())`, ``}},
	},
	{
		name: "webhook: the time of a failure decides whether the source has given up, not that of the delivery", file: "consumer/judge.go", pkg: "consumer", short: true,
		run: "^TestGiveUpAtPassesWhileTheHandlerRuns$", fails: "TestGiveUpAtPassesWhileTheHandlerRuns",
		edits: []edit{{`it.msg.givenUpBy(time.Now())`, `it.msg.givenUpBy(it.msg.Time)`}},
	},
}
