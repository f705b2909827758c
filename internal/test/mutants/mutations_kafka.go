package main

// suite is a mutation of the Kafka subscriber that the case of consumertest.TestSubscriber of that name must notice, on
// kfake with cooperative rebalancing.
func suite(name, file, caseName string, edits ...edit) mutation {
	const in = "TestSubscriber/kfake/cooperative/"
	return mutation{name: name, file: "adapters/kafka/" + file, edits: edits, pkg: "adapters/kafka", run: "^" + in + "^" + caseName + "$", fails: in + caseName, short: true}
}

// subscriber is a mutation that one of the adapter's own tests must notice.
func subscriber(name, file, test string, edits ...edit) mutation {
	return mutation{name: name, file: "adapters/kafka/" + file, edits: edits, pkg: "adapters/kafka", run: exactly(test), fails: test, short: true}
}

var kafkaMutations = []mutation{
	suite("a failed message is delivered again", "partition.go", "an_error_redelivers", edit{
		`	if _, again := errors.AsType[*consumer.RetryError](err); again {
		return
	}
`,
		`	if _, again := errors.AsType[*consumer.RetryError](err); again {
		err = nil
	}
`,
	}, edit{
		`*consumer.RetryError) bool { return true }`, `*consumer.RetryError) bool { return false }`,
	}),
	suite("a stop waits for the handler to finish", "partition.go", "a_stop_lets_the_handler_finish", edit{
		`p.deliverer.Drain(p.member.grace(), p.member.handlerExit())`, `p.deliverer.Drain(0, p.member.handlerExit())`,
	}),
	subscriber("an offset is committed only when all messages before it are finished", "offset_tracker.go", "TestOffsetTracker", edit{
		`	if low := t.first; low.finished {
		t.remove(low)
		return low.raw
	}
	return nil`,
		`	return o.raw`,
	}),
	subscriber("an error other than RetryError stops the subscriber", "partition.go", "TestRejected", edit{
		`	if err != nil {
		p.member.fail(`,
		`	if false {
		p.member.fail(`,
	}),
	subscriber("a new group starts at the oldest message", "check.go", "TestRefusedSettings", edit{
		`cfg.Consumer.Offsets.Initial != sarama.OffsetOldest, "`, `false, "`,
	}),
	subscriber("the deletion of unhandled messages stops the subscriber", "offset_gap.go", "TestGap/kfake/eager/before_the_first", edit{
		`if slices.Contains(m.cfg.AcceptedRisks, RiskResetInvalidOffsets) {`, `if true || slices.Contains(m.cfg.AcceptedRisks, RiskResetInvalidOffsets) {`,
	}),
	subscriber("the offset moves past transaction markers", "partition.go", "TestRetentionDeletesMarkers/kfake/eager", edit{
		`			p.findMarkers()
`, ``,
	}),
	subscriber("the offset does not move past committed messages", "markers.go", "TestPassOver/one_that_is_committed_before_that", edit{
		`case b.IsTransactional && open >= 0:`, `case b.IsTransactional:`,
	}),
	subscriber("a topic with one replica is logged as a warning", "replicas.go", "TestOneReplicaDrawsAWarning/kfake/1", edit{
		`return setting(entries, minReplicas) == "1"`, `return setting(entries, minReplicas) == "0"`,
	}),
	subscriber("Check finds the unsafe settings of the user's own group", "check.go", "TestCheck", edit{
		`	wrong := refusals(losing(cfg), accepted)
`, `	wrong := refusals(nil, accepted)
`,
	}),
	subscriber("a window shorter than the topic's retention is refused", "retention.go", "TestWindowAndRetention", edit{
		`	case window < keeps:`, `	case window < 0:`,
	}),
	subscriber("a compacted topic is refused", "retention.go", "TestCompactedTopic", edit{
		`strings.Contains(policy, "compact")`, `policy == "compact"`,
	}),
	subscriber("the number and size of unfinished messages are bounded", "partition.go", "TestUnfinishedAreBounded", edit{
		`return unfinished >= p.member.cfg.MaxUnfinished || bytes >= 2*p.member.cfg.MaxBatchBytes`, `return false`,
	}),
	{
		name: "when an old and a new owner of a partition handle the same message, one commits", file: "internal/claims/claim.go",
		edits: []edit{{`if !c.Inserted[row.KeyHash] {
			found`, `if false {
			found`}},
		pkg: "adapters/kafka", run: "^TestZombie$", fails: "TestZombie",
	},
	subscriber("a refused start registers no window", "subscriber.go", "TestWindowAndRetention", edit{
		`	client, err := s.connect(connected)
`, `	if starter, ok := s.cfg.Processor.(consumer.Starter); ok {
		_ = starter.Start(ctx)
	}
	client, err := s.connect(connected)
`,
	}),
}
