package main

var httpRows = []row{
	{
		promise: "A response with an error status rolls the handler's work back.",
		in:      "adapters/httpidem.(*endpoint).undoes",
		body:    `return false`,
		fails:   "TestRecord in adapters/httpidem",
	},
	{
		promise: "A response that asks the client to try again is not stored.",
		in:      "adapters/httpidem.(*Config).records",
		body:    `return true`,
		fails:   "TestRecord in adapters/httpidem",
	},
	{
		promise: "Another body under a known key is refused with 422.",
		in:      "adapters/httpidem.matches",
		body: `same, err := matchesOriginal(result, f)
		return same || err == nil, err`,
		fails: "TestReplay in adapters/httpidem",
	},
	{
		promise: "Two principals, and two routes, share no key.",
		in:      "internal/httpkey.(Identity).fields",
		body:    `return []string{i.Name, i.Key}`,
		fails:   "TestScope in adapters/httpidem",
	},
	{
		promise: "A response whose result cannot be saved is not sent as a success, and nothing is committed.",
		in:      "adapters/httpidem.(*call).save",
		body: `_ = c.saveOriginal(ctx, tx, res)
		return nil`,
		fails: "TestCommitFails in adapters/httpidem",
	},
	{
		promise: "A client that disconnects does not stop its handler.",
		in:      "adapters/httpidem.(*lifetime).detach",
		body:    `return l.detachOriginal(true)`,
		fails:   "TestEnds in adapters/httpidem",
	},
	{
		promise: "Work that may be committed is not reported as rolled back.",
		in:      "adapters/httpidem.(*call).reason",
		body: `if errors.As(a.err, new(*dedup.InDoubtError)) {
			return TimedOut
		}
		return c.reasonOriginal(a)`,
		fails: "TestTimedOutInDoubt in adapters/httpidem",
	},
	{
		promise: "A request that may have been committed is not run again, unless its key shows that it was not.",
		in:      "adapters/httpidem.(*call).mayRepeat",
		body:    `return true`,
		fails:   "TestUnguarded in adapters/httpidem",
	},
	{
		promise: "A request whose handler would run is no repeat for a rate limiter that peeks.",
		in:      "adapters/httpidem.(*Guard).Peek",
		body:    `return true, nil`,
		fails:   "TestPeek in adapters/httpidem",
	},
	{
		promise: "A Guard and a consumer of messages in another service cannot share a name.",
		in:      "adapters/httpidem.(*Guard).recordSource",
		body:    `return`,
		fails:   "TestSourceIsRecorded in adapters/httpidem",
	},
	{
		promise: "Nobody reads that an HTTP request was not processed because the client's key is stored as a hash.",
		in:      "consumer/ops.(ConsumerStatus).OfHTTP",
		body:    `return false`,
		fails:   "TestExplainHTTP in internal/test/system/dashboard",
	},
	{
		promise: "A COMMIT of an HTTP request that got no answer is reported.",
		in:      "adapters/httpidem.(*call).commitUnknown",
		body:    `return false`,
		fails:   "TestInDoubtIsReported in adapters/httpidem",
	},
	{
		promise: "Each HTTP request is counted, with what was decided.",
		in:      "adapters/telemetry.(*guardTrace).count",
		body:    `return`,
		fails:   "TestHTTPMetrics in adapters/telemetry",
	},
	{
		promise: "txonce storm finds a handler that runs more than once for a key.",
		in:      "adapters/httpidem/storm.(*Report).count",
		body:    `r.Effects = &effects`,
		fails:   "TestRun in adapters/httpidem/storm",
	},
	{
		promise: "Repeats that arrive at once wait for the first one without a database connection.",
		in:      "adapters/httpidem.(*gate).enter",
		body:    `return func() {}, 0, nil`,
		fails:   "TestTwins in internal/test/system/httpidem",
	},
	{
		promise: "A downstream key is the same when the handler runs again, and differs for each label.",
		in:      "adapters/httpidem.DownstreamKey",
		body:    `return downstreamKeyOriginal(ctx, label[:0])`,
		fails:   "TestDownstreamKey in adapters/httpidem",
	},
}
