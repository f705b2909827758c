package main

// suite is a mutation of the Kafka subscriber that the case of consumertest.TestSubscriber of that name must notice, on
// kfake with cooperative rebalancing.
func suite(name, file, caseName string, edits ...edit) mutation {
	const in = "TestSubscriber/kfake/cooperative/"
	return mutation{name: name, file: "adapters/kafka/" + file, edits: edits, pkg: "adapters/kafka", run: "^" + in + "^" + caseName + "$", fails: in + caseName, short: true}
}

// subscriber is one that a test of the adapter's own must notice.
func subscriber(name, file, test string, edits ...edit) mutation {
	return mutation{name: name, file: "adapters/kafka/" + file, edits: edits, pkg: "adapters/kafka", run: exactly(test), fails: test, short: true}
}

var kafkaMutations = []mutation{
	suite("what failed is delivered again", "partition.go", "an_error_redelivers", edit{
		`		case errors.As(err, &retry):
`,
		`		case errors.As(err, &retry):
			d.finished = true
			low = d.mark.raw
			continue
`,
	}),
	suite("a stop waits for the handler", "partition.go", "a_stop_lets_the_handler_finish", edit{
		`	p.drain(work, cancel)
`, `	cancel()
`,
	}),
	subscriber("messages of a key wait for each other", "queue.go", "TestQueue", edit{
		`				held[d.msg.Key] = true
`, ``,
	}),
	subscriber("marks are contiguous", "marks.go", "TestMarks", edit{
		`	if low := l.first; low.finished {
		l.remove(low)
		return low.raw
	}
	return nil`,
		`	return m.raw`,
	}),
	subscriber("what is rejected stops the subscriber", "partition.go", "TestRejected", edit{
		`		default:
			p.fail(`,
		`		default:
			d.finished = true
			p.marks.finish(d.mark)
			_ = (`,
	}),
	subscriber("a group starts at the oldest message", "check.go", "TestRefusedSettings", edit{
		`cfg.Consumer.Offsets.Initial != sarama.OffsetOldest, "`, `false, "`,
	}),
	subscriber("a gap is an alarm", "gap.go", "TestGap/kfake/eager/before_the_first", edit{
		`if slices.Contains(m.cfg.Allow, AllowResetInvalidOffsets) {`, `if true || slices.Contains(m.cfg.Allow, AllowResetInvalidOffsets) {`,
	}),
	subscriber("markers are passed over", "partition.go", "TestRetentionDeletesMarkers/kfake/eager", edit{
		`			p.look()
`, ``,
	}),
	subscriber("what is committed is not passed over", "markers.go", "TestPassOver/one_that_is_committed_before_that", edit{
		`case b.IsTransactional && open >= 0:`, `case b.IsTransactional:`,
	}),
	subscriber("one replica draws a warning", "replicas.go", "TestOneReplicaDrawsAWarning/kfake/1", edit{
		`case setting(entries, minReplicas) == "1":`, `case setting(entries, minReplicas) == "0":`,
	}),
	subscriber("a group of the user's own is checked", "check.go", "TestCheck", edit{
		`	wrong := refusals(losing(cfg), allow)
`, `	wrong := refusals(nil, allow)
`,
	}),
	subscriber("keys outlive messages", "retention.go", "TestWindowAndRetention", edit{
		`	case window < keeps:`, `	case window < 0:`,
	}),
	subscriber("the unfinished are bounded", "partition.go", "TestUnfinishedAreBounded", edit{
		`return len(p.queue.waiting) >= p.cfg.MaxUnfinished || p.queue.bytes >= 2*p.cfg.MaxBatchBytes`, `return false`,
	}),
	subscriber("a batch stops at its limits", "queue.go", "TestBatchesAreBoundedInBytes", edit{
		`case len(batch) == n || len(batch) > 0 && d.size > size:`, `case len(batch) == n:`,
	}),
	{
		name: "of a zombie and the new owner one commits", file: "internal/claims/claim.go",
		edits: []edit{{`if !c.Inserted[row.KeyHash] {
			found`, `if false {
			found`}},
		pkg: "adapters/kafka", run: "^TestZombie$", fails: "TestZombie",
	},
	subscriber("a start that is refused registers no window", "subscriber.go", "TestWindowAndRetention", edit{
		`	client, err := s.connect(life)
`, `	if starter, ok := s.cfg.Processor.(consumer.Starter); ok {
		_ = starter.Start(ctx)
	}
	client, err := s.connect(life)
`,
	}),
}
