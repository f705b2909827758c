package main

// relaying is a mutation of the relay that the test of that name must notice. None needs a server.
func relaying(name, file, test string, edits ...edit) mutation {
	return mutation{name: "relay: " + name, file: "outbox/" + file, edits: edits, pkg: "outbox", run: "^" + test + "$", fails: test, short: true}
}

// sharing is a mutation of how all stores share shards, which its own test must notice.
func sharing(name, old, with string) mutation {
	return mutation{
		name: "shares: " + name, file: "internal/shares/shares.go", edits: []edit{{old, with}},
		pkg: "internal/shares", run: "^TestChange$", fails: "TestChange", short: true,
	}
}

var relayMutations = []mutation{
	relaying("publishing ends before the lease does", "relay_batch.go", "TestRelayPublishesOnlyWithinItsLease", edit{
		`b.hold.Load().Until.Add(-b.cfg.Margin)`, `b.hold.Load().Until`,
	}),
	relaying("one message of a key per call", "relay_batch.go", "TestRelayPublishesOneMessageOfAKeyPerCall", edit{
		`for l.sent = 1; n.atomic && l.sent`, `for l.sent = 1; l.sent`,
	}),
	relaying("a failed message stops its key", "relay_batch.go", "TestRelayRefusedMessageStopsItsKeyOnly", edit{
		`if ok {
			b.next(l)`, `if ok || true {
			b.next(l)`,
	}),
	relaying("one verdict per key", "relay_batch.go", "TestRelayAtomicPublisherFails", edit{
		`case !judged:`, `case judged || !judged:`,
	}),
	relaying("the lease's end is nobody's fault", "relay_batch.go", "TestRelayLeaseEndIsNotTheMessagesFault", edit{
		`case b.cutOff(c, err):`, `case b.cutOff(c, err) && false:`,
	}),
	relaying("a publisher that takes too long counts", "relay_batch.go", "TestRelayPublishTimeoutCounts", edit{
		`return (c.cut || b.work.Err() != nil) &&`, `return`,
	}),
	relaying("a broker that is away counts against nobody", "relay_batch.go", "TestRelayRestsWhenItsPublisherIsUnavailable", edit{
		`b.unavailable(i, c.rest, err)`, `b.failed(i, err)`,
	}),
	relaying("a rest writes nothing", "relay_batch.go", "TestRelayRestsWhenItsPublisherIsUnavailable", edit{
		`if b.outlets.sole == nil {`, `if true {`,
	}),
	relaying("no rest for a part of the broker", "relay_batch.go", "TestRelayDoesNotRestForAPartOfTheBroker", edit{
		`&& c.confirmed:`, `&& false:`,
	}),
	relaying("a topic's fault counts against no message", "relay_batch.go", "TestRelayRestsATopicAtFault", edit{
		`case errors.As(err, &topic): //`, `case errors.As(err, &topic) && false: //`,
	}),
	relaying("one message finds out whether a topic takes messages again", "relay_batch.go", "TestRelayRestsATopicAtFault", edit{
		`probing[topic] = b.topics.atFault(topic)
		if wait, why := b.topics.try(topic, deadline); wait > 0 {`, `if wait, why := time.Duration(0), error(nil); wait > 0 {`,
	}),
	relaying("a topic's fault is logged once a minute", "relay_topic.go", "TestRelayRestsATopicAtFault", edit{
		`now.Sub(t.logged) >= topicLogPause`, `false`,
	}),
	relaying("a topic that takes messages again is let go", "relay_topic.go", "TestRelayRestsATopicAtFault", edit{
		"	delete(ts.faulty, topic)\n	ts.number.Add(-1)\n	return true", `	return true`,
	}),
	relaying("a probe that says nothing is followed by another", "relay_topic.go", "TestRelayProbeThatIsRefusedItself", edit{
		`		t.until, t.probing = time.Time{}, false`, ``,
	}),
	relaying("a topic without publisher parks nothing", "relay_batch.go", "TestRelayWithoutPublisherForATopic", edit{
		`b.uncounted(first, b.restTopic(b.work, topic, b.began, err), err)`, `b.failed(first, err)`,
	}),
	relaying("no more is parked than the limit", "relay_batch.go", "TestRelayParksNoMoreThanItsLimit", edit{
		`if wait, log := b.budget.take(); wait > 0 {`, `if wait, log := b.budget.take(); wait < 0 {`,
	}),
	relaying("parked at MaxAttempts", "relay_batch.go", "TestRelayParksAtMaxAttempts", edit{
		`Attempts+1 >= b.cfg`, `Attempts+1 > b.cfg`,
	}),
	relaying("nothing begins after Run's ctx has ended", "relay_batch.go", "TestRelayDrains", edit{
		`if b.stop.Err() != nil || b.work`, `if b.work`,
	}),
	relaying("a stop gives back the lease", "relay_session.go", "TestRelayDrains", edit{
		`if err := leave(ctx, s.queue, within); err`, `if err := error(nil); within < 0 || err`,
	}),
	relaying("a wake-up during a batch is kept", "relay_dispatch.go", "TestRelayRemembersAWakeUpDuringABatch", edit{
		`if rep.seen.session != d.seen.session {`, `if false {`,
	}),
	relaying("ids of one goroutine only", "scope.go", "TestOutboxScopeRefusesASecondGoroutine", edit{
		`case mine || s.byOpener:`, `case false:`,
	}),
	{
		name: "relay: ids do not reach through HandleBatch", file: "consumer/scope.go", pkg: "consumer", run: "^TestOutboxIDsAreNeverGuessed$", fails: "TestOutboxIDsAreNeverGuessed", short: true,
		edits: []edit{{`outer, _ := outbox.WithScope(ctx, "") // a handler`, `outer := ctx // a handler`}},
	},
	{
		name: "relay: a batch's ids are per message", file: "consumer/scope.go", pkg: "consumer", run: "^TestOutboxIDsAreTheSameOnReExecution$", fails: "TestOutboxIDsAreTheSameOnReExecution", short: true,
		edits: []edit{{`s.open[msg], s.ends = ctx, append(s.ends, end)`, `s.ends = append(s.ends, end)`}},
	},
	relaying("an overdue poll comes at once", "relay_dispatch.go", "TestRelayPollThatIsOverdueComesAtOnce", edit{
		`if reason && in <= 0 {`, `if in <= 0 {`,
	}),
	relaying("polls go on beneath wake-ups", "relay_dispatch.go", "TestRelayPollsBeneathWakeUps", edit{
		"case <-timer.C:\n\t\t\td.due = true", "case <-timer.C:\n\t\t\td.poll, d.told = time.Now().Add(d.cfg.PollMax), true",
	}),
	relaying("looks go where wake-ups tell of messages", "relay_dispatch.go", "TestRelayLooksWhereItIsTold", edit{
		`Notified: !d.due}`, `Notified: false}`,
	}),
	relaying("a poll that finds what was told of stays seldom", "relay_dispatch.go", "TestRelayLooksWhereItIsTold", edit{
		`if !rep.told { //`, `{ //`,
	}),
	relaying("a backoff never overflows", "backoff.go", "TestOutboxFullJitterGrowsAndSpreads", edit{
		"				ceiling = limit\n", "				ceiling = 2 * limit\n",
	}),
	relaying("a slow batch begins no further wave", "relay_batch.go", "TestRelayHotKeyHoldsUpNoOtherKey", edit{
		`if b.waves > 0 && c.began`, `if false && c.began`,
	}),
	relaying("a publisher that does not return keeps no shards", "relay_overdue.go", "TestRelayGivesUpForAPublisherThatDoesNotReturn", edit{
		`b.lost(fmt.Errorf("%w: %s", errOverdue, publisher))`, `_ = errOverdue`,
	}),
	relaying("a relay whose publisher hangs stays away", "relay_overdue.go", "TestRelayGivesUpForAPublisherThatDoesNotReturn", edit{
		`if len(d.calls) == 0 || ctx.Err() != nil {`, `if true {`,
	}),
	relaying("Run returns though a publisher does not", "relay_overdue.go", "TestRelayStopsThoughAPublisherDoesNotReturn", edit{
		`over, limit = nil, time.After(b.cfg.Margin)`, `over = nil`,
	}),
	relaying("a relay above its share renews soon", "relay_session.go", "TestRelayJoinsABusyOne", edit{
		` || h.Shards > (h.TotalShards+h.Relays-1)/h.Relays) {`, `) {`,
	}),
	sharing("one that has asked once gets nothing", `a.times >= 2`, `a.times >= 1`),
	sharing("what stays free is taken", `take = max(take, l.stayedFree(v.Free))`, `l.stayedFree(v.Free)`),
	sharing("what was taken is not given up for the same asks", `	if v.Mine+take > due {`, `	if false {`),
	relaying("half a batch is no end", "relay_dispatch.go", "TestRelayLooksAgainAfterHalfABatch", edit{
		`len(msgs) >= (d.cfg.BatchSize+1)/2`, `len(msgs) >= d.cfg.BatchSize`,
	}),
}
