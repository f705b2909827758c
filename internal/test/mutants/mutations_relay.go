package main

// relaying is a mutation that must fail the named test of the relay. These tests need no server.
func relaying(name, file, test string, edits ...edit) mutation {
	return mutation{name: "relay: " + name, file: "outbox/" + file, edits: edits, pkg: "outbox", run: "^" + test + "$", fails: test, short: true}
}

// sharing is a mutation of internal/shares that must fail its test.
func sharing(name, old, with string) mutation {
	return mutation{
		name: "shares: " + name, file: "internal/shares/shares.go", edits: []edit{{old, with}},
		pkg: "internal/shares", run: "^TestChange$", fails: "TestChange", short: true,
	}
}

var relayMutations = []mutation{
	relaying("publishing ends before the lease expires", "relay_batch.go", "TestRelayPublishesOnlyWithinItsLease", edit{
		`b.hold.Load().Until.Add(-b.cfg.Margin)`, `b.hold.Load().Until`,
	}),
	relaying("a Publish call gets one message per key, unless the publisher is atomic per key", "relay_batch.go", "TestRelayPublishesOneMessageOfAKeyPerCall", edit{
		`for l.sent = 1; n.atomic && l.sent`, `for l.sent = 1; l.sent`,
	}),
	relaying("a failed message holds back later messages of its key", "relay_batch.go", "TestRelayRefusedMessageStopsItsKeyOnly", edit{
		`if ok {
			b.next(l)`, `if ok || true {
			b.next(l)`,
	}),
	relaying("an atomic publisher's error applies to all messages of a key", "relay_batch.go", "TestRelayAtomicPublisherFails", edit{
		`case !judged:`, `case judged || !judged:`,
	}),
	relaying("a publish that the end of the lease cut off counts no attempt", "relay_batch.go", "TestRelayLeaseEndIsNotTheMessagesFault", edit{
		`case b.cutOff(c, err):`, `case b.cutOff(c, err) && false:`,
	}),
	relaying("a publish that exceeds PublishTimeout counts an attempt", "relay_batch.go", "TestRelayPublishTimeoutCounts", edit{
		`return (c.cut || b.work.Err() != nil) &&`, `return`,
	}),
	relaying("an unreachable broker counts no attempt", "relay_batch.go", "TestRelayRestsWhenItsPublisherIsUnavailable", edit{
		`b.unavailable(i, c.rest, err)`, `b.failed(i, err)`,
	}),
	relaying("nothing is written to the database while the publisher pauses", "relay_batch.go", "TestRelayRestsWhenItsPublisherIsUnavailable", edit{
		`if b.outlets.sole == nil {`, `if true {`,
	}),
	relaying("the relay does not pause when a part of the broker is unreachable", "relay_batch.go", "TestRelayDoesNotRestForAPartOfTheBroker", edit{
		`&& c.confirmed:`, `&& false:`,
	}),
	relaying("a topic's fault counts no attempt", "relay_batch.go", "TestRelayRestsATopicAtFault", edit{
		`case errors.As(err, &topic): //`, `case errors.As(err, &topic) && false: //`,
	}),
	relaying("a single message probes whether a faulty topic accepts messages again", "relay_batch.go", "TestRelayRestsATopicAtFault", edit{
		`probing[topic] = b.topics.atFault(topic)
		if wait, why := b.topics.try(topic, deadline); wait > 0 {`, `if wait, why := time.Duration(0), error(nil); wait > 0 {`,
	}),
	relaying("a topic's fault is logged once a minute", "relay_topic.go", "TestRelayRestsATopicAtFault", edit{
		`now.Sub(t.logged) >= topicLogPause`, `false`,
	}),
	relaying("a topic that accepts messages again is no longer held back", "relay_topic.go", "TestRelayRestsATopicAtFault", edit{
		"	delete(ts.faulty, topic)\n	ts.number.Add(-1)\n	return true", `	return true`,
	}),
	relaying("an inconclusive probe of a topic is followed by another", "relay_topic.go", "TestRelayProbeThatIsRefusedItself", edit{
		`		t.until, t.probing = time.Time{}, false`, ``,
	}),
	relaying("no message is parked because its topic has no publisher", "relay_batch.go", "TestRelayWithoutPublisherForATopic", edit{
		`b.uncounted(first, b.restTopic(b.work, topic, b.began, err), err)`, `b.failed(first, err)`,
	}),
	relaying("the relay parks no more messages than its limit", "relay_batch.go", "TestRelayParksNoMoreThanItsLimit", edit{
		`if wait, log := b.budget.take(); wait > 0 {`, `if wait, log := b.budget.take(); wait < 0 {`,
	}),
	relaying("a message is parked at MaxAttempts", "relay_batch.go", "TestRelayParksAtMaxAttempts", edit{
		`Attempts+1 >= b.cfg`, `Attempts+1 > b.cfg`,
	}),
	relaying("no publish starts after Run's context ended", "relay_batch.go", "TestRelayDrains", edit{
		`if b.stop.Err() != nil || b.work`, `if b.work`,
	}),
	relaying("a stop releases the lease", "relay_session.go", "TestRelayDrains", edit{
		`if err := leave(ctx, s.queue, within); err`, `if err := error(nil); within < 0 || err`,
	}),
	relaying("a notification during a batch is kept", "relay_dispatch.go", "TestRelayRemembersAWakeUpDuringABatch", edit{
		`if rep.seen.session != d.seen.session {`, `if false {`,
	}),
	relaying("a scope that two goroutines use refuses to derive IDs", "scope.go", "TestOutboxScopeRefusesASecondGoroutine", edit{
		`case mine || s.byOpener:`, `case false:`,
	}),
	{
		name: "relay: HandleBatch derives no message IDs without Scope", file: "consumer/scope.go", pkg: "consumer", run: "^TestOutboxIDsAreNeverGuessed$", fails: "TestOutboxIDsAreNeverGuessed", short: true,
		edits: []edit{{`outer, _ := outbox.WithScope(ctx, "") // a handler`, `outer := ctx // a handler`}},
	},
	{
		name: "relay: the IDs derived in a batch depend only on their own message", file: "consumer/scope.go", pkg: "consumer", run: "^TestOutboxIDsAreTheSameOnReExecution$", fails: "TestOutboxIDsAreTheSameOnReExecution", short: true,
		edits: []edit{{`s.open[msg], s.ends = ctx, append(s.ends, end)`, `s.ends = append(s.ends, end)`}},
	},
	relaying("an overdue poll runs at once", "relay_dispatch.go", "TestRelayPollThatIsOverdueComesAtOnce", edit{
		`if reason && in <= 0 {`, `if in <= 0 {`,
	}),
	relaying("notifications do not suppress polling", "relay_dispatch.go", "TestRelayPollsBeneathWakeUps", edit{
		"case <-timer.C:\n\t\t\td.due = true", "case <-timer.C:\n\t\t\td.poll, d.told = time.Now().Add(d.cfg.PollMax), true",
	}),
	relaying("after a notification only the notified shards are polled", "relay_dispatch.go", "TestRelayLooksWhereItIsTold", edit{
		`Notified: !d.due}`, `Notified: false}`,
	}),
	relaying("a poll that finds only announced messages does not shorten the poll interval", "relay_dispatch.go", "TestRelayLooksWhereItIsTold", edit{
		`if !rep.told { //`, `{ //`,
	}),
	relaying("a backoff never overflows", "backoff.go", "TestOutboxFullJitterGrowsAndSpreads", edit{
		"				ceiling = limit\n", "				ceiling = 2 * limit\n",
	}),
	relaying("a slow batch does not delay the messages of other keys", "relay_batch.go", "TestRelayHotKeyHoldsUpNoOtherKey", edit{
		`if b.waves > 0 && c.began`, `if false && c.began`,
	}),
	relaying("a relay whose publisher hangs releases its shards", "relay_overdue.go", "TestRelayGivesUpForAPublisherThatDoesNotReturn", edit{
		`b.lost(fmt.Errorf("%w: %s", errOverdue, publisher))`, `_ = errOverdue`,
	}),
	relaying("a relay whose publisher hangs takes no new shards", "relay_overdue.go", "TestRelayGivesUpForAPublisherThatDoesNotReturn", edit{
		`if len(d.calls) == 0 || ctx.Err() != nil {`, `if true {`,
	}),
	relaying("Run returns even if a publisher hangs", "relay_overdue.go", "TestRelayStopsThoughAPublisherDoesNotReturn", edit{
		`over, limit = nil, time.After(b.cfg.Margin)`, `over = nil`,
	}),
	relaying("a relay with more than its share of shards renews early", "relay_session.go", "TestRelayJoinsABusyOne", edit{
		` || h.Shards > (h.TotalShards+h.Relays-1)/h.Relays) {`, `) {`,
	}),
	sharing("a session gets a share only after it has asked twice", `a.times >= 2`, `a.times >= 1`),
	sharing("shards that stay free are taken", `take = max(take, l.stayedFree(v.Free))`, `l.stayedFree(v.Free)`),
	sharing("shards that were just taken are not given up for the same requests", `	if v.Mine+take > due {`, `	if false {`),
	relaying("after half a full batch the relay polls again at once", "relay_dispatch.go", "TestRelayLooksAgainAfterHalfABatch", edit{
		`len(msgs) >= (d.cfg.BatchSize+1)/2`, `len(msgs) >= d.cfg.BatchSize`,
	}),
}
