package main

// publishing is a mutation of the Publisher that the test of that name must notice, on brokers within the test's process.
func publishing(name, file, test string, edits ...edit) mutation {
	return mutation{name: "publisher: " + name, file: "adapters/kafka/" + file, edits: edits, pkg: "adapters/kafka", run: "^" + test + "$", fails: test}
}

// sharedByPublishers is a mutation of the code that all Publishers share.
func sharedByPublishers(name, file, test string, edits ...edit) mutation {
	const pkg = "internal/publishing"
	return mutation{name: "publisher: " + name, file: pkg + "/" + file, edits: edits, pkg: pkg, run: "^" + test + "$", fails: test, short: true}
}

var publisherMutations = []mutation{
	sharedByPublishers("a message without an answer at the deadline is not reported as published", "call.go", "TestPublishAnswersEachMessage", edit{
		`		case !c.answered[i]:`, `		case false:`,
	}),
	sharedByPublishers("only the first answer counts", "call.go", "TestPublishAnswersEachMessage", edit{
		`if c.ended || c.answered[i] {`, `if c.ended {`,
	}),
	sharedByPublishers("no message is refused for good because of its batch", "call.go", "TestPublishHasNoTimeToIsolate", edit{
		`		case c.isolated:`, `		case true:`,
	}),
	sharedByPublishers("a message refused with its batch is sent by itself", "call.go", "TestPublishIsolates", edit{
		`send(ctx, c, refused, true)`, `_ = send`,
	}),
	sharedByPublishers("a client is cut after its last call", "pool.go", "TestPoolCutsAfterTheLastCall", edit{
		`if client.calls == 0 && !client.cut {`, `if !client.cut {`,
	}),
	sharedByPublishers("a broken client takes no more calls", "pool.go", "TestPoolCutsAfterTheLastCall", edit{
		`if broken || client.retired {`, `if client.retired {`,
	}),
	publishing("a broker's error is reported for its message", "publisher_producer.go", "TestPublisherErrorsOfBrokers", edit{
		`r.call.Answer(r.index, p.topics.refused(r.Topic, e.Err))`, `r.call.Answer(r.index, nil)`,
	}),
	publishing("a producer that hangs is replaced", "publisher.go", "TestPublisherKeepsNoBacklog", edit{
		`p.pool.Release(client, stuck || client`, `p.pool.Release(client, stuck && false || client`,
	}),
	publishing("a fenced producer is replaced", "publisher_topics.go", "TestPublisherFenced", edit{
		`return t.fenced || t.lost && !confirmed`, `return t.lost && !confirmed`,
	}),
	publishing("each message of a refused batch is tried alone", "publisher.go", "TestPublisherBatchRefusedForOneMessage", edit{
		`conf.Producer.Flush.MaxMessages = 1`, `conf.Producer.Flush.MaxMessages = 0`,
	}),
	publishing("a message that is too large fails permanently", "publisher_errors.go", "TestPublisherErrorsOfBrokers", edit{
		`outbox.Permanent(fmt.Errorf("%w; send less, or raise`, `(fmt.Errorf("%w; send less, or raise`,
	}),
	publishing("a missing topic is reported as the topic's fault, not the message's", "publisher_errors.go", "TestPublisherErrorsOfBrokers", edit{
		`return &outbox.TopicError{Err: fmt.Errorf("%w; create it, it is not created by publishing to it", named)}`,
		`return fmt.Errorf("%w; create it, it is not created by publishing to it", named)`,
	}),
	publishing("an empty payload is not published as a tombstone", "publisher_record.go", "TestPublisherHandsOverAllOfAMessage", edit{
		`if m.Payload == nil {`, `if false {`,
	}),
	publishing("a producer that does not wait for all in-sync replicas is refused", "publisher_config.go", "TestPublisherRefusesSettings", edit{
		`cfg.Producer.RequiredAcks != sarama.WaitForAll,`, `false,`,
	}),
	publishing("a producer without idempotence is refused", "publisher_config.go", "TestPublisherRefusesSettings", edit{
		`!cfg.Producer.Idempotent,`, `false,`,
	}),
	publishing("a partitioner that panics refuses its message", "publisher_partition.go", "TestPublisherPartitionerPanics", edit{
		`		return &partitionError{fmt`, `		_ = &partitionError{fmt`,
	}),
	publishing("a partitioner that ignores the key is refused", "publisher_partition.go", "TestPublisherRefusesSettings", edit{
		`ok && n != before`, `ok && n != before && false`,
	}),
}
