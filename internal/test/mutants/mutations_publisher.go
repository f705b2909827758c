package main

// publishing is a mutation of the Publisher that the test of that name must notice, on brokers within the test's process.
func publishing(name, file, test string, edits ...edit) mutation {
	return mutation{name: "publisher: " + name, file: "adapters/kafka/" + file, edits: edits, pkg: "adapters/kafka", run: "^" + test + "$", fails: test}
}

var publisherMutations = []mutation{
	publishing("what is unanswered at the deadline is not confirmed", "publisher_call.go", "TestPublisherKeepsNoBacklog", edit{
		`c.errs[i] = unanswered(ctx)`, `c.errs[i] = nil`,
	}),
	publishing("an error of the broker is an answer", "publisher_producer.go", "TestPublisherErrorsOfBrokers", edit{
		`r.call.answer(r.index, p.topics.refused(r.Topic, e.Err))`, `r.call.answer(r.index, nil)`,
	}),
	publishing("a producer that is stuck is replaced", "publisher_producer.go", "TestPublisherKeepsNoBacklog", edit{
		`broken := stuck || producer`, `broken := producer`,
	}),
	publishing("a fenced producer is replaced", "publisher_topics.go", "TestPublisherFenced", edit{
		`return t.fenced || t.worn && !confirmed`, `return t.worn && !confirmed`,
	}),
	publishing("a message refused with its batch is tried alone", "publisher.go", "TestPublisherBatchRefusedForOneMessage", edit{
		`conf.Producer.Flush.MaxMessages = 1`, `conf.Producer.Flush.MaxMessages = 0`,
	}),
	publishing("too large is permanent", "publisher.go", "TestPublisherErrorsOfBrokers", edit{
		`final[i] = outbox.Permanent(err)`, `final[i] = err`,
	}),
	publishing("a missing topic is the topic's fault", "publisher_errors.go", "TestPublisherErrorsOfBrokers", edit{
		`return &outbox.TopicError{Err: fmt.Errorf("%w; create it, it is not created by publishing to it", named)}`,
		`return fmt.Errorf("%w; create it, it is not created by publishing to it", named)`,
	}),
	publishing("it rests while brokers are away", "publisher.go", "TestPublisherRests", edit{
		`return p.breaker.Publish(ctx, msgs, p.publish)`, `return p.publish(ctx, msgs)`,
	}),
	publishing("an empty payload is no tombstone", "publisher_record.go", "TestPublisherHandsOverAllOfAMessage", edit{
		`if m.Payload == nil {`, `if false {`,
	}),
	publishing("without all replicas' acks it is refused", "publisher_config.go", "TestPublisherRefusesSettings", edit{
		`cfg.Producer.RequiredAcks != sarama.WaitForAll,`, `false,`,
	}),
	publishing("without idempotence it is refused", "publisher_config.go", "TestPublisherRefusesSettings", edit{
		`!cfg.Producer.Idempotent,`, `false,`,
	}),
	publishing("a partitioner that is not by key is refused", "publisher_partition.go", "TestPublisherRefusesSettings", edit{
		`ok && n != before`, `ok && n != before && false`,
	}),
	{
		name: "publisher: rests grow", file: "internal/breaker/breaker.go", pkg: "internal/breaker", run: "^TestPublisherBreaker", fails: "TestPublisherBreaker", short: true,
		edits: []edit{{`min(2*rest, b.cfg.MaxRest)`, `min(rest, b.cfg.MaxRest)`}},
	},
}
