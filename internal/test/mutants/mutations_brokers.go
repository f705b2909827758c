package main

import (
	"path"
	"strings"
)

// elsewhere is a mutation that a test in the package of its file must notice, or in the package that has the file's package as an
// internal one. The test needs the servers.
func elsewhere(name, file, test string, edits ...edit) mutation {
	pkg, _, _ := strings.Cut(path.Dir(file), "/internal/")
	return mutation{name: name, file: file, edits: edits, pkg: pkg, run: exactly(test), fails: test}
}

// exactly returns the value of -run for one case.
func exactly(test string) string {
	return "^" + strings.ReplaceAll(test, "/", "$/^") + "$"
}

// brokerMutations break the code for further brokers, databases and poolers.
var brokerMutations = []mutation{
	handling("a start waits until the database is reachable", "start.go", "TestStartWaitsOutAnOutage", edit{
		`!late && c.fatalAtStart(err):`, `!late || c.fatalAtStart(err):`,
	}),
	elsewhere("a message that must be retried is not acknowledged", "internal/deliver/outcome.go", "TestWhatIsKeptIsHandledAgainInOrder", edit{
		`		case dr.cfg.Keep != nil && dr.cfg.Keep(d, retry):
`, `		case dr.cfg.Keep != nil && dr.cfg.Keep(d, retry):
			o.settle(d, nil)
			continue
`,
	}),
	elsewhere("a lost delivery holds back nothing that the broker delivers after the loss", "internal/deliver/outcome.go", "TestLoseHoldsBackNothingThatComesLater", edit{
		`held.to = max(held.to, d.lostAfter)`, `held.to = math.MaxUint64`,
	}),
	elsewhere("messages of a key wait for each other", "internal/deliver/batch.go", "TestWhatIsKeptIsHandledAgainInOrder", edit{
		`				held[d.Key] = true
`, ``,
	}),
	elsewhere("no two batches have a key in common", "internal/deliver/batch.go", "TestProperty", edit{
		`(dr.busy[d.Key] != nil || held[d.Key])`, `held[d.Key]`,
	}),
	elsewhere("a batch stops at its limits", "internal/deliver/batch.go", "TestBatchesAreBoundedInBytes", edit{
		`if len(picked) == most || len(picked) > 0 && dr.cfg.MaxBatchBytes > 0 && size+d.Size > dr.cfg.MaxBatchBytes {`, `if len(picked) == most {`,
	}),
	elsewhere("a batch leaves waiting messages to idle workers", "internal/deliver/batch.go", "TestSplitEvenly", edit{
		`return min(max(share, 1), dr.cfg.MaxBatch)`, `return max(share, dr.cfg.MaxBatch)`,
	}),
	subscriber("nor of a partition", "partition.go", "TestConcurrencySharesWhatWaits", edit{
		`SplitEvenly: true,`, `SplitEvenly: false,`,
	}),
	{
		name: "all transactions lock in the same order", file: "internal/claims/locks.go",
		edits: []edit{{`	slices.SortFunc(locks, func(a, b Lock) int { return cmp.Compare(a.Number, b.Number) })
`, `	_ = cmp.Compare[int]
`}},
		pkg: pgx, run: "^TestLockExcludes$/^direct$", fails: "TestLockExcludes/direct",
	},

	elsewhere("watermill: a handler that nacks commits nothing", "adapters/watermilltx/middleware.go", "TestFailureLeavesNothing", edit{
		`if isNacked(given) {`, `if false && isNacked(given) {`,
	}),
	elsewhere("watermill: a publisher that may not confirm is refused", "adapters/watermilltx/publisher_config.go", "TestPublisherConfigRefused", edit{
		`case !inMemory && !cfg.Confirms &&`, `case false &&`,
	}),
	elsewhere("watermill: a function that ends the goroutine of a call fails its message", "adapters/watermilltx/publisher.go", "TestPublisherWhoseFunctionsDoNotReturn", edit{
		`	if ended != nil {`, `	if ended != nil && false {`,
	}),
	elsewhere("watermill: a UUID function that panics takes no room from later messages", "adapters/watermilltx/publisher.go", "TestPublisherWhoseFunctionsDoNotReturn", edit{
		`	m := c.Messages[i] //`, `	_ = p.cfg.UUID(c.Messages[i])
	m := c.Messages[i] //`,
	}),
	elsewhere("watermill: a message without a topic is refused", "adapters/watermilltx/middleware.go", "TestProducingWhatCannotBePublished", edit{
		`if topic == "" {`, `if false {`,
	}),
	elsewhere("watermill: equal UUIDs in two topics are two messages", "adapters/watermilltx/envelope.go", "TestForwarderTopicIsEmptied", edit{
		`return e.Topic + "/" + e.UUID, nil`, `return e.UUID, nil`,
	}),

	elsewhere("rabbitmq: a nack is not a confirm", "adapters/rabbitmq/confirm_channel.go", "TestPublisherAnswersEachMessage", edit{
		`case !acked:`, `case false:`,
	}),
	elsewhere("rabbitmq: an unroutable message is not reported as published", "adapters/rabbitmq/confirm_channel.go", "TestPublisherAnswersEachMessage", edit{
		`mandatory, immediate = true, false`, `mandatory, immediate = false, false`,
	}),

	elsewhere("mysql: an expired lease settles nothing", "adapters/sqlstore/internal/mysql/outbox_settle.go", "TestOutboxLeaseEndsByTheDatabasesClock/MySQL", edit{
		`len(mine) != len(tokens)`, `len(mine) > len(tokens)`,
	}),
	sqlstore("stores: an error of another store is the handler's", "internal/claims/errors.go", "TestWhoseErrorItIs", edit{
		`return target == e.owner ||`, `_, any := target.(Owner); return any ||`,
	}),
	elsewhere("awssqs: a refused request is split at once", "adapters/awssqs/publisher.go", "TestPublisherSplitsARefusedRequestAtOnce", edit{
		`if len(b) > 1 && ctx`, `if false && ctx`,
	}),
	elsewhere("adapt: a handler writes in its claim's transaction", "adapters/sqlstore/adapt.go", "TestAdaptRefusesAnotherTransaction", edit{
		`if l.unwrap(adapted) != tx {`, `if l.unwrap(adapted) != tx && false {`,
	}),

	elsewhere("sqs: a heartbeat extends the visibility timeout in time", "adapters/awssqs/subscriber_heartbeat.go", "TestALongHandlerKeepsItsMessageAndThoseThatWait", edit{
		`now.Sub(m.extended) >= visibility/4`, `now.Sub(m.extended) >= visibility`,
	}),
	elsewhere("sqs: a message whose visibility timeout expired is not settled", "adapters/awssqs/subscriber_settle.go", "TestALostMessageIsCancelledAndNotSettled", edit{
		`if !held {`, `if !held && false {`,
	}),
	elsewhere("sqs: a retry delay is not shortened", "adapters/awssqs/subscriber_settle.go", "TestRetryAfterIsKeptBySQS", edit{
		`after+time.Second-1`, `after`,
	}),
	elsewhere("sqs: a failed deletion is repeated", "adapters/awssqs/subscriber_settle.go", "TestDeletionsThatFailAreRepeated", edit{
		`!f.SenderFault && !stale(f)`, `false`,
	}),
	elsewhere("sqs: a redrive policy that acts before MaxAttempts is refused", "adapters/awssqs/subscriber_queue.go", "TestWhatIsRefusedAtTheStart", edit{
		`if receives > attempts {`, `if true {`,
	}),
	elsewhere("sqs: a redrive policy that acts soon after MaxAttempts is logged as a warning", "adapters/awssqs/subscriber_queue.go", "TestWhatIsRefusedAtTheStart/redrive_soon", edit{
		`if receives < MinReceives {`, `if false {`,
	}),
	elsewhere("sqs: a stop does not wait for a slot to settle messages", "adapters/awssqs/subscriber_settle.go", "TestRunEndsWithoutTheServer", edit{
		`case <-r.deliverer.Context().Done():`, `case <-r.requests.Done():`,
	}),
	elsewhere("sqs: a fair queue's message group is not an ordering key", "adapters/awssqs/subscriber_message.go", "TestATenantIsNoOrder", edit{
		`strings.HasSuffix(queue, fifoSuffix) && group != "" &&`, `group != "" &&`,
	}),
	elsewhere("sqs: a failure holds back its group, also of messages whose attribute has another key", "adapters/awssqs/subscriber_message.go", "TestAGroupIsTheOrderWhateverTheAttributeSays", edit{
		`GroupID(m.Key) != group &&`, `m.Key == "" &&`,
	}),
	elsewhere("sqs: a message for which OrderBy panics is Malformed", "adapters/awssqs/subscriber_take.go", "TestOrderByThatDoesNotReturn", edit{
		`errors.Join(msg.Malformed, err)`, `errors.Join(msg.Malformed, nil)
		_ = err`,
	}),
	elsewhere("sqs: a message that a stop gives back counts no attempt", "adapters/awssqs/subscriber.go", "TestStopsAreNoAttempts", edit{
		`	defer s.running.Store(false)
`, `	defer s.running.Store(false)
	s.uncountedReceives = counts.Counter{}
`,
	}),
	elsewhere("a Processor that panics has handled nothing", "internal/deliver/call.go", "TestCall", edit{
		`err = &consumer.PanicError`, `_ = &consumer.PanicError`,
	}),
	elsewhere("a Processor that ends its goroutine does not stop the others", "internal/deliver/call.go", "TestCall", edit{
		`	ended := usercode.Run(func() { answers = call(ctx, p, msgs) })`, `	answers = call(ctx, p, msgs)
	ended := usercode.Run(func() {})`,
	}),
	elsewhere("a panic keeps its stack", "internal/deliver/call.go", "TestCall", edit{
		`Stack: ended.Stack`, `Stack: ended.Stack[:0]`,
	}),
	elsewhere("deliver: what was lost has no good answer", "internal/deliver/outcome.go", "TestLoseCancelsTheHandler", edit{
		`case d.lost() && err == nil:`, `case err == nil:`,
	}),
	elsewhere("rabbitmq: an unroutable retry copy does not replace its message", "adapters/rabbitmq/confirm_channel.go", "TestRetryQueueDeleted", edit{
		`const mandatory, immediate = true, false`, `const mandatory, immediate = false, false`,
	}),
	elsewhere("rabbitmq: a retry queue that this Subscriber just declared is not used yet", "adapters/rabbitmq/subscriber_retry_queue.go", "TestNewRetryQueueRests/this_Subscriber", edit{
		"	return time.Now().Add(young), nil\n}", "	return time.Now(), nil\n}",
	}),
	elsewhere("rabbitmq: a retry queue that another Subscriber just declared is not used yet", "adapters/rabbitmq/subscriber_retry_queue.go", "TestNewRetryQueueRests/another", edit{
		`if err == nil && r.queuesOld {`, `if err == nil {`,
	}),
	elsewhere("rabbitmq: a server that closes the connection is not taken for one that refuses it", "adapters/rabbitmq/subscriber.go", "TestServerHangsUp", edit{
		`time.Since(hungUpSince) < refusedAfter {`, `time.Since(hungUpSince) < 0 {`,
	}),
	elsewhere("rabbitmq: a queue whose limits drop messages is refused", "adapters/rabbitmq/subscriber_config.go", "TestSubscriberConfig", edit{
		`c.checkDangers(""); err != nil`, `c.checkDangers(""); false`,
	}),
	elsewhere("rabbitmq: the prefetch limit is set", "adapters/rabbitmq/subscriber_session.go", "TestPrefetch", edit{
		`s.ch.Qos(r.cfg.Prefetch, 0, false)`, `s.ch.Qos(0, 0, false)`,
	}),
	elsewhere("rabbitmq: a message with a header CC is refused with the reason", "adapters/rabbitmq/publisher_message.go", "TestPublisherRefusesMessages", edit{
		`if name == "CC" || name == "BCC" {`, `if false {`,
	}),
	elsewhere("rabbitmq: a message that Route panics for fails alone", "adapters/rabbitmq/publisher_message.go", "TestPublisherRoutePanics", edit{
		`		return "", "", fmt.Errorf("rabbitmq: message %q of topic`, `		_ = fmt.Errorf("rabbitmq: message %q of topic`,
	}),
	elsewhere("rabbitmq: messages are persistent", "adapters/rabbitmq/publisher_message.go", "TestPublisherProperties", edit{
		`DeliveryMode: amqp.Persistent`, `DeliveryMode: amqp.Transient`,
	}),
	elsewhere("mysql: only a row with the claim's own token is new", "adapters/sqlstore/internal/mysql/claim.go", "TestMySQLClaimsABatchOfManyStatements", edit{
		`if string(whose) == string(mine[:]) {`, `if whose != nil {`,
	}),
	elsewhere("mysql: a poll that is cut off by its limit is not taken for complete", "adapters/sqlstore/internal/mysql/outbox_lease.go", "TestOutboxMySQLFewAndMany/fair", edit{
		`return chosen, len(chosen) < most, nil`, `return chosen, true, nil`,
	}),
	sqlstore("mysql: delayed messages become due in the order of their times while two sessions move them", "adapters/sqlstore/internal/mysql/outbox_lease.go", "TestOutboxMySQLMovesWhatIsDueInOrder", edit{
		"\t\treturn err\n\t} else if err != nil {", "\t} else if err != nil {",
	}),
	sqlstore("mysql: a missing lock for delayed messages is an error", "adapters/sqlstore/internal/mysql/outbox_lease.go", "TestOutboxMySQLMovesNothingWithoutItsLock", edit{
		`err == nil && slots == 0`, `false`,
	}),
	sqlstore("mysql: an open transaction with a delayed message stops no others", "internal/dialect/mysql_outbox.go", "TestOutboxMySQLLeaseBesideAnOpenTransaction", edit{
		`ORDER BY not_before, seq LIMIT ? FOR UPDATE SKIP LOCKED`, `ORDER BY not_before, seq LIMIT ? FOR UPDATE`,
	}),
	sqlstore("mysql: a settlement leaves another message with the seq of a leased one alone", "internal/dialect/mysql_outbox.go", "TestOutboxMySQLSettlesNoOtherMessage", edit{
		` AND COALESCE(m.id = UNHEX(r.id), true)`, ``,
	}),
	elsewhere("mysql: a sweeper waits for other sweepers that only check the lease", "adapters/sqlstore/internal/mysql/sweep.go", "TestMySQLSweeperWaitsForThoseThatLook", edit{
		`err = read(d.sql.SweepWait)`, `err = engine.ErrBusy`,
	}),
	elsewhere("rabbitmq: a failed acknowledgement closes its connection", "adapters/rabbitmq/subscriber_delivery.go", "TestAckThatDoesNotArrive/it_fails_on_a_channel_that_goes_on/fake", edit{
		"		_ = s.conn.CloseDeadline(time.Now().Add(closesWithin)) // else", "		// else",
	}),
	elsewhere("rabbitmq: a return is handled before its confirm", "adapters/rabbitmq/confirm_channel.go", "TestPublisherReturns", edit{
		"	c.takeReturns()\n	c.notOwed(r)", "	c.notOwed(r)",
	}),
	elsewhere("rabbitmq: a closed channel is not a nack", "adapters/rabbitmq/confirm_channel.go", "TestPublisherCutBeforeConfirm", edit{
		`if !acked && c.ch.IsClosed() {`, `if false {`,
	}),
	elsewhere("rabbitmq: the publisher does not wait forever for a queue that does not confirm", "adapters/rabbitmq/confirm_send.go", "TestPublisherIsolates", edit{
		`.since) >= limit {`, `.since) >= limit && false {`,
	}),
	elsewhere("rabbitmq: a queue that does not confirm gets a channel of its own", "adapters/rabbitmq/publisher_stalled.go", "TestPublisherIsolates", edit{
		`if len(p.stalled)+len(fresh) > maxStalled {`, `if true {`,
	}),
	elsewhere("rabbitmq: nothing is sent to a queue with overdue confirms", "adapters/rabbitmq/publisher_stalled.go", "TestPublisherIsolates", edit{
		`return s.busy || s.channel != nil && s.channel.owes() && time.Since(s.tried) < stalledPause`, `return s.busy`,
	}),
	elsewhere("rabbitmq: a retry queue that does not confirm is not used for a while", "adapters/rabbitmq/subscriber_retry_link.go", "TestRetryQueueDoesNotConfirm", edit{
		"		r.cooldown(retryStep(d.after))\n", "",
	}),
	elsewhere("rabbitmq: nothing is sent while the server blocks the connection", "adapters/rabbitmq/alarm.go", "TestRetriesWhileBlocked/stops_true", edit{
		"	if a.why == \"\" {\n		return nil", "	if true {\n		return nil",
	}),
	elsewhere("rabbitmq: a blocked connection closes at its deadline", "adapters/rabbitmq/dial.go", "TestServerFaults/a_memory_alarm", edit{
		`func() { _ = c.socket.Close() }`, `func() {}`,
	}),
	elsewhere("rabbitmq: a blocked write ends with its connection", "adapters/rabbitmq/dial.go", "TestBlockedWriteEnds", edit{
		"		_ = s.Close()\n", "",
	}),
	elsewhere("rabbitmq: the queue's real arguments override its Spec", "adapters/rabbitmq/topology_read.go", "TestSpecIsRead/a_limit_that_drops/fake", edit{
		`q = q.withArgs(args)`, `_ = args`,
	}),
	elsewhere("rabbitmq: a delivery count reveals a quorum queue", "adapters/rabbitmq/topology_read.go", "TestSpecIsNotBelieved", edit{
		`if !counts || s.specRead || s.spec.Quorum {`, `if !counts || true {`,
	}),
	elsewhere("rabbitmq: a stop gives waiting messages back at once", "adapters/rabbitmq/subscriber.go", "TestStopGivesBackAtOnce", edit{
		`dl.session.giveBack(dl) // no attempt`, `// no attempt`,
	}),
	elsewhere("rabbitmq: a retry copy keeps the properties that publishing it changes", "adapters/rabbitmq/subscriber_stamp.go", "TestNoHotRequeue", edit{
		`"expiration": st.expiration,`, `"expiration": "",`,
	}),
	elsewhere("rabbitmq: a lost connection counts no attempt", "adapters/rabbitmq/subscriber_session.go", "TestLossesCountForNoAttempt/quorum_true", edit{
		`msg := toMessage(s.run.cfg.Queue, raw)`, `msg := ToMessage(s.run.cfg.Queue, raw)`,
	}),
	elsewhere("rabbitmq: a message that expires after it was received survives a stop", "adapters/rabbitmq/subscriber_delivery.go", "TestAStopDropsNoExpiration/classic/fake", edit{
		"	if d.expires() {\n		if s.holds(d) {", "	if false {\n		if s.holds(d) {",
	}),
	elsewhere("rabbitmq: a queue that drops messages when it is full is refused", "adapters/rabbitmq/topology_dangers.go", "TestSpecIsRead/a_maximum_length/fake", edit{
		`limited && c.Spec.DeadLetters == nil`, `limited && false`,
	}),
	elsewhere("sqs: a stop waits for the answer of a receive in progress", "adapters/awssqs/subscriber_reception.go", "TestAStopLosesNoAnswerThatIsOnItsWay", edit{
		`await.Sleep(ctx, time.Until(began.Add(minRequest)))`, `await.Sleep(ctx, time.Until(began))`,
	}),
}
