package main

// publishing is a mutation of the Kafka publisher that must fail the named test, which runs on brokers in its own process.
func publishing(name, file, test string, edits ...edit) mutation {
	return mutation{name: "publisher: " + name, file: "adapters/kafka/" + file, edits: edits, pkg: "adapters/kafka", run: "^" + test + "$", fails: test}
}

var publisherMutations = []mutation{
	publishing("a message without an answer at the deadline is not reported as published", "publisher_call.go", "TestPublisherKeepsNoBacklog", edit{
		`c.errs[i] = unanswered(ctx)`, `c.errs[i] = nil`,
	}),
	publishing("a broker's error is reported for its message", "publisher_producer.go", "TestPublisherErrorsOfBrokers", edit{
		`r.call.answer(r.index, p.topics.refused(r.Topic, e.Err))`, `r.call.answer(r.index, nil)`,
	}),
	publishing("a producer that hangs is replaced", "publisher_producer.go", "TestPublisherKeepsNoBacklog", edit{
		`broken := stuck || producer`, `broken := producer`,
	}),
	publishing("a fenced producer is replaced", "publisher_topics.go", "TestPublisherFenced", edit{
		`return t.fenced || t.worn && !confirmed`, `return t.worn && !confirmed`,
	}),
	publishing("each message of a refused batch is tried alone", "publisher.go", "TestPublisherBatchRefusedForOneMessage", edit{
		`conf.Producer.Flush.MaxMessages = 1`, `conf.Producer.Flush.MaxMessages = 0`,
	}),
	publishing("a message that is too large fails permanently", "publisher.go", "TestPublisherErrorsOfBrokers", edit{
		`final[i] = outbox.Permanent(err)`, `final[i] = err`,
	}),
	publishing("a missing topic is reported as the topic's fault, not the message's", "publisher_errors.go", "TestPublisherErrorsOfBrokers", edit{
		`return &outbox.TopicError{Err: fmt.Errorf("%w; create it, it is not created by publishing to it", named)}`,
		`return fmt.Errorf("%w; create it, it is not created by publishing to it", named)`,
	}),
	publishing("publishing pauses while no broker is reachable", "publisher.go", "TestPublisherRests", edit{
		`return p.breaker.Publish(ctx, msgs, p.publish)`, `return p.publish(ctx, msgs)`,
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
	publishing("a partitioner that ignores the key is refused", "publisher_partition.go", "TestPublisherRefusesSettings", edit{
		`ok && n != before`, `ok && n != before && false`,
	}),
	{
		name: "publisher: the pauses grow up to MaxRest", file: "internal/breaker/breaker.go", pkg: "internal/breaker", run: "^TestPublisherBreaker", fails: "TestPublisherBreaker", short: true,
		edits: []edit{{`min(2*rest, b.cfg.MaxRest)`, `min(rest, b.cfg.MaxRest)`}},
	},
}
