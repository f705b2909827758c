package main

// idempotent is a mutation of adapters/httpidem that the test of that name must notice, without servers.
func idempotent(name, file, test string, edits ...edit) mutation {
	const pkg = "adapters/httpidem"
	return mutation{name: "httpidem: " + name, file: pkg + "/" + file, edits: edits, pkg: pkg, run: "^" + test + "$", fails: test, short: true}
}

var httpMutations = []mutation{
	{
		name: "httpidem: a handler may leave a temporary table", file: "adapters/httpidem/attempt.go", pkg: "adapters/httpidem",
		run: exactly("TestAHandlerMayLeaveATemporaryTable"), fails: "TestAHandlerMayLeaveATemporaryTable",
		edits: []edit{{`!errors.Is(err, dedup.ErrTemporary) {`, `err != nil {`}},
	},
	idempotent("a first response is never marked as a replay", "recorder.go", "TestForeignReplayMark", edit{
		`			replayedHeader: //`, `			"": //`,
	}),
	idempotent("a handler's read deadline does not break the connection", "recorder.go", "TestReadDeadline", edit{
		`SetReadDeadline(time.Time) error { return nil }`, `SetReadDeadline(t time.Time) error {
	return http.NewResponseController(r.out).SetReadDeadline(t)
}`,
	}),
	idempotent("a failed response rolls the handler's work back", "record.go", "TestRecord", edit{
		`return status >= 400 || e.next`, `return e.next`,
	}),
	idempotent("a router's redirect is not stored", "record.go", "TestRecord", edit{
		`return status >= 400 || e.next != nil && !worked && slices.Contains(redirects, status)`, `return status >= 400`,
	}),
	idempotent("a handler's redirect commits its work", "record.go", "TestRecord", edit{
		`e.next != nil && !worked && slices`, `slices`,
	}),
	idempotent("a response that asks to try again is never stored", "record.go", "TestRecord", edit{
		`!slices.Contains(passing, status) && c.Record(status)`, `(slices.Contains(passing, status) || c.Record(status))`,
	}),
	idempotent("another body under a known key is refused", "answer.go", "TestReplay", edit{
		`	case !same:`, `	case !same && false:`,
	}),
	idempotent("two routes share no key", "scope.go", "TestScope", edit{
		`i.name, i.principal, i.method, i.uri, i.key}`, `i.name, i.principal, i.method, "", i.key}`,
	}),
	idempotent("two principals share no key", "scope.go", "TestScope", edit{
		`i.name, i.principal, i.method, i.uri, i.key}`, `i.name, "", i.method, i.uri, i.key}`,
	}),
	idempotent("a response without a claim is not committed", "attempt.go", "TestCommitFails", edit{
		`		if err := c.guard.results.SaveResult(ctx, tx, rec.Key, result); err != nil {
			return err
		}`, `		_ = c.guard.results.SaveResult(ctx, tx, rec.Key, result)`,
	}),
	idempotent("each secret's row has the response", "attempt.go", "TestSecrets", edit{
		`	for i, rec := range c.recs {
		var seal`, `	for i, rec := range c.recs[:min(1, len(c.recs))] {
		var seal`,
	}),
	idempotent("a replay claims nothing", "attempt.go", "TestSecrets", edit{
		`return found, c.cfg.Store.Forget(ctx, tx, mine...)`, `return found, nil`,
	}),
	idempotent("a client that is gone starts nothing", "lifetime.go", "TestEnds", edit{
		`	case !followClient && !l.client(): // the function that cancels ctx may only have begun
		return errClientGone`, `	case !followClient && !l.client() && false:`,
	}, edit{
		`	l.client = context.AfterFunc(request, func() { l.cancel(errClientGone) })`, `	l.client = func() bool { return true }`,
	}),
	idempotent("a client that disconnects does not stop its handler", "attempt.go", "TestEnds", edit{
		`life.detach(c.cfg.FollowClient || c.id == nil)`, `life.detach(true)`,
	}),
	idempotent("a handler that ignores its deadline commits nothing", "attempt.go", "TestEnds", edit{
		`	case ctx.Err() != nil: // it`, `	case false: // it`,
	}),
	idempotent("a database that does not take the response keeps no slot", "attempt.go", "TestUnanswered", edit{
		`	ctx, cancel := context.WithTimeoutCause(ctx, claimWithin, errUnanswered)`, `	ctx, cancel := context.WithTimeoutCause(ctx, time.Hour, errUnanswered)`,
	}, edit{`	"net/http"
`, `	"net/http"
	"time"
`}),
	idempotent("work that may be committed is not called rolled back", "answer.go", "TestTimedOutInDoubt", edit{
		`	case errors.As(a.err, new(*dedup.InDoubtError)): // first`, `	case false: // whatever`,
	}),
	idempotent("a lock that another request holds is not a failure", "answer.go", "TestFailures", edit{
		`	case a.ran && errors.Is(a.err, dedup.ErrInFlight): // of`, `	case false: // of`,
	}, edit{`	case errors.Is(a.err, dedup.ErrInFlight):
		return InFlight`, `	case !a.ran && errors.Is(a.err, dedup.ErrInFlight):
		return InFlight`}),
	idempotent("a late deadline does not meet the next request", "recorder.go", "TestTimeoutHandlerInside", edit{
		`		return errClosed
	}
	return http.NewResponseController(r.out).SetWriteDeadline(t)`, `	}
	return http.NewResponseController(r.out).SetWriteDeadline(t)`,
	}),
	idempotent("a Fingerprint that parses the form sees the body", "endpoint.go", "TestFormFingerprint", edit{
		`c.cfg.Fingerprint(r, body)`, `c.cfg.Fingerprint(c.r, body)`,
	}),
	idempotent("messages of other content get other IDs", "attempt.go", "TestOutboxIDs", edit{
		`c.id.derive("outbox", string(c.content))`, `c.id.derive("outbox", "")`,
	}),
	idempotent("twins wait without a connection", "endpoint.go", "TestTwins", edit{
		`c.guard.twins.enter(c.r.Context(), c.recs[0].Key.ID, c.cfg.Wait)`, `new(gate).enter(c.r.Context(), c.recs[0].Key.ID, c.cfg.Wait)`,
	}),
	idempotent("a response is sent after the key is free", "endpoint.go", "TestSendsWithoutTheKey", edit{
		`	defer leave() // also when the handler panics
	return c.answer()`, `	defer leave() // also when the handler panics
	res := c.answer()
	res.send(c.w)
	return res`,
	}),
	idempotent("a request without a key does not run again after a COMMIT without an answer", "answer.go", "TestUnguarded", edit{
		`return c.at.repeats && c.id != nil`, `return c.at.repeats`,
	}),
	idempotent("Wrap never runs a handler again", "answer.go", "TestCommitFails", edit{
		`	case a.complete:
		return c.at.repeats && c.id != nil`, `	case a.complete:
		return true`,
	}),
	idempotent("a result of an unknown schema is not read", "stored.go", "TestNotRetained", edit{
		`if len(result) < headSize || result[0] != schemaVersion || result[1] != hmacSHA256 {`, `if len(result) < headSize || result[1] != hmacSHA256 {`,
	}),
	idempotent("cookies are not replayed", "header.go", "TestResponses", edit{
		`		if values, set := r.header[name]; set {`, `		kept["Set-Cookie"] = r.header["Set-Cookie"]
		if values, set := r.header[name]; set {`,
	}),
	idempotent("an encoding that the client does not accept is not replayed", "answer.go", "TestOuterLayers", edit{
		`	case !accepts(c.r.Header, res.header["Content-Encoding"]):`, `	case false:`,
	}),
	idempotent("a label gives one downstream key", "execution.go", "TestDownstreamKey", edit{
		`	case e.labels[label]:`, `	case false:`,
	}),
	idempotent("a transaction ends with its handler", "execution.go", "TestTimeoutHandlerInside", edit{
		`	e.ended, e.tx = true, nil`, `	_ = e`,
	}),
}
