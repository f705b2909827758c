package main

var outboxRows = []row{
	{
		promise: "A message whose transaction rolls back is never published.",
		in:      "adapters/pgxstore.(*Store).Enqueue",
		body: `return pgx.BeginFunc(ctx, s.cfg.Pool, func(own pgx.Tx) error {
			return s.enqueueOriginal(ctx, own, msgs...)
		})`,
		fails: "TestOutboxStore/postgres15/rollback_publishes_nothing in adapters/pgxstore",
	},
	{
		promise: "Messages of one Enqueue call are published in their order.",
		sql:     "internal/dialect.NewPostgresOutboxWrite.Enqueue",
		cut:     "ORDER BY m.n",
		put:     "ORDER BY m.id",
		fails:   "TestOutboxWriterOrderOfMany in adapters/pgxstore",
	},
	{
		promise: "Transactions that call LockOrderingKey with one key exclude each other.",
		in:      "adapters/pgxstore.(*keys).LockOrderingKey",
		body:    `return nil`,
		fails:   "TestOutboxStore/postgres15/LockOrderingKey_makes_transactions_of_one_key_exclude_each_other in adapters/pgxstore",
	},
	{
		promise: "Messages that were enqueued after a savepoint are gone when the handler rolls back to it.",
		in:      "adapters/pgxstore.(*lateWrites).drop",
		body:    `return`,
		fails:   "TestOutboxWriterAndSavepoints in adapters/pgxstore",
	},
	{
		promise: "When the messages of a transaction cannot be stored, its COMMIT is reported as failed.",
		in:      "adapters/pgxstore.lostWith",
		body:    `return nil`,
		fails:   "TestOutboxWriterFailsWithCommit/a_constraint_on_the_outbox in adapters/pgxstore",
	},
	{
		promise: "A message has the same ID when its handler runs again.",
		in:      "internal/outgoing.ID",
		body:    `return rand.Text()`,
		imports: "crypto/rand",
		fails:   "TestOutboxIDsAreTheSameOnReExecution in consumer",
	},
	{
		promise: "An ID is not guessed when two goroutines of a handler enqueue at once: Enqueue asks for Message.ID.",
		in:      "internal/outgoing.(*Scope).Begin",
		body:    `return nil`,
		fails:   "TestOutboxScopeRefusesOverlappingCalls in outbox/driver",
	},
	{
		promise: "Only the relay that holds a shard removes or parks its messages.",
		sql:     "internal/dialect.NewPostgresOutbox.Check",
		cut:     " AND s.token = r.token AND s.owner = $1::uuid",
		put:     " AND (s.token = r.token AND s.owner = $1::uuid OR true)",
		fails:   "TestOutboxStore/postgres15/only_the_session_that_holds_a_shard_settles_its_messages in adapters/pgxstore",
	},
	{
		promise: "A relay does not pass over a message of a transaction that commits late.",
		in:      "internal/watermark.(*sequence).move",
		body:    `s.moveOriginal(server, last, nil)`,
		fails:   "TestSequenceWaitsForWriters in internal/watermark",
	},
	{
		promise: "Delayed messages become due in the order of their times, also when two relays move them.",
		sql:     "internal/dialect.NewPostgresOutbox.Due",
		cut:     "AND (SELECT pg_try_advisory_xact_lock({outboxMoves}) FROM pg_class WHERE oid = '@txonce_shards'::regclass)",
		fails:   "TestOutboxMovesWhatIsDueInOrder in adapters/pgxstore",
	},
	{
		promise: "Two messages with one ordering key are never in one Publish call, unless the publisher keeps the order.",
		in:      "outbox/relay.newPublishers",
		body: `ps, err = newPublishersOriginal(cfg)
		for _, p := range ps.all {
			p.together = true
		}
		return ps, err`,
		fails: "TestRelayPublishesOneMessageOfAKeyPerCall in outbox/relay",
	},
	{
		promise: "A failed message holds back the later messages of its ordering key.",
		in:      "outbox/relay.(*batch).takeAnswers",
		body: `var failed []*keyMessages
		for _, k := range c.keys {
			if b.errs[k.pending[0]] != nil && len(k.pending) > k.sent {
				failed = append(failed, k)
			}
		}
		b.takeAnswersOriginal(c)
		for _, k := range failed {
			b.enqueue(k)
		}`,
		fails: "TestRelayRefusedMessageStopsItsKeyOnly in outbox/relay",
	},
	{
		promise: "A relay publishes only while it holds its lease.",
		in:      "outbox/relay.New",
		body: `cfg.Margin = 1
		return newOriginal(cfg)`,
		fails: "TestRelayPublishesOnlyWithinItsLease in outbox/relay",
	},
	{
		promise: "A broker that is away counts against no message, and is asked less and less often.",
		in:      "outbox/relay.(*batch).deferUnavailable",
		body:    `b.countFailure(i, why)`,
		fails:   "TestRelayCoolsDownWhenItsPublisherIsUnavailable in outbox/relay",
	},
	{
		promise: "A topic that is missing or not permitted counts against no message, and holds up no other topic.",
		in:      "outbox/relay.(*batch).coolTopicDown",
		body:    `return 0`,
		fails:   "TestRelayCoolsDownATopicAtFault in outbox/relay",
	},
	{
		promise: "A message is parked after MaxAttempts failures of its own.",
		in:      "outbox/relay.New",
		body: `cfg.MaxAttempts = 1
		return newOriginal(cfg)`,
		fails: "TestRelayParksAtMaxAttempts in outbox/relay",
	},
	{
		promise: "A relay that stops finishes its calls and gives its lease back at once.",
		in:      "outbox/relay.closeSession",
		body:    `return nil`,
		fails:   "TestRelayDrains in outbox/relay",
	},
	{
		promise: "A publisher that does not return holds up neither other relays nor the stop of its own.",
		in:      "outbox/relay.(*session).leaseLost",
		body:    `return`,
		fails:   "TestRelayGivesUpForAPublisherThatDoesNotReturn in outbox/relay",
	},
	{
		promise: "A message without an answer of the broker is not taken for published.",
		in:      "internal/publishing.(*Call).end",
		body: `errs := c.endOriginal(ctx, adapter)
		for i, err := range errs {
			if err != nil && !c.answered[i] {
				errs[i] = nil
			}
		}
		return errs`,
		fails: "TestPublishAnswersEachMessage in internal/publishing",
	},
	{
		promise: "Kafka: a producer that may lose or reorder messages is refused.",
		in:      "adapters/kafka.publisherRules",
		body:    `return nil`,
		fails:   "TestPublisherRefusesSettings in adapters/kafka",
	},
	{
		promise: "Unparked messages are published again, also those below what a relay has passed over.",
		sql:     "internal/dialect.newPostgresOutboxOperations",
		cut:     "SET returned = returned + 1 WHERE",
		put:     "SET returned = returned WHERE",
		fails:   "TestOutboxLeaseFindsWhatComesBack in adapters/pgxstore",
	},
}
