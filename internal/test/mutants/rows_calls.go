package main

var callRows = []row{
	{
		promise: "A call is not made again before its earlier try is recorded.",
		in:      "internal/operator.(*Service).BeginTry",
		body:    `return true, nil`,
		fails:   "TestStore/postgres15/a_try_is_recorded_before_it_begins in adapters/pgxstore",
	},
	{
		promise: "One process begins a try, also when several have read the same record.",
		in:      "internal/operator.holdsToken",
		body:    `return true, nil`,
		fails:   "TestStore/postgres15/one_process_begins_a_try in adapters/pgxstore",
	},
	{
		promise: "A process that was frozen begins no try of a call that another one has settled.",
		sql:     "internal/dialect.newCalls.Claimed",
		cut:     "count(*)",
		put:     "0",
		fails:   "TestStore/postgres15/a_settled_call_begins_no_try/read_committed in adapters/pgxstore",
	},
	{
		promise: "A try is made only while the other system remembers the idempotency key.",
		in:      "calls.(rules).remembers",
		body:    `return true`,
		fails:   "TestAnOldKeyIsNotBelieved in calls",
	},
	{
		promise: "Find is believed only when no request can be under way.",
		in:      "calls.decide",
		body:    `if s, until = decideOriginal(c, db, due, f, r); s == wait { s = ask }; return s, until`,
		fails:   "TestAnOldKeyIsNotBelieved in calls",
	},
	{
		promise: "A call whose outcome nothing can tell is parked in doubt, and not guessed.",
		in:      "calls.decide",
		body:    `if s, until = decideOriginal(c, db, due, f, r); s == inDoubt { s = do }; return s, until`,
		fails:   "TestAnOldKeyIsNotBelieved in calls",
	},
	{
		promise: "An ID that was used for a call with other content is refused.",
		in:      "calls.decide",
		body:    `if s, until = decideOriginal(c, db, due, f, r); s == mismatch { s = already }; return s, until`,
		fails:   "TestACallIsMadeAndSettledOnce in calls",
	},
	{
		promise: "A refusal after a try whose outcome is not known does not count as the outcome.",
		in:      "calls.(*attempt).refusedNow",
		body:    `return a.refused(refusal)`,
		fails:   "TestARefusal in calls",
	},
	{
		promise: "The error of a call in doubt says until when its request may be under way.",
		in:      "calls.(*attempt).over",
		body:    `return a.now().UTC().Format(time.RFC3339)`,
		fails:   "TestAnErrorInDoubtNamesTheTime in calls",
	},
	{
		promise: "A call that is not settled is not explained as a message that was not processed.",
		in:      "consumer/ops.openCall",
		body:    `return nil, nil`,
		fails:   "TestScripts in cmd/txonce",
	},
	{
		promise: "A refusal settles a call only if no other relay has begun a try meanwhile.",
		in:      "internal/operator.DroppedCall",
		body:    `return droppedCallOriginal(st, key, 0)`,
		fails:   "TestStore/postgres15/the_record_of_a_call_goes_with_its_claim/read_committed in adapters/pgxstore",
	},
	{
		promise: "After a failover Find is asked only when no request can be under way whose record was lost.",
		in:      "calls.(*sightings).saw",
		body:    `return database{}`,
		fails:   "TestAfterAFailoverFindIsAskedFirst in calls",
	},
	{
		promise: "An answer about a call does not replace what somebody else, or a relay, has written since the question.",
		sql:     "internal/dialect.newCalls.Answer",
		cut:     "IN (token, -1)",
		put:     "IS NOT NULL",
		fails:   "TestStore/postgres15/an_answer_about_a_call_that_has_changed_is_refused in adapters/pgxstore",
	},
	{
		promise: "When Done fails, the result of the call is kept.",
		in:      "calls.(*attempt).keepResult",
		body:    `_ = result`,
		fails:   "TestDoneRunsAgainWithoutAnotherCall in calls",
	},
	{
		promise: "A process that stood still before a call does not make it when its time is over.",
		in:      "calls.(*attempt).late",
		body:    `return false`,
		fails:   "TestATryThatBeganTooLateIsNotMade in calls",
	},
	{
		promise: "An idempotency key is the same in each try and each release.",
		in:      "internal/outgoing.DownstreamKey",
		body:    `return rand.Text()`,
		imports: "crypto/rand",
		fails:   "TestTheIdempotencyKeyIsFrozen in calls",
	},
	{
		promise: "A message that a Publisher defers waits without an attempt being counted, and others go on.",
		in:      "outbox/relay.(*batch).deferUncounted",
		body:    `b.countFailure(i, err)`,
		fails:   "TestRelayDefersOneMessage in outbox/relay",
	},
}
