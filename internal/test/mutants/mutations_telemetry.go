package main

// measuring is a mutation of adapters/telemetry that the test of that name must notice.
func measuring(name, file, test string, edits ...edit) mutation {
	return mutation{name: name, file: "adapters/telemetry/" + file, edits: edits, pkg: "adapters/telemetry", run: "^" + test + "$", fails: test, short: true}
}

// alerting is a mutation of the rules for Prometheus that the test of that name must notice.
func alerting(name, file, test string, edits ...edit) mutation {
	const pkg = "adapters/telemetry/monitoring/generate"
	return mutation{name: name, file: pkg + "/" + file, edits: edits, pkg: pkg, run: "^" + test + "$", fails: test}
}

// displaying is a mutation of the dashboard that the test of that name must notice.
func displaying(name, file, test string, edits ...edit) mutation {
	return mutation{name: name, file: "adapters/dashboard/" + file, edits: edits, pkg: "adapters/dashboard", run: exactly(test), fails: test, short: true}
}

var telemetryMutations = []mutation{
	measuring("each word has a counter before it first occurs", "cells.go", "TestCountersAreBornAtZero", edit{
		`if n := c.n.Load(); n > 0 || c.born {`, `if n := c.n.Load(); n > 0 {`,
	}),
	measuring("topics beyond 200 share one series", "cells.go", "TestTopicsAreLimited", edit{
		`maxTopics   = 200`, `maxTopics   = 2000`,
	}),
	measuring("counting a message allocates nothing", "cells.go", "TestMetricsAllocateNothing", edit{
		`		t.durations[j].Store(options)
`, ``,
	}),
	measuring("gauges of a database that does not answer are absent", "status.go", "TestGaugesOfAFailingDatabaseAreAbsent", edit{
		`return s.status, s.err == nil`, `return s.status, true`,
	}),
	measuring("the database is asked for gauges once in ten seconds", "status.go", "TestGaugesOfAFailingDatabaseAreAbsent", edit{
		`s.asked.IsZero() || now.Sub(s.asked) >= statusEvery`, `true`,
	}),
	measuring("a key that another transaction holds again and again is stuck", "stuck.go", "TestStuckKeys", edit{
		`case h.times >= stuckTimes:`, `case false:`,
	}),
	measuring("hidden keys are in no span", "spans.go", "TestCanaries", edit{
		`attrKey.String(c.t.cfg.HideKeys.Key(o.Key.ID))`, `attrKey.String(o.Key.ID)`,
	}),
	measuring("the text of an error is in no span", "spans.go", "TestCanaries", edit{
		`span.SetStatus(codes.Error, string(o.Cause))`, `span.SetStatus(codes.Error, o.Err.Error())`,
	}),
	measuring("a delivery's span links to the span that created the message", "spans.go", "TestSpanOfAMessage", edit{
		`		if !child {
			link`, `		if child {
			link`,
	}),
	measuring("a replay's span links to that of the delivery that parked the message", "spans.go", "TestSpanOfAReplay", edit{
		`if d.ParkedBy != "" {`, `if false {`,
	}),
	{
		name: "a replayed message has the headers that it was sent with", file: "consumer/replay.go", pkg: "consumer", run: "^TestParkedBy$", fails: "TestParkedBy", short: true,
		edits: []edit{{`	delete(msg.Headers, HeaderParkedBy)
`, ``}},
	},
	measuring("an enqueued message carries the context of its span", "enqueue.go", "TestWriter", edit{
		`		propagator.Inject(created, propagation.MapCarrier(headers))
`, `		_ = created
		_ = propagation.MapCarrier(headers)
`,
	}),
	measuring("a message that has a trace context keeps it", "enqueue.go", "TestWriter", edit{
		`if m.Headers[headerParent] != "" {`, `if false {`,
	}),
	{
		name: "an order's spans are one graph through outbox, relay and Kafka", file: "adapters/telemetry/relay.go", pkg: "adapters/telemetry",
		run: "^TestOneGraphThroughTheOutbox$", fails: "TestOneGraphThroughTheOutbox",
		edits: []edit{{`if from := creator(p.Messages[i].Headers); from.IsValid() {`, `if from := creator(p.Messages[i].Headers); false {`}},
	},
	measuring("a batch in progress is one worker", "consumer.go", "TestInFlightDuringTheHandler", edit{
		`c.workers.Add(1)`, `c.workers.Add(int64(len(d.Messages)))`,
	}),
	measuring("acknowledgements have spans only when asked for", "source.go", "TestAckSpans", edit{
		`if t != nil && t.cfg.AckSpans {`, `if t != nil && t.tracer != nil {`,
	}),
	{
		name: "each word that a consumer reports is counted once, by a counter that was exported before", file: "adapters/telemetry/cells.go", pkg: "adapters/telemetry",
		run: "^TestEachWordIsCountedOnce$", fails: "TestEachWordIsCountedOnce/held_budget_rolled_back",
		edits: []edit{{`observe.CauseCancelled, observe.CauseBudget,`, `observe.CauseCancelled,`}},
	},
	{
		name: "each word of package observe is provoked", file: "observe/words.go", pkg: "adapters/telemetry", run: "^TestEachWordIsProvoked$",
		fails: "TestEachWordIsProvoked", short: true, edits: []edit{{`CauseInFlight, CauseDatabase,`, `CauseInFlight, "another", CauseDatabase,`}},
	},
	{
		name: "payloads, headers, hidden keys, passwords and SQL arguments come out nowhere", file: "adapters/dashboard/format.go", pkg: "internal/test/canaries",
		run: "^TestCanaries$", fails: "TestCanaries", edits: []edit{{`return visible(d.cfg.HideKeys.Key(s))`, `return visible(s)`}},
	},
	{
		name: "the command line hides keys in positions, too", file: "adapters/cli/print.go", pkg: "internal/test/canaries", run: "^TestCanaries$", fails: "TestCanaries",
		edits: []edit{{`return p.keys.Position(l.Message.Position, l.Record.Key.ID, l.Message.ID)`, `return l.Message.Position`}},
	},
	{
		name: "hidden keys are in no log", file: "consumer/ops/hidekeys_log.go", pkg: "consumer/ops", run: "^TestHideKeysInLogs$", fails: "TestHideKeysInLogs", short: true,
		edits: []edit{{`(a.Key == "key" || a.Key == "id") && a`, `a.Key == "id" && a`}},
	},
	{
		name: "both of two Traces are called", file: "outbox/relay/trace.go", pkg: "internal/hooks", run: "^TestThenCallsEachHook$", fails: "TestThenCallsEachHook", short: true,
		edits: []edit{{`	both.Lease = hooks.Then(t.Lease, u.Lease)
`, ``}},
	},
	suite("an acknowledgement is reported", "partition.go", "acknowledgements_are_reported", edit{
		`if p.member.events.WantsAcks() {`, `if false {`,
	}),
	suite("the end of an assignment is reported", "partition.go", "assignments_and_their_ends_are_reported", edit{
		`	p.acks.Add(func() { m.events.Revoked(m.hooksCtx, assigned) })
`, ``,
	}),
	suite("messages that Kafka deleted unhandled are reported", "member.go", "messages_that_the_broker_deleted_unhandled_are_reported", edit{
		`m.events.Gap(m.hooksCtx, consumer`, `_ = (consumer`,
	}),
	elsewhere("sqs: a lost lease is reported", "adapters/awssqs/subscriber_heartbeat.go", "TestSubscriber/awssqstest/fifo/lost_leases_are_reported", edit{
		`r.events.Lost(r.requests, `, `_ = (`,
	}),
	elsewhere("rabbitmq: a message that is deferred is not reported as acknowledged", "adapters/rabbitmq/subscriber_retry.go",
		"TestNoHotRequeue", edit{
			`		s.ack(d.delivery)
`, `		if s.ack(d.delivery) {
			s.run.events.Acked(s.run.hooksCtx, consumer.SourceEvent{Message: d.delivery.msg})
		}
`,
		}),
	elsewhere("rabbitmq: a lost lease is reported", "adapters/rabbitmq/subscriber_session.go", "TestSubscriberOnFake/classic/lost_leases_are_reported", edit{
		`	if s.run.deliverer.Context().Err() == nil {
		s.run.events`, `	if false {
		s.run.events`,
	}),
	alerting("the first dead letter of a new topic is noticed", "rules.go", "TestRules", edit{
		`  or sum by (job, %[1]s) (%[2]s unless %[2]s offset %[3]s) > %[4]d)`, `  or sum by (job, %[1]s) (%[2]s unless %[2]s) > %[4]d)`,
	}),
	measuring("each event of a subscriber's topics has a counter before it first occurs", "source.go", "TestSourceEventsAreBornAtZero", edit{
		`append([]string{name}, topics...)`, `[]string{name}`,
	}),
	measuring("a key is stuck for as long as it is held", "stuck.go", "TestStuckKeysStayStuck", edit{
		`!ok || h.times < stuckTimes && now.Sub(h.first) > stuckWithin`, `!ok || now.Sub(h.first) > stuckWithin`,
	}),
	measuring("hidden keys are in no position", "spans.go", "TestCanaries", edit{
		`attrPosition.String(c.t.cfg.HideKeys.Position(m.Position, o.Key.ID, m.ID))`, `attrPosition.String(m.Position)`,
	}),
	alerting("an audit that found a doubled effect is noticed", "rules.go", "TestRules", edit{
		`max by (job, consumer) (txonce_audit_lost) > 0
or max by (job, consumer) (txonce_audit_doubled) > 0`, `max by (job, consumer) (txonce_audit_lost or txonce_audit_doubled) > 0`,
	}),
	alerting("audits that are not reported any more are noticed", "rules.go", "TestRules", edit{
		`
or (max by (job, consumer) (max_over_time(txonce_audit_age_seconds[7d])) unless max by (job, consumer) (max_over_time(txonce_audit_age_seconds[2d])))`, ``,
	}),
	alerting("services with consumers of one name have alerts of their own", "rules.go", "TestRules", edit{
		`sum by (job, consumer) (rate(txonce_attempts_total{result="deadlock"}[5m])) > 0.1`, `sum by (consumer) (rate(txonce_attempts_total{result="deadlock"}[5m])) > 0.1`,
	}),
	alerting("each alert names the job that it is about", "rules.go", "TestSumsKeepTheJob", edit{
		`sum by (job, %[1]s) (%[2]s unless`, `sum by (%[1]s) (%[2]s unless`,
	}),
	measuring("repeats that an audit found are exported", "status.go", "TestAudited", edit{
		`		o.ObserveInt64(m.auditRepeated, found.Repeated, attrs)
`, ``,
	}),
	alerting("the alert about missing gauges does not end while they are missing", "rules.go", "TestRules", edit{
		`max_over_time(txonce_sweep_lag_seconds[1d])`, `max_over_time(txonce_sweep_lag_seconds[1h])`,
	}),
	alerting("rules use metrics that are exported", "rules.go", "TestNamesOccurInAScrape", edit{
		`min by (job) (txonce_sweep_lag_seconds) > 86400`, `min by (job) (txonce_sweep_age_seconds) > 86400`,
	}),
	alerting("each alert has a page in the runbook", "rules.go", "TestRunbook", edit{
		`"Deadlocks", ticket`, `"Deadlock", ticket`,
	}),
	measuring("pauses have the configured name of a relay", "stuck.go", "TestPausesHaveTheConfiguredName", edit{
		`p.add(kind, name, e.Cause, 1)`, `p.add(kind, e.Name, e.Cause, 1)`,
	}),
	{
		name: "a pause ends with the Run of its Subscriber", file: "internal/deliver/observer.go", pkg: "internal/deliver",
		run: "^TestPauseEndsWithRun$", fails: "TestPauseEndsWithRun", short: true, edits: []edit{{`	o.Broker.End(ctx)
`, ``}},
	},
	{
		name: "a relay forgets a pause that no message waits for", file: "outbox/relay/session.go", pkg: "outbox/relay",
		run: "^TestRelayForgetsPausesOfOthersMessages$", fails: "TestRelayForgetsPausesOfOthersMessages", short: true, edits: []edit{{`				r.forgetFaults(ctx)
`, ``}},
	},
	displaying("a payload that is nested deeply is not indented", "format.go", "TestDeepJSON", edit{` && !deep(payload)`, ``}),
	displaying("a payload is shown as it is, or as bytes", "format.go", "TestInvalidText", edit{
		`	if utf8.Valid(part) && !bytes`, `	if !bytes`,
	}),
	displaying("an error does not end an event of a live page", "live.go", "TestCarriageReturnsInEvents", edit{
		`	html = bytes.ReplaceAll(html, []byte("\r"), []byte("&#13;")) // it would end a line of the stream, and two of them the event
`, ``,
	}),
	displaying("each page says when its data is old", "snapshot.go", "TestDatabaseAwayOnEachPage", edit{
		`return max(time.Since(s.Failing), time.Second)`, `return 0`,
	}),
	displaying("an action on an outdated list is reported", "act.go", "TestOutdatedList/sqlite", edit{
		`err == nil && n < len(seqs)`, `false`,
	}),
	displaying("hidden keys are in no record of an action", "format.go", "TestHiddenKeysInCorners", edit{
		`return before + ", a key"`, `return before + a.Note`,
	}),
	displaying("a field that cannot be read is refused", "dashboard.go", "TestMalformedFields", edit{
		`if err := readForm(r); err != nil {`, `if err := readForm(r); false {`,
	}),
}
