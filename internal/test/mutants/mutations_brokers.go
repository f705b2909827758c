package main

import (
	"path"
	"strings"
)

// elsewhere is a mutation that a test of the package of its file must notice, which needs the servers.
func elsewhere(name, file, test string, edits ...edit) mutation {
	return mutation{name: name, file: file, edits: edits, pkg: path.Dir(file), run: exactly(test), fails: test}
}

// exactly is the -run of one case.
func exactly(test string) string {
	return "^" + strings.ReplaceAll(test, "/", "$/^") + "$"
}

// brokerMutations are those of what came with further brokers, databases and poolers.
var brokerMutations = []mutation{
	handling("an outage is waited out at start", "start.go", "TestStartWaitsOutAnOutage", edit{
		`!late && c.final(err):`, `!late || c.final(err):`,
	}),
	subscriber("what is in work is not taken again", "queue.go", "TestQueue", edit{
		`case d.working || d.notBefore.After(now):`, `case d.notBefore.After(now):`,
	}),
	subscriber("no batch takes what others could handle", "partition.go", "TestConcurrencySharesWhatWaits", edit{
		`return min(max(share, 1), p.cfg.MaxBatch)`, `return max(share, p.cfg.MaxBatch)`,
	}),
	{
		name: "everybody locks in one order", file: "internal/claims/locks.go",
		edits: []edit{{`	slices.SortFunc(locks, func(a, b Lock) int { return cmp.Compare(a.Number, b.Number) })
`, `	_ = cmp.Compare[int]
`}},
		pkg: pgx, run: "^TestLockExcludes$/^direct$", fails: "TestLockExcludes/direct",
	},

	elsewhere("watermill: a handler that nacks commits nothing", "adapters/watermilltx/middleware.go", "TestFailureLeavesNothing", edit{
		`if isNacked(given) {`, `if false && isNacked(given) {`,
	}),
	elsewhere("watermill: what has no topic is not produced", "adapters/watermilltx/middleware.go", "TestProducingWhatCannotBePublished", edit{
		`if topic == "" {`, `if false {`,
	}),
	elsewhere("watermill: equal UUIDs in two topics are two", "adapters/watermilltx/envelope.go", "TestForwarderTopicIsEmptied", edit{
		`return e.Topic + "/" + e.UUID, nil`, `return e.UUID, nil`,
	}),

	elsewhere("rabbitmq: a nack is no confirm", "adapters/rabbitmq/confirm_channel.go", "TestPublisherAnswersEachMessage", edit{
		`case !acked:`, `case false:`,
	}),
	elsewhere("rabbitmq: what no queue takes comes back", "adapters/rabbitmq/confirm_channel.go", "TestPublisherAnswersEachMessage", edit{
		`mandatory, immediate = true, false`, `mandatory, immediate = false, false`,
	}),

	elsewhere("mysql: a lease that has ended settles nothing", "adapters/sqlstore/internal/mysql/outbox_settle.go", "TestOutboxLeaseEndsByTheDatabasesClock/MySQL", edit{
		`len(mine) != len(tokens)`, `len(mine) > len(tokens)`,
	}),
	elsewhere("lift: a handler writes in its claim's transaction", "adapters/sqlstore/lift.go", "TestLiftRefusesAnotherTransaction", edit{
		`if l.unwrap(lifted) != tx {`, `if l.unwrap(lifted) != tx && false {`,
	}),

	elsewhere("sqs: a heartbeat comes in time", "adapters/awssqs/subscriber_hold.go", "TestALongHandlerKeepsItsMessageAndThoseThatWait", edit{
		`now.Sub(h.beaten) >= visibility/4`, `now.Sub(h.beaten) >= visibility`,
	}),
	elsewhere("sqs: what was lost is not settled", "adapters/awssqs/subscriber_settle.go", "TestALostMessageIsCancelledAndNotSettled", edit{
		`if !held {`, `if !held && false {`,
	}),
	elsewhere("sqs: a delay is not cut", "adapters/awssqs/subscriber_settle.go", "TestRetryAfterIsKeptBySQS", edit{
		`after+time.Second-1`, `after`,
	}),
	elsewhere("sqs: a deletion that failed is repeated", "adapters/awssqs/subscriber_settle.go", "TestDeletionsThatFailAreRepeated", edit{
		`!f.SenderFault && !stale(f)`, `false`,
	}),
	elsewhere("sqs: a redrive behind our back is refused", "adapters/awssqs/subscriber_queue.go", "TestWhatIsRefusedAtTheStart", edit{
		`if receives > attempts {`, `if true {`,
	}),
	elsewhere("sqs: a redrive soon after the last attempt draws a warning", "adapters/awssqs/subscriber_queue.go", "TestWhatIsRefusedAtTheStart/redrive_soon", edit{
		`if receives < MinReceives {`, `if false {`,
	}),
	elsewhere("sqs: a stop does not wait for a place among the answers", "adapters/awssqs/subscriber_settle.go", "TestRunEndsWithoutTheServer", edit{
		`case <-r.lanes.Context().Done():`, `case <-r.life.Done():`,
	}),
	elsewhere("sqs: a tenant is no key", "adapters/awssqs/subscriber_message.go", "TestATenantIsNoOrder", edit{
		`m.Key == "" && strings.HasSuffix(queue, fifoSuffix) &&`, `m.Key == "" &&`,
	}),
	elsewhere("sqs: what a stop gives back was no attempt", "adapters/awssqs/subscriber.go", "TestStopsAreNoAttempts", edit{
		`	defer s.running.Store(false)
`, `	defer s.running.Store(false)
	s.excused = excused{}
`,
	}),
	elsewhere("a Processor that panics does not end the process", "internal/lanes/call.go", "TestCall", edit{
		`if v := recover(); v != nil {`, `if v := error(nil); v != nil {`,
	}),
	elsewhere("a panic keeps its stack", "internal/lanes/call.go", "TestCall", edit{
		`Stack: debug.Stack()`, `Stack: debug.Stack()[:0]`,
	}),
	elsewhere("watermill: a panic keeps its stack", "adapters/watermilltx/join.go", "TestJoinKeepsTheStackOfAPanic", edit{
		`Stack: debug.Stack()`, `Stack: debug.Stack()[:0]`,
	}),
	elsewhere("lanes: what was lost has no good answer", "internal/lanes/batch.go", "TestLoseCancelsTheHandler", edit{
		`case d.lost && err == nil:`, `case err == nil:`,
	}),
	elsewhere("rabbitmq: a copy that no queue takes is no copy", "adapters/rabbitmq/confirm_channel.go", "TestRetryQueueDeleted", edit{
		`const mandatory, immediate = true, false`, `const mandatory, immediate = false, false`,
	}),
	elsewhere("rabbitmq: a queue for retries that was made a moment ago is not used", "adapters/rabbitmq/subscriber_retry_link.go", "TestNewRetryQueueRests/this_Subscriber", edit{
		"	return time.Now().Add(young), nil\n}", "	return time.Now(), nil\n}",
	}),
	elsewhere("rabbitmq: nor one that was found", "adapters/rabbitmq/subscriber_retry_link.go", "TestNewRetryQueueRests/another", edit{
		`if err == nil && r.cfg.knownOld {`, `if err == nil {`,
	}),
	elsewhere("rabbitmq: a server that hangs up is not taken to refuse", "adapters/rabbitmq/subscriber.go", "TestServerHangsUp", edit{
		`time.Since(hungUp) < refusesWithin {`, `time.Since(hungUp) < 0 {`,
	}),
	elsewhere("rabbitmq: a limit that drops messages is refused", "adapters/rabbitmq/subscriber_config.go", "TestSubscriberConfig", edit{
		`c.checkLimit(""); err != nil`, `c.checkLimit(""); false`,
	}),
	elsewhere("rabbitmq: prefetch is asked for", "adapters/rabbitmq/subscriber_session.go", "TestPrefetch", edit{
		`s.ch.Qos(r.cfg.Prefetch, 0, false)`, `s.ch.Qos(0, 0, false)`,
	}),
	elsewhere("rabbitmq: messages are persistent", "adapters/rabbitmq/publisher_message.go", "TestPublisherProperties", edit{
		`DeliveryMode: amqp.Persistent`, `DeliveryMode: amqp.Transient`,
	}),
	elsewhere("mysql: the token says who was first", "adapters/sqlstore/internal/mysql/mysql.go", "TestMySQLClaimsABatchOfManyStatements", edit{
		`if string(whose) == string(mine[:]) {`, `if whose != nil {`,
	}),
	elsewhere("mysql: a few messages are not all", "adapters/sqlstore/internal/mysql/outbox_lease.go", "TestOutboxMySQLFewAndMany/fair", edit{
		`return chosen, len(chosen) < most, nil`, `return chosen, true, nil`,
	}),
	elsewhere("mysql: a sweeper is not disturbed by others that look", "adapters/sqlstore/internal/mysql/sweep.go", "TestMySQLSweeperWaitsForThoseThatLook", edit{
		`err = read(d.sql.SweepWait)`, `err = engine.ErrBusy`,
	}),
	elsewhere("rabbitmq: an acknowledgement that fails ends its channel", "adapters/rabbitmq/subscriber_session.go", "TestAckThatDoesNotArrive/it_fails_on_a_channel_that_goes_on/fake", edit{
		"		_ = s.conn.CloseDeadline(time.Now().Add(closesWithin)) // else", "		// else",
	}),
	elsewhere("rabbitmq: a return comes before its confirm", "adapters/rabbitmq/confirm_channel.go", "TestPublisherReturns", edit{
		"	c.takeReturns()\n	c.forget(r)", "	c.forget(r)",
	}),
	elsewhere("rabbitmq: a channel that is closed is no nack", "adapters/rabbitmq/confirm_channel.go", "TestPublisherCutBeforeConfirm", edit{
		`if !acked && c.ch.IsClosed() {`, `if false {`,
	}),
	elsewhere("rabbitmq: a queue that does not confirm is given up on", "adapters/rabbitmq/confirm_channel.go", "TestPublisherIsolates", edit{
		`.since) >= patience {`, `.since) >= patience && false {`,
	}),
	elsewhere("rabbitmq: it goes to a channel of its own", "adapters/rabbitmq/publisher_isolated.go", "TestPublisherIsolates", edit{
		`if len(p.isolated)+len(fresh) > maxIsolated {`, `if true {`,
	}),
	elsewhere("rabbitmq: nothing goes to a queue that owes confirms", "adapters/rabbitmq/publisher_isolated.go", "TestPublisherIsolates", edit{
		`return i.busy || i.channel != nil && i.channel.owes() && time.Since(i.tried) < isolatedFor`, `return i.busy`,
	}),
	elsewhere("rabbitmq: a queue for retries that does not confirm rests", "adapters/rabbitmq/subscriber_retry_link.go", "TestRetryQueueDoesNotConfirm", edit{
		"		r.rest(retryStep(p.after))\n", "",
	}),
	elsewhere("rabbitmq: nothing is sent to a server that blocks", "adapters/rabbitmq/alarm.go", "TestRetriesWhileBlocked/stops_true", edit{
		"	if a.why == \"\" {\n		return nil", "	if true {\n		return nil",
	}),
	elsewhere("rabbitmq: a blocked connection closes at its deadline", "adapters/rabbitmq/dial.go", "TestServerFaults/a_memory_alarm", edit{
		`func() { _ = c.socket.Close() }`, `func() {}`,
	}),
	elsewhere("rabbitmq: a blocked write ends with its connection", "adapters/rabbitmq/dial.go", "TestBlockedWriteEnds", edit{
		"		_ = s.Close()\n", "",
	}),
	elsewhere("rabbitmq: the queue is believed, and not its Spec", "adapters/rabbitmq/topology_read.go", "TestSpecIsRead/a_limit_that_drops/fake", edit{
		`c.Spec = c.Spec.withArgs(args)`, `_ = args`,
	}),
	elsewhere("rabbitmq: a delivery that is counted shows a quorum queue", "adapters/rabbitmq/topology_read.go", "TestSpecIsNotBelieved", edit{
		`if !counts || s.read || s.spec.Quorum {`, `if !counts || true {`,
	}),
	elsewhere("rabbitmq: a stop gives back at once", "adapters/rabbitmq/subscriber.go", "TestStopGivesBackAtOnce", edit{
		`dl.session.giveBack(dl) // nothing`, `// nothing`,
	}),
	elsewhere("rabbitmq: a copy remembers what publishing it changes", "adapters/rabbitmq/subscriber_stamp.go", "TestNoHotRequeue", edit{
		`"expiration": st.expiration,`, `"expiration": "",`,
	}),
	elsewhere("rabbitmq: a lost connection counts for no attempt", "adapters/rabbitmq/subscriber_session.go", "TestLossesCountForNoAttempt/quorum_true", edit{
		`msg := toMessage(s.cfg.Queue, raw)`, `msg := ToMessage(s.cfg.Queue, raw)`,
	}),
	elsewhere("sqs: a stop waits for what is on its way", "adapters/awssqs/subscriber_reception.go", "TestAStopLosesNoAnswerThatIsOnItsWay", edit{
		`r.rest(ctx, time.Until(asked.Add(underway)))`, `r.rest(ctx, time.Until(asked))`,
	}),
}
