package main

// relaying is a mutation of the relay that the test of that name must notice. None needs a server.
func relaying(name, file, test string, edits ...edit) mutation {
	return mutation{name: "relay: " + name, file: "outbox/relay/" + file, edits: edits, pkg: "outbox/relay", run: "^" + test + "$", fails: test, short: true}
}

// scoping is a mutation of how IDs are derived that the test of that name must notice.
func scoping(name, test string, edits ...edit) mutation {
	return mutation{name: "scope: " + name, file: "outbox/scope.go", edits: edits, pkg: "outbox", run: "^" + test + "$", fails: test, short: true}
}

// sharing is a mutation of how all stores share shards, which its own test must notice.
func sharing(name, old, with string) mutation {
	return mutation{
		name: "shares: " + name, file: "internal/shares/shares.go", edits: []edit{{old, with}},
		pkg: "internal/shares", run: "^TestChange$", fails: "TestChange", short: true,
	}
}

var relayMutations = []mutation{
	relaying("publishing ends before the lease does", "call.go", "TestRelayPublishesOnlyWithinItsLease", edit{
		`b.session.hold.Load().Until.Add(-cfg.Margin)`, `b.session.hold.Load().Until`,
	}),
	relaying("one message of a key per call", "call.go", "TestRelayPublishesOneMessageOfAKeyPerCall", edit{
		`for k.sent = 1; q.publisher.atomic && !probe && k.sent`, `for k.sent = 1; k.sent`,
	}),
	relaying("a failed message stops its key", "outcome.go", "TestRelayRefusedMessageStopsItsKeyOnly", edit{
		`if confirmed {
			b.enqueue(k)`, `if confirmed || true {
			b.enqueue(k)`,
	}),
	relaying("one failure per key", "outcome.go", "TestRelayAtomicPublisherFails", edit{
		`case !decided:`, `case decided || !decided:`,
	}),
	relaying("the end of the lease counts against no message", "outcome.go", "TestRelayLeaseEndIsNotTheMessagesFault", edit{
		`case b.isLeaseEnd(c, err):`, `case b.isLeaseEnd(c, err) && false:`,
	}),
	relaying("a publisher that takes too long counts", "outcome.go", "TestRelayPublishTimeoutCounts", edit{
		`return (c.leaseEnd || b.session.work.Err() != nil) &&`, `return`,
	}),
	relaying("a broker that is away counts against no message", "outcome.go", "TestRelayCoolsDownWhenItsPublisherIsUnavailable", edit{
		`b.deferUnavailable(i, c.cooldown, err)`, `b.countFailure(i, err)`,
	}),
	relaying("a cooldown writes nothing", "outcome.go", "TestRelayCoolsDownWhenItsPublisherIsUnavailable", edit{
		`if b.relay.publishers.sole == nil {`, `if true {`,
	}),
	relaying("no cooldown for a part of the broker", "outcome.go", "TestRelayDoesNotCoolDownForAPartOfTheBroker", edit{
		`&& c.confirmed:`, `&& false:`,
	}),
	relaying("a topic's fault counts against no message", "outcome.go", "TestRelayCoolsDownATopicAtFault", edit{
		`case errors.As(err, &topic): //`, `case errors.As(err, &topic) && false: //`,
	}),
	relaying("one message finds out whether a topic takes messages again", "call.go", "TestRelayCoolsDownATopicAtFault", edit{
		`probed[topic] = b.relay.topics.atFault(topic)
		if wait, why := b.relay.topics.admit(topic, deadline); wait > 0 {`, `if wait, why := time.Duration(0), error(nil); wait > 0 {`,
	}),
	relaying("a topic's fault is logged once a minute", "topic.go", "TestRelayCoolsDownATopicAtFault", edit{
		`now.Sub(t.logged) >= topicLogInterval`, `false`,
	}),
	relaying("a topic that takes messages again is let go", "topic.go", "TestRelayCoolsDownATopicAtFault", edit{
		"		delete(ts.faulty, topic)\n		ts.count.Add(-1)\n", ``,
	}),
	relaying("a probe that says nothing is followed by another", "topic.go", "TestRelayProbeThatIsRefusedItself", edit{
		`			t.until, t.probing = time.Time{}, false`, ``,
	}),
	relaying("a topic without publisher parks nothing", "batch.go", "TestRelayWithoutPublisherForATopic", edit{
		`b.deferUncounted(first, b.coolTopicDown(topic, b.leasedAt, err), err)`, `b.countFailure(first, err)`,
	}),
	relaying("no more is parked than the limit", "outcome.go", "TestRelayParksNoMoreThanItsLimit", edit{
		`if wait, log := b.relay.parkBudget.take(); wait > 0 {`, `if wait, log := b.relay.parkBudget.take(); wait < 0 {`,
	}),
	relaying("parked at MaxAttempts", "outcome.go", "TestRelayParksAtMaxAttempts", edit{
		`Attempts+1 >= cfg`, `Attempts+1 > cfg`,
	}),
	relaying("no call starts after Run's ctx has ended", "call.go", "TestRelayDrains", edit{
		`if b.stop.Err() != nil || work`, `if work`,
	}),
	relaying("a stop gives back the lease", "session.go", "TestRelayDrains", edit{
		`if err := closeSession(ctx, s.queue, within); err`, `if err := error(nil); within < 0 || err`,
	}),
	relaying("a wake-up during a batch is kept", "poll.go", "TestRelayRemembersAWakeUpDuringABatch", edit{
		`if rep.wakeUps.notifications != d.wakeUps.notifications {`, `if false {`,
	}),
	scoping("no derived ids for two goroutines at once", "TestOutboxScopeRefusesOverlappingCalls", edit{
		`s.overlapped = s.overlapped || s.busy`, ``,
	}),
	scoping("no derived ids after two goroutines at once", "TestOutboxScopeRefusesOverlappingCalls", edit{
		`s.overlapped = s.overlapped || s.busy`, `s.overlapped = s.busy`,
	}),
	relaying("a publisher that was unavailable is tried with a few messages", "call.go", "TestRelayProbesAnUnavailablePublisher", edit{
		`if probe && len(q.ready) > probeKeys {`, `if false {`,
	}),
	relaying("the messages of a try are chosen at random", "call.go", "TestRelayProbesAnUnavailablePublisher", edit{
		`q.ready[i], q.ready[j] = q.ready[j], q.ready[i]`, ``,
	}),
	{
		name: "relay: ids do not reach through HandleBatch", file: "consumer/scope.go", pkg: "consumer", run: "^TestOutboxIDsAreNeverGuessed$", fails: "TestOutboxIDsAreNeverGuessed", short: true,
		edits: []edit{{`outer, _ := outbox.WithScope(ctx, "") // hides`, `outer := ctx // hides`}},
	},
	{
		name: "relay: a batch's ids are per message", file: "consumer/scope.go", pkg: "consumer", run: "^TestOutboxIDsAreTheSameOnReExecution$", fails: "TestOutboxIDsAreTheSameOnReExecution", short: true,
		edits: []edit{{`s.open[msg], s.ends = ctx, append(s.ends, end)`, `s.ends = append(s.ends, end)`}},
	},
	relaying("an overdue poll comes at once", "dispatcher.go", "TestRelayPollThatIsOverdueComesAtOnce", edit{
		`if reason && in <= 0 {`, `if in <= 0 {`,
	}),
	relaying("polls go on beneath wake-ups", "dispatcher.go", "TestRelayPollsBeneathWakeUps", edit{
		"case <-timer.C:\n\t\t\td.pollDue = true", "case <-timer.C:\n\t\t\td.nextPoll, d.notified = time.Now().Add(d.relay.cfg.PollMax), true",
	}),
	relaying("a notification leads to its shards only", "poll.go", "TestRelayPollsShardsOfNotifications", edit{
		`Notified: !d.pollDue}`, `Notified: false}`,
	}),
	relaying("announced messages do not shorten the poll interval", "poll.go", "TestRelayPollsShardsOfNotifications", edit{
		`if !rep.notified { //`, `{ //`,
	}),
	{
		name: "backoff: a delay is never above its limit", file: "internal/backoff/backoff.go", pkg: "internal/backoff", run: "^TestJitterGrowsAndSpreads$", fails: "TestJitterGrowsAndSpreads", short: true,
		edits: []edit{{"			return limit\n", "			return 2 * limit\n"}},
	},
	{
		name: "tokens: a bucket holds no more than its burst", file: "internal/tokens/tokens.go", pkg: "internal/tokens", run: "^TestBucket$", fails: "TestBucket", short: true,
		edits: []edit{{"b.tokens = min(float64(b.limit.Burst), b.tokens+now.Sub(b.refilled).Minutes()*float64(b.limit.PerMinute))", "b.tokens += now.Sub(b.refilled).Minutes() * float64(b.limit.PerMinute)"}},
	},
	relaying("a slow batch starts no further wave", "call.go", "TestRelayGivesBackTheRestOfASlowBatch", edit{
		`if b.waves > 0 && c.began`, `if false && c.began`,
	}),
	relaying("a publisher that does not return keeps no shards", "overdue.go", "TestRelayGivesUpForAPublisherThatDoesNotReturn", edit{
		`b.session.leaseLost(fmt.Errorf("%w: %s", errOverdue, publisher))`, `_ = fmt.Errorf("%w: %s", errOverdue, publisher)`,
	}),
	relaying("a relay whose publisher hangs stays away", "overdue.go", "TestRelayGivesUpForAPublisherThatDoesNotReturn", edit{
		`if len(d.overdueCalls) == 0 || ctx.Err() != nil {`, `if true {`,
	}),
	relaying("Run returns though a publisher does not", "batch.go", "TestRelayStopsThoughAPublisherDoesNotReturn", edit{
		`ended, limit = nil, time.After(b.relay.cfg.Margin)`, `ended = nil`,
	}),
	relaying("a relay above its share renews soon", "session.go", "TestRelayJoinsABusyOne", edit{
		` || h.Shards > (h.TotalShards+h.Relays-1)/h.Relays) {`, `) {`,
	}),
	sharing("one that has asked once gets nothing", `a.times >= 2`, `a.times >= 1`),
	sharing("what stays free is taken", `take = max(take, l.stayedFree(v.Free))`, `l.stayedFree(v.Free)`),
	sharing("what was taken is not given up for the same asks", `	if v.Mine+take > due {`, `	if false {`),
	relaying("half a batch is no end", "poll.go", "TestRelayPollsAgainAfterHalfABatch", edit{
		`len(msgs) >= (d.relay.cfg.BatchSize+1)/2`, `len(msgs) >= d.relay.cfg.BatchSize`,
	}),
}
