package main

// suite is a mutation of the Kafka subscriber that must fail the case caseName of consumertest.TestSubscriber, on kfake with
// cooperative rebalancing.
func suite(name, file, caseName string, edits ...edit) mutation {
	const in = "TestSubscriber/kfake/cooperative/"
	return mutation{name: name, file: "adapters/kafka/" + file, edits: edits, pkg: "adapters/kafka", run: "^" + in + "^" + caseName + "$", fails: in + caseName, short: true}
}

// subscriber is a mutation of the Kafka subscriber that must fail the named test of adapters/kafka.
func subscriber(name, file, test string, edits ...edit) mutation {
	return mutation{name: name, file: "adapters/kafka/" + file, edits: edits, pkg: "adapters/kafka", run: exactly(test), fails: test, short: true}
}

var kafkaMutations = []mutation{
	suite("a failed message is delivered again", "partition.go", "an_error_redelivers", edit{
		`		case errors.As(err, &retry):
`,
		`		case errors.As(err, &retry):
			d.finished = true
			low = d.mark.raw
			continue
`,
	}),
	suite("a stop waits for the handler to finish", "partition.go", "a_stop_lets_the_handler_finish", edit{
		`	p.drain(work, cancel)
`, `	cancel()
`,
	}),
	subscriber("messages of one key are handled one after another", "queue.go", "TestQueue", edit{
		`				held[d.msg.Key] = true
`, ``,
	}),
	subscriber("an offset is committed only when all messages before it are finished", "marks.go", "TestMarks", edit{
		`	if low := l.first; low.finished {
		l.remove(low)
		return low.raw
	}
	return nil`,
		`	return m.raw`,
	}),
	subscriber("an error other than RetryError stops the subscriber", "partition.go", "TestRejected", edit{
		`		default:
			p.fail(`,
		`		default:
			d.finished = true
			p.marks.finish(d.mark)
			_ = (`,
	}),
	subscriber("a new group starts at the oldest message", "check.go", "TestRefusedSettings", edit{
		`cfg.Consumer.Offsets.Initial != sarama.OffsetOldest, "`, `false, "`,
	}),
	subscriber("the deletion of unhandled messages stops the subscriber", "gap.go", "TestGap/kfake/eager/before_the_first", edit{
		`if slices.Contains(m.cfg.Allow, AllowResetInvalidOffsets) {`, `if true || slices.Contains(m.cfg.Allow, AllowResetInvalidOffsets) {`,
	}),
	subscriber("the offset moves past transaction markers", "partition.go", "TestRetentionDeletesMarkers/kfake/eager", edit{
		`			p.look()
`, ``,
	}),
	subscriber("the offset does not move past committed messages", "markers.go", "TestPassOver/one_that_is_committed_before_that", edit{
		`case b.IsTransactional && open >= 0:`, `case b.IsTransactional:`,
	}),
	subscriber("a topic with one replica is logged as a warning", "replicas.go", "TestOneReplicaDrawsAWarning/kfake/1", edit{
		`case setting(entries, minReplicas) == "1":`, `case setting(entries, minReplicas) == "0":`,
	}),
	subscriber("Check finds the unsafe settings of the user's own group", "check.go", "TestCheck", edit{
		`	wrong := refusals(losing(cfg), allow)
`, `	wrong := refusals(nil, allow)
`,
	}),
	subscriber("a window shorter than the topic's retention is refused", "retention.go", "TestWindowAndRetention", edit{
		`	case window < keeps:`, `	case window < 0:`,
	}),
	subscriber("the number and size of unfinished messages are bounded", "partition.go", "TestUnfinishedAreBounded", edit{
		`return len(p.queue.waiting) >= p.cfg.MaxUnfinished || p.queue.bytes >= 2*p.cfg.MaxBatchBytes`, `return false`,
	}),
	subscriber("a batch does not exceed its limits", "queue.go", "TestBatchesAreBoundedInBytes", edit{
		`case len(batch) == n || len(batch) > 0 && d.size > size:`, `case len(batch) == n:`,
	}),
	{
		name: "when an old and a new owner of a partition handle the same message, one commits", file: pgx + "/claim.go",
		edits: []edit{{`if !c.inserted[row.KeyHash] {
			found`, `if false {
			found`}},
		pkg: "adapters/kafka", run: "^TestZombie$", fails: "TestZombie",
	},
	subscriber("a refused start registers no window", "subscriber.go", "TestWindowAndRetention", edit{
		`	client, err := s.connect(life)
`, `	if starter, ok := s.cfg.Processor.(consumer.Starter); ok {
		_ = starter.Start(ctx)
	}
	client, err := s.connect(life)
`,
	}),
}
