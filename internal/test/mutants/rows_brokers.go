package main

var brokerRows = []row{
	{
		promise: "A failed message is not acknowledged: it is delivered again.",
		in:      "internal/deliver.(*Deliverer).decide",
		body:    `return dr.decideOriginal(b, make([]error, len(errs)))`,
		fails:   "TestSubscriber/kfake/cooperative/an_error_redelivers in adapters/kafka",
	},
	{
		promise: "No two workers handle messages of one key at the same time.",
		in:      "internal/deliver.(*Deliverer).Add",
		body: `for _, d := range ds {
			d.Key = ""
		}
		dr.addOriginal(ds...)`,
		fails: "TestProperty in internal/deliver",
	},
	{
		promise: "The handler of a message that the broker has taken away is cancelled.",
		in:      "internal/deliver.(*Deliverer).Lose",
		body:    `return`,
		fails:   "TestLoseCancelsTheHandler in internal/deliver",
	},
	{
		promise: "A stop lets the handlers finish, and gives back what waits.",
		in:      "internal/deliver.(*Deliverer).Drain",
		body:    `return dr.drainOriginal(0, exit)`,
		fails:   "TestDrainFinishesWhatIsInWorkAndGivesBackTheRest in internal/deliver",
	},
	{
		promise: "Kafka: an offset is committed only when all messages before it are finished.",
		in:      "adapters/kafka.(*offsetTracker).finish",
		body: `t.finishOriginal(o)
		return o.raw`,
		fails: "TestOffsetTracker in adapters/kafka",
	},
	{
		promise: "Kafka: a message that can neither be handled nor parked stops the subscriber, and the error names it.",
		in:      "adapters/kafka.(*member).fail",
		body:    `m.failOriginal(errors.New("stopped"))`,
		fails:   "TestRejected in adapters/kafka",
	},
	{
		promise: "Kafka: when an old and a new owner of a partition handle the same message, one of them commits.",
		in:      "adapters/pgxstore.(*Store).InTx",
		body: `return s.inTxOriginal(ctx, recs, func(tx pgx.Tx, answers []dedup.Claim) error {
			for i := range answers {
				answers[i].Verdict = dedup.First
			}
			return fn(tx, answers)
		})`,
		fails: "TestZombie in internal/test/system/kafka",
	},
	{
		promise: "Kafka: settings of sarama that lose messages are refused.",
		in:      "adapters/kafka.losing",
		body:    `return nil`,
		fails:   "TestRefusedSettings in adapters/kafka",
	},
	{
		promise: "Kafka: a window that is shorter than the topic's retention is refused, and the error names both.",
		in:      "adapters/kafka.checkWindow",
		body: `if checkWindowOriginal(topic, window, entries, err) != nil {
			return errors.New("refused") // without an error the test would wait for two minutes, as in the next rows
		}
		return nil`,
		fails: "TestWindowAndRetention in adapters/kafka",
	},
	{
		promise: "Kafka: a compacted topic is refused, and the error names its policy.",
		in:      "adapters/kafka.checkCompaction",
		body: `if checkCompactionOriginal(topic, entries, err) != nil {
			return errors.New("refused")
		}
		return nil`,
		fails: "TestCompactedTopic in adapters/kafka",
	},
	{
		promise: "Kafka: the deletion of unhandled messages stops the subscriber, and the error names them.",
		in:      "adapters/kafka.(*member).offsetGap",
		body: `if m.offsetGapOriginal(topic, partition) != nil {
			return fmt.Errorf("stopped")
		}
		return nil`,
		fails: "TestGap/kfake/eager/before_the_first in adapters/kafka",
	},
	{
		promise: "Kafka: the number and size of messages in memory are bounded.",
		in:      "adapters/kafka.(*partition).full",
		body:    `return false`,
		fails:   "TestUnfinishedAreBounded in adapters/kafka",
	},
	{
		promise: "Kafka: an offset is committed only after the database has committed the position, so that a database that goes back is noticed.",
		in:      "adapters/kafka.(*positions).write",
		body: `s.mu.Lock()
		defer s.mu.Unlock()
		for _, p := range ps {
			next, _ := p.finished()
			if r := s.reading[p]; r != nil && next > r.Next {
				r.Next = next
				p.commit(r.Next, r.metadata)
				p.acks.Run()
				if !close {
					p.session.Commit()
				}
			}
		}
		return true, nil`,
		fails: "TestDatabaseWentBack/a_backup_while_it_is_stopped/kfake/eager in adapters/kafka",
	},
	{
		promise: "Kafka: an idle subscriber notices that the database went back.",
		in:      "adapters/kafka.(*positions).compare",
		body:    `return true, nil`,
		fails:   "TestDatabaseWentBack/a_backup_while_it_is_idle/kfake/eager in adapters/kafka",
	},
	{
		promise: "Kafka: a restored backup is noticed although the position waits for a message that is not finished.",
		in:      "adapters/kafka.(*positions).beat",
		body:    `return nil`,
		fails:   "TestBackupRestoredBehindAnUnfinishedMessage/kfake/eager in adapters/kafka",
	},
	{
		promise: "Kafka: messages whose commits the database lost while no subscriber ran are read again.",
		in:      "adapters/kafka.begin",
		body: `b, err := beginOriginal(f, row)
		if b.rewind != (driver.Rewind{}) {
			b.at, b.reset = f.committed, false
		}
		return b, err`,
		fails: "TestDatabaseWentBack/another_server_while_it_is_stopped/kfake/eager in adapters/kafka",
	},
	{
		promise: "Kafka: a topic that was deleted and created again is read from its first message.",
		in:      "adapters/kafka.anotherLog",
		body:    `return false`,
		fails:   "TestBegin in adapters/kafka",
	},
	{
		promise: "Kafka: when the database went back to before messages that an operator has skipped, a person decides.",
		in:      "adapters/kafka.(mark).skipped",
		body:    `return m`,
		fails:   "TestBegin in adapters/kafka",
	},
	{
		promise: "Kafka: a database that does not know the group is refused, and the error says what to do.",
		in:      "adapters/kafka.markOf",
		body:    `return nil`,
		fails:   "TestBegin in adapters/kafka",
	},
	{
		promise: "Kafka: sessions that were killed near one message are counted.",
		in:      "adapters/kafka.(beginning).position",
		body: `p := b.positionOriginal(row, window)
		p.Suspect, p.Tries = 0, 0
		return p`,
		fails: "TestBeginAfterKilledSessions in adapters/kafka",
	},
	{
		promise: "Kafka: messages after those that may kill processes wait until these were tried.",
		in:      "adapters/kafka.(*suspects).begin",
		body: `s.beginOriginal(from, before)
		s.over = true`,
		fails: "TestMessagesAfterSuspectsWait in adapters/kafka",
	},
	{
		promise: "Kafka: a process that is killed again after its suspects were tried has more suspects the next time.",
		in:      "adapters/kafka.(*positions).passed",
		body:    `return 0`,
		fails:   "TestMessagesAfterSuspectsWait in adapters/kafka",
	},
	{
		promise: "SQS: a long handler keeps its message, and the messages that wait behind it.",
		in:      "adapters/awssqs.(*reception).heartbeat",
		body:    `return`,
		fails:   "TestALongHandlerKeepsItsMessageAndThoseThatWait in adapters/awssqs",
	},
	{
		promise: "SQS: a message that SQS may have given to others is neither deleted nor changed.",
		in:      "adapters/awssqs.(*inFlight).settle",
		body: `_, heartbeat = f.settleOriginal(m)
		return true, heartbeat`,
		fails: "TestALostMessageIsCancelledAndNotSettled in adapters/awssqs",
	},
	{
		promise: "SQS: a deletion that fails is repeated.",
		in:      "adapters/awssqs.(*reception).unconfirmed",
		body: `r.unconfirmedOriginal(answers, successful, failed, confirmed)
		return nil`,
		fails: "TestDeletionsThatFailAreRepeated in adapters/awssqs",
	},
	{
		promise: "SQS: a redrive policy that acts before MaxAttempts is refused.",
		in:      "adapters/awssqs.(*Subscriber).checkRedrive",
		body:    `return nil`,
		fails:   "TestWhatIsRefusedAtTheStart in adapters/awssqs",
	},
	{
		promise: "SQS: a failed message of a FIFO queue holds back its group, whatever its attributes say.",
		in:      "adapters/awssqs.group",
		body:    "return \"\"",
		fails:   "TestAGroupIsTheOrderWhateverTheAttributeSays in adapters/awssqs",
	},
	{
		promise: "RabbitMQ: a message that the server refuses is not reported as published.",
		in:      "adapters/rabbitmq.(*record).nacked",
		body:    `return nil`,
		fails:   "TestPublisherAnswersEachMessage in adapters/rabbitmq",
	},
	{
		promise: "RabbitMQ: a message without a queue is not reported as published.",
		in:      "adapters/rabbitmq.(*record).unroutable",
		body:    `return nil`,
		fails:   "TestPublisherAnswersEachMessage in adapters/rabbitmq",
	},
	{
		promise: "RabbitMQ: published messages are persistent.",
		in:      "adapters/rabbitmq.(*Publisher).newRecord",
		body: `r, err := p.newRecordOriginal(m)
		if r != nil {
			r.msg.DeliveryMode = amqp.Transient
		}
		return r, err`,
		fails: "TestPublisherProperties in adapters/rabbitmq",
	},
	{
		promise: "RabbitMQ: a queue that drops messages is refused.",
		in:      "adapters/rabbitmq.(*SubscriberConfig).checkDangers",
		body:    `return nil`,
		fails:   "TestSubscriberConfig in adapters/rabbitmq",
	},
	{
		promise: "RabbitMQ: a lost connection counts as no attempt.",
		in:      "adapters/rabbitmq.toMessage",
		body: `msg := toMessageOriginal(queue, raw)
		msg.Attempt += earlier(raw)
		return msg`,
		fails: "TestLossesCountForNoAttempt/quorum_true in adapters/rabbitmq",
	},
	{
		promise: "watermill: a handler that nacks its message commits nothing.",
		in:      "adapters/watermilltx.isNacked",
		body:    `return false`,
		fails:   "TestFailureLeavesNothing in internal/test/system/watermilltx",
	},
	{
		promise: "watermill: a publisher that may not wait for the broker's confirmation is refused.",
		in:      "adapters/watermilltx.(PublisherConfig).withDefaults",
		body: `cfg.Confirms = true
		return cfg.withDefaultsOriginal()`,
		fails: "TestPublisherConfigRefused in internal/test/system/watermilltx",
	},
}
