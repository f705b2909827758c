package main

// simulationRows are promises that the simulation must notice by chance, within sim cases. Other tests hold most of
// them too; see bySimulation.
var simulationRows = []row{
	{
		promise: "A transaction whose COMMIT failed is not taken for committed.",
		in:      "consumer.(*attempt).conclude",
		body: `if a.err != nil && len(a.first) > 0 && len(a.ran) == len(a.first) && len(a.culprits) == 0 {
			a.err = nil
		}
		return a.concludeOriginal(ctx)`,
		fails: simulated, sim: 23, rule: `neither an effect nor a dead letter`,
	},
	{
		promise: "A handler does not run for a key that is claimed.",
		in:      "consumer/internal/decide.OfClaim",
		body: `run, refused, settled = ofClaimOriginal(v, d, alias, mismatchIsDuplicate)
		return run || v == dedup.Duplicate, refused, settled`,
		fails: simulated, sim: 6, rule: `has [0-9]+ effects`,
	},
	{
		promise: "Copies that wait for a key in one process are duplicates only when its holder has committed.",
		in:      "consumer.(*item).outcome",
		body:    `return keyOutcome{committed: !alias, fingerprint: it.rec.Fingerprint}`,
		fails:   simulated, sim: 477, rule: `neither an effect nor a dead letter`,
	},
	{
		promise: "A message whose key another process holds is not acknowledged as a duplicate.",
		in:      "consumer.(*batch).judge",
		body: `if f.InFlight {
			b.items[i].done = true
			return
		}
		b.judgeOriginal(ctx, i, epoch, f, err)`,
		fails: simulated, sim: 15, rule: `neither an effect nor a dead letter`,
	},
	{
		promise: "A failure of the database is not a message's own: none is parked for it.",
		in:      "consumer/internal/decide.blame",
		body:    `return p, true`,
		fails:   simulated, sim: 98, rule: `want 1 and 0`,
	},
	{
		promise: "A message that was not committed is not acknowledged.",
		in:      "consumer.(*batch).fail",
		body:    `return`,
		fails:   simulated, sim: 8, rule: `neither an effect nor a dead letter`,
	},
	{
		promise: "What a handler did before it failed is rolled back.",
		in:      "consumer.(*attempt).inTurn",
		body: `_ = a.inTurnOriginal(ctx, tx, msgs, keys)
		a.culprits = nil
		return nil`,
		fails: simulated, sim: 38, rule: `want 0 and 1|neither an effect nor a dead letter`,
	},
	{
		promise: "Crashes, lost connections and lost acknowledgements do not use up a message's attempts.",
		in:      "consumer/internal/decide.spent",
		body:    `return spentOriginal(seen+100, attempt, n)`,
		fails:   simulated, sim: 1767, rule: `fails once`,
	},
	{
		promise: "A parked message keeps no claim, so that its redelivery runs.",
		in:      "consumer/internal/decide.OfLetter",
		body: `l := ofLetterOriginal(cause, claim, d, mismatchIsDuplicate)
		l.Forget = false
		return l`,
		fails: simulated, sim: 32, rule: `its key is claimed: true|neither an effect nor a dead letter`,
	},
	{
		promise: "A message is parked only after its claim has shown that it was not committed by another delivery.",
		in:      "consumer.(*parking).write",
		body: `none := *p
		none.it = &item{msg: p.it.msg}
		return none.writeOriginal(ctx, letter)`,
		fails: simulated, sim: 1535, rule: `whose effect is committed`,
	},
	{
		promise: "A message without a key is acknowledged only when its dead letter is committed.",
		in:      "consumer.(*parking).write",
		body: `result, err = p.writeOriginal(ctx, letter)
		if p.it.rec.Key.ID == "" {
			return decide.Written, nil
		}
		return result, err`,
		fails: simulated, sim: 366, rule: `no key and no dead letter`,
	},
	{
		promise: "Copies that wait for a key go on when its holder has failed.",
		in:      "consumer.(*memory).unlock",
		body: `if o.decided() {
			m.unlockOriginal(key, o)
			return
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		k := m.keys[key]
		k.held = false
		m.set(key, k)`,
		fails: simulated, sim: 3087, rule: `come to rest`,
	},
	{
		promise: "In a batch, a message is deferred behind an earlier one of its ordering key that was deferred.",
		in:      "consumer.(*batch).ready",
		body: `b.blocked = map[string]blockedKey{}
		return b.readyOriginal(ctx, todo)`,
		fails: simulated, sim: 789, rule: `was committed after`,
	},
	{
		promise: "A BatchHandler gets messages in the order of their deliveries.",
		in:      "consumer.(*attempt).together",
		body: `slices.Reverse(msgs)
		slices.Reverse(keys)
		return a.togetherOriginal(ctx, tx, msgs, keys)`,
		fails: simulated, sim: 380, rule: `order of the deliveries`,
	},
	{
		promise: "What a BatchHandler did before it failed is rolled back.",
		in:      "consumer.(*attempt).together",
		body: `_ = a.togetherOriginal(ctx, tx, msgs, keys)
		a.culprits = nil
		return nil`,
		fails: simulated, sim: 49, rule: `want 0 and 1|end of the pipeline`,
	},
	{
		promise: "What interleaved handlers did before one of them failed is rolled back.",
		in:      "consumer.(*attempt).interleave",
		body: `_ = a.interleaveOriginal(ctx, tx, msgs, keys)
		a.culprits = nil
		return nil`,
		fails: simulated, sim: 670, rule: `want 0 and 1|end of the pipeline|neither an effect nor a dead letter`,
	},
	{
		promise: "Interleaved handlers of one ordering key run one after the other, in the order of the deliveries.",
		in:      "consumer.(*attempt).interleave",
		body: `for _, m := range msgs {
			m.OrderingKey = ""
		}
		return a.interleaveOriginal(ctx, tx, msgs, keys)`,
		fails: simulated, sim: 2480, rule: `order of the deliveries`,
	},
	{
		promise: "A dead letter that was discarded never has an effect, also when its message is delivered again.",
		in:      "consumer.(DeadLetter).DiscardRecords",
		body:    `return nil`,
		fails:   simulated, sim: 82, rule: `was discarded`,
	},
	{
		promise: "A relay marks as sent only what was confirmed.",
		in:      "outbox/relay.(*batch).takeAnswers",
		body: `for _, i := range c.positions {
			b.errs[i] = nil
		}
		b.takeAnswersOriginal(c)`,
		fails: simulated, sim: 46, rule: `which has not arrived|paid 0 times`,
	},
	{
		promise: "A message that was not confirmed is published before the later ones of its key.",
		imports: "slices",
		in:      "outbox/relay.(*batch).decide",
		body: `b.decideOriginal(i, c)
		b.outcomes[i].Verdict = driver.Returned
		for _, k := range c.keys {
			if b.outcomes[i].OrderingKey != "" && len(k.pending) > 0 &&
				b.outcomes[k.pending[0]].OrderingKey == b.outcomes[i].OrderingKey &&
				!slices.ContainsFunc(b.queues, func(q *publisherQueue) bool { return slices.Contains(q.ready, k) }) {
				b.enqueue(k)
			}
		}
		return true`,
		fails: simulated, sim: 838, rule: `after a later call|before one that has arrived`,
	},
	{
		promise: "A publisher that does not keep the order gets one message of a key at a time.",
		in:      "outbox/relay.newPublishers",
		body: `ps, err = newPublishersOriginal(cfg)
		for _, p := range ps.all {
			p.together = true
		}
		return ps, err`,
		fails: simulated, sim: 110, rule: `before one that has arrived|after a later call`,
	},
	{
		promise: "No call of a publisher begins at the end of the hold.",
		in:      "outbox/relay.(*batch).startCall",
		body:    startsLate,
		fails:   simulated, sim: 1432, rule: `the hold that it was leased under has ended`,
	},
	{
		promise: "A relay that cannot renew its hold stops publishing, also when nothing tells it that the hold is lost.",
		in:      "outbox/relay.(*session).renewed",
		body: `hold.Until = hold.Until.Add(time.Hour)
		s.renewedOriginal(hold)`,
		fails: simulated, sim: 152, rule: `the hold that it was leased under has ended`,
	},
	{
		promise: "A relay that stood still before a call does not begin it when its hold has ended.",
		in:      "outbox/relay.(*batch).publish",
		body: `msgs := make([]outbox.Message, len(c.positions))
		ctx, cancel := context.WithDeadline(b.session.work, c.deadline)
		defer cancel()
		if !b.composeAll(c, msgs) {
			return
		}
		defer b.watch(ctx, c)()
		errs, _ := b.call(ctx, c.queue.publisher, c.positions, msgs)
		c.cutOff = b.session.work.Err() != nil || c.leaseEnd && !time.Now().Before(c.deadline)
		for n, err := range errs {
			b.errs[c.positions[n]] = err
		}`,
		fails: simulated, sim: 860, rule: `the hold that it was leased under has ended`,
	},
	{
		promise: "A session whose lease is lost is replaced by another one.",
		in:      "outbox/relay.(*session).leaseLost",
		body:    `return`,
		fails:   simulated, sim: 36, rule: `come to rest`,
	},
	{
		promise: "After its lease is lost a relay publishes nothing more of the session.",
		in:      "outbox/relay.(*session).leaseLost",
		body:    `time.AfterFunc(2*s.relay.cfg.LeaseTTL, func() { s.leaseLostOriginal(kind, err) })`,
		also:    []row{{in: "outbox/relay.(*batch).startCall", body: startsLate}},
		fails:   simulated, sim: 264, rule: `has ended|its lease is lost`,
	},
	{
		// Otherwise they are neither settled nor leased again for as long as the session lives: the case does not rest.
		promise: "Outcomes whose Settle failed are settled again.",
		in:      "outbox/relay.(*batch).settle",
		body: `_ = b.session.queue.Settle(b.session.work, b.outcomes[from:to])
		return to`,
		fails: simulated, sim: 1202, rule: `come to rest`,
	},
	{
		promise: "Memory: an outcome with an outdated token changes nothing.",
		in:      "outbox/outboxtest.(*session).Settle",
		body: `m := s.memory
		m.mu.Lock()
		for i, o := range outcomes {
			m.shards[o.Shard].owner, outcomes[i].Token = s, m.shards[o.Shard].token
		}
		m.mu.Unlock()
		return s.settleOriginal(ctx, outcomes)`,
		fails: simulated, sim: 474, rule: `outdated token`,
	},
	{
		promise: "The other system is asked about a call only when no request for it can arrive any more.",
		in:      "calls.decide",
		body: `if s, until = decideOriginal(c, db, due, f, r); s == wait {
			s = ask
		}
		return s, until`,
		fails: simulated, sim: 8358, rule: `paid 2 times`,
	},
	{
		promise: "Without idempotency keys a call is made again only when the other system has not had it.",
		in:      "calls.decide",
		body: `if s, until = decideOriginal(c, db, due, f, r); s == ask || s == wait {
			s = do
		}
		return s, until`,
		fails: simulated, sim: 150, rule: `paid [0-9]+ times`,
	},
	{
		promise: "A call that is settled is not made again, whatever became of its message.",
		in:      "calls.decide",
		body: `if s, until = decideOriginal(c, db, due, f, r); s == already {
			s = do
		}
		return s, until`,
		fails: simulated, sim: 458, rule: `come to rest|paid [0-9]+ times`,
	},
	{
		promise: "Calls of one ordering key are made in the order of their commits.",
		in:      "calls.(*Calls).Enqueue",
		body: `for i := range requests {
			requests[i].OrderingKey = ""
		}
		return c.enqueueOriginal(ctx, tx, requests...)`,
		fails: simulated, sim: 110, rule: `after a later call`,
	},
	{
		promise: "A call is not made before its time.",
		in:      "calls.(*Calls).Enqueue",
		body: `for i := range requests {
			requests[i].NotBefore = time.Time{}
		}
		return c.enqueueOriginal(ctx, tx, requests...)`,
		fails: simulated, sim: 510, rule: `before its time`,
	},
	{
		promise: "Kafka: a group whose database lost commits begins where the database is.",
		in:      "adapters/kafka.begin",
		body: `b, err := beginOriginal(f, row)
		if b.rewind != (driver.Rewind{}) {
			b.at, b.reset, b.rewind = f.committed, false, driver.Rewind{}
		}
		return b, err`,
		fails: simulatedPositions, sim: 113, rule: `has no effect|come to rest`,
	},
	{
		promise: "Kafka: positions are written by the server that has the claims below them.",
		in:      "dedup/deduptest.(*Store).MovePositions",
		body: `s.db.mu.Lock()
		history = s.saw()
		for i, m := range moves {
			if row, found := s.db.positions[m.PositionID]; found {
				moves[i].Epoch, moves[i].From = row.Epoch, row.Next
			}
		}
		s.db.mu.Unlock()
		return s.movePositionsOriginal(ctx, history, moves)`,
		fails: simulatedPositions, sim: 144, rule: `has no effect|come to rest`,
	},
	{
		promise: "Kafka: an offset is committed to the group only when the database has it.",
		in:      "adapters/kafka.(*positions).write",
		body: `for _, p := range ps {
			s.mu.Lock()
			r := s.reading[p]
			s.marked = r != nil
			s.mu.Unlock()
			if next, _ := p.finished(); r != nil && next > r.Next {
				p.commit(next, r.metadata)
			}
		}
		return s.writeOriginal(ctx, close, ps...)`,
		fails: simulatedPositions, sim: 986, rule: `which it has not`,
	},
	{
		promise: "Kafka: a member notices that the database went back although its partition is idle.",
		in:      "adapters/kafka.(*positions).compare",
		body:    `return false, nil`,
		fails:   simulatedPositions, sim: 423, rule: `has no effect|come to rest`,
	},
	{
		promise: "Kafka: a backup that is restored shows although the position waits for a message that is not finished.",
		in:      "adapters/kafka.(*positions).beat",
		body:    `return nil`,
		fails:   simulatedPositions, sim: 25868, rule: `has no effect|come to rest`,
	},
}

// startsLate lets startCall believe that the hold lasts for another hour.
const startsLate = `had := b.session.hold.Load()
		longer := *had
		longer.Until = longer.Until.Add(time.Hour)
		b.session.hold.Store(&longer)
		defer b.session.hold.CompareAndSwap(&longer, had)
		return b.startCallOriginal(q)`
