package main

// relaying is a mutation of the relay that the test of that name must notice. None needs a server.
func relaying(name, file, test string, edits ...edit) mutation {
	return mutation{name: "relay: " + name, file: "outbox/relay/" + file, edits: edits, pkg: "outbox/relay", run: "^" + test + "$", fails: test, short: true}
}

// scoping is a mutation of the derivation of IDs that the test of that name must notice.
func scoping(name, test string, edits ...edit) mutation {
	return mutation{name: "scope: " + name, file: "outbox/scope.go", edits: edits, pkg: "outbox", run: "^" + test + "$", fails: test, short: true}
}

// sharing is a mutation of the code that shares shards among relays in all stores. A test of that code must notice it.
func sharing(name, old, with string) mutation {
	return mutation{
		name: "shares: " + name, file: "internal/shares/shares.go", edits: []edit{{old, with}},
		pkg: "internal/shares", run: "^TestChange$", fails: "TestChange", short: true,
	}
}

var relayMutations = []mutation{
	{
		name: "shares: a poll from before a shard was lost does not free it for another poll after it was taken again", file: "internal/shares/held.go",
		edits: []edit{{`s == nil || s.Token != token {`, `s == nil {`}},
		pkg:   "internal/shares", run: "^TestHeldShardThatIsTakenAgain$", fails: "TestHeldShardThatIsTakenAgain", short: true,
	},
	relaying("publishing ends before the lease expires", "call.go", "TestRelayPublishesOnlyWithinItsLease", edit{
		`b.session.hold.Load().Until.Add(-cfg.Margin)`, `b.session.hold.Load().Until`,
	}),
	relaying("a Publish call gets one message per key, unless the publisher is atomic or ordered", "call.go", "TestRelayPublishesOneMessageOfAKeyPerCall", edit{
		`for k.sent = 1; q.publisher.together && k.sent`, `for k.sent = 1; k.sent`,
	}),
	relaying("a publisher gets several messages of a key only if it promises their order", "publisher.go", "TestRelayGivesAnOrderedPublisherAllOfAKey", edit{
		`isOrdered && ordered.Ordered()`, `isOrdered && (ordered.Ordered() || true)`,
	}),
	relaying("many relays that are notified poll no more often than few", "session.go", "TestRelayIdle", edit{
		`if !h.Announced || h.Relays <= fewRelays {`, `if true {`,
	}),
	relaying("relays that are not notified poll every PollMax", "session.go", "TestRelayIdle", edit{
		`if !h.Announced || h`, `if h`,
	}),
	relaying("relays that share polls poll at least every six PollMax", "session.go", "TestRelayIdle", edit{
		`, maxShared*interval)`, `, 100*interval)`,
	}),
	relaying("an outage ends with its session", "session.go", "TestRelayResumesWithANewSession", edit{
		`r.outages.reopened(ctx)`, `r.outages.recovered(ctx, opOpen)`,
	}),
	relaying("relays that began together look for delayed messages at different times", "session.go", "TestRelaysLookForDelayedMessagesAtDifferentTimes", edit{
		`if interval > maintainInterval {`, `if false {`,
	}),
	relaying("a failed message holds back later messages of its key", "outcome.go", "TestRelayRefusedMessageStopsItsKeyOnly", edit{
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
	relaying("a publish that exceeds PublishTimeout counts an attempt", "call.go", "TestRelayPublishTimeoutCounts", edit{
		`|| c.leaseEnd && !time`, `|| !time`,
	}),
	relaying("a publisher's own timeout counts an attempt", "call.go", "TestRelayPublishersOwnTimeoutCounts", edit{
		`c.leaseEnd && !time.Now().Before(c.deadline)`, `c.leaseEnd`,
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
	relaying("a topic's fault counts no attempt", "outcome.go", "TestRelayCoolsDownATopicAtFault", edit{
		`case errors.As(err, &topic): //`, `case errors.As(err, &topic) && false: //`,
	}),
	relaying("a single message probes whether a faulty topic accepts messages again", "call.go", "TestRelayCoolsDownATopicAtFault", edit{
		`probed[topic] = b.relay.topics.atFault(topic)
		if wait, why := b.relay.topics.admit(topic, deadline); wait > 0 {`, `if wait, why := time.Duration(0), error(nil); wait > 0 {`,
	}),
	relaying("a topic's fault is logged once a minute", "topic.go", "TestRelayCoolsDownATopicAtFault", edit{
		`now.Sub(t.logged) >= topicLogInterval`, `false`,
	}),
	relaying("a topic that accepts messages again is no longer held back", "topic.go", "TestRelayCoolsDownATopicAtFault", edit{
		"		delete(ts.faulty, topic)\n		ts.count.Add(-1)\n", ``,
	}),
	relaying("an inconclusive probe of a topic is followed by another", "topic.go", "TestRelayProbeThatIsRefusedItself", edit{
		`			t.until, t.probing = time.Time{}, false`, ``,
	}),
	relaying("no message is parked because its topic has no publisher", "batch.go", "TestRelayWithoutPublisherForATopic", edit{
		`b.deferForTopic(first, b.coolTopicDown(topic, b.leasedAt, err), err)`, `b.countFailure(first, err)`,
	}),
	relaying("the relay parks no more messages than its limit", "outcome.go", "TestRelayParksNoMoreThanItsLimit", edit{
		`if wait, log := b.relay.parkBudget.take(); wait > 0 {`, `if wait, log := b.relay.parkBudget.take(); wait < 0 {`,
	}),
	relaying("a message without an answer is not taken for published", "batch.go", "TestRelayHeaderFormatThatEndsItsGoroutine", edit{
		`errs: slices.Repeat([]error{outbox.ErrNotTried}, len(msgs)),`, `errs: make([]error, len(msgs)),`,
	}),
	relaying("a HeaderFormat that ends its goroutine counts against its message", "call.go", "TestRelayHeaderFormatThatEndsItsGoroutine", edit{
		`b.errs[c.positions[n]], all = ended.Of`, `_, all = ended.Of`,
	}),
	relaying("a call without usable answers counts only against the message at fault", "call.go", "TestRelayIsolatesAMessageWithoutAnswer", edit{
		`if !usable && len(msgs) > 1 {`, `if !usable && false {`,
	}),
	relaying("a key keeps its order when its messages are published one by one", "call.go", "TestRelayIsolatesAMessageWithoutAnswer", edit{
		`held[m.Key] = err != nil && m.Key != ""`, `held[m.Key] = false`,
	}),
	relaying("a call that leaves no time to publish its messages one by one counts", "call.go", "TestRelayHasNoTimeToIsolate", edit{
		`b.errs[c.positions[0]] = noAnswer //`, `//`,
	}),
	relaying("an isolated message that is cut off is not counted", "call.go", "TestRelayIsolatedMessageThatIsCutOff", edit{
		`if err != nil && ctx.Err() != nil { //`, `if false { //`,
	}),
	relaying("publishers that cannot be compared are accepted", "publisher.go", "TestRelayPublishersThatCannotBeCompared", edit{
		`reflect.ValueOf(p).Comparable() && reflect.ValueOf(s.publisher).Comparable()`, `reflect.TypeOf(p).Comparable() && reflect.TypeOf(s.publisher).Comparable()`,
	}),
	relaying("a message is parked at MaxAttempts", "outcome.go", "TestRelayParksAtMaxAttempts", edit{
		`Attempts+1 >= cfg`, `Attempts+1 > cfg`,
	}),
	relaying("no call starts after Run's ctx has ended", "call.go", "TestRelayDrains", edit{
		`if b.stop.Err() != nil || work`, `if work`,
	}),
	relaying("a stop releases the lease", "session.go", "TestRelayDrains", edit{
		`if err := closeSession(ctx, s.queue, within); err`, `if err := error(nil); within < 0 || err`,
	}),
	relaying("a notification during a batch is kept", "poll.go", "TestRelayRemembersAWakeUpDuringABatch", edit{
		`if rep.wakeUps.notifications != d.wakeUps.notifications {`, `if false {`,
	}),
	scoping("no derived ids for two goroutines at once", "TestOutboxScopeRefusesOverlappingCalls", edit{
		`s.overlapped = s.overlapped || s.busy`, ``,
	}),
	scoping("no derived ids after two goroutines at once", "TestOutboxScopeRefusesOverlappingCalls", edit{
		`s.overlapped = s.overlapped || s.busy`, `s.overlapped = s.busy`,
	}),
	{
		name: "scope: derived IDs keep the time of the seed", file: "internal/outgoing/outgoing.go", pkg: "outbox", run: "^TestOutboxScopeKeepsTheTimeOfItsSeed$",
		fails: "TestOutboxScopeKeepsTheTimeOfItsSeed", short: true, edits: []edit{{`if ms := idtime.Of(seed); ms > 0 {`, `if ms := idtime.Of(seed); false {`}},
	},
	{
		name: "relay: outgoing IDs have the time of the handled message", file: "internal/outgoing/outgoing.go", pkg: "consumer", run: "^TestOutboxIDsHaveTheTimeOfTheMessage$", fails: "TestOutboxIDsHaveTheTimeOfTheMessage", short: true,
		edits: []edit{{` + "/" + id }`, ` }`}},
	},
	relaying("a publisher cools down as long as its call took", "publisher.go", "TestRelayPublisherThatHangsHoldsUpNoOther", edit{
		`if took := p.since.Sub(began); took >= patience {`, `if took := p.since.Sub(began); false {`,
	}),
	relaying("a call that hangs until the lease ends starts a cooldown", "publisher.go", "TestRelayCoolsDownWhenCallsEndWithTheLease", edit{
		`time.Since(c.began) >= patience`, `false`,
	}),
	{
		name: "relay: HandleBatch derives no message IDs without Scope", file: "consumer/scope.go", pkg: "consumer", run: "^TestOutboxIDsAreNeverGuessed$", fails: "TestOutboxIDsAreNeverGuessed", short: true,
		edits: []edit{{`outer, _ := outbox.WithScope(ctx, "") // hides`, `outer := ctx // hides`}},
	},
	{
		name: "relay: the IDs derived in a batch depend only on their own message", file: "consumer/scope.go", pkg: "consumer", run: "^TestOutboxIDsAreTheSameOnReExecution$", fails: "TestOutboxIDsAreTheSameOnReExecution", short: true,
		edits: []edit{{`s.open[msg], s.ends = ctx, append(s.ends, end)`, `s.ends = append(s.ends, end)`}},
	},
	relaying("an overdue poll runs at once", "dispatcher.go", "TestRelayPollThatIsOverdueComesAtOnce", edit{
		`if reason && in <= 0 {`, `if in <= 0 {`,
	}),
	relaying("notifications do not suppress polling", "dispatcher.go", "TestRelayPollsBeneathWakeUps", edit{
		"case <-timer.C:\n\t\t\td.pollDue = true", "case <-timer.C:\n\t\t\td.nextPoll, d.notified = time.Now().Add(d.relay.cfg.PollMax), true",
	}),
	relaying("a notification leads to its shards only", "poll.go", "TestRelayPollsShardsOfNotifications", edit{
		`Notified: !all}`, `Notified: false}`,
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
	relaying("a relay whose publisher hangs releases its shards", "overdue.go", "TestRelayGivesUpForAPublisherThatDoesNotReturn", edit{
		`b.session.leaseLost(LeaseLost, fmt.Errorf("%w: %s", errOverdue, publisher))`, `_ = fmt.Errorf("%w: %s", errOverdue, publisher)`,
	}),
	relaying("a relay whose publisher hangs takes no new shards", "overdue.go", "TestRelayGivesUpForAPublisherThatDoesNotReturn", edit{
		`if len(d.overdueCalls) == 0 || ctx.Err() != nil {`, `if true {`,
	}),
	relaying("Run returns even if a publisher hangs", "batch.go", "TestRelayStopsThoughAPublisherDoesNotReturn", edit{
		`ended, limit = nil, time.After(b.relay.cfg.Margin)`, `ended = nil`,
	}),
	relaying("a relay with more than its share of shards renews early", "session.go", "TestRelayJoinsABusyOne", edit{
		` || h.Shards > (h.TotalShards+h.Relays-1)/h.Relays) {`, `) {`,
	}),
	sharing("a session gets a share only after it has asked twice", `.times >= 2`, `.times >= 1`),
	sharing("only the first sessions hold one shard more than the others", `if before < v.Of%sessions {`, `if v.Of%sessions > 0 {`),
	sharing("shards that stay free are taken", `take = max(take, l.stayedFree(v.Free))`, `l.stayedFree(v.Free)`),
	sharing("shards that were just taken are not given up for the same requests", `	if v.Mine+take > due {`, `	if false {`),
	relaying("after half a full batch the relay polls again at once", "poll.go", "TestRelayPollsAgainAfterHalfABatch", edit{
		`len(msgs) >= (d.relay.cfg.BatchSize+1)/2`, `len(msgs) >= d.relay.cfg.BatchSize`,
	}),
}
