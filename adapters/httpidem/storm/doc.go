// Package storm sends an HTTP API what clients send when the network or a server fails: many repeats of one request at
// once, with cut connections and lost answers, and retries with or without jitter. It then says whether each key had
// one effect and one answer. It needs nothing of txonce on the other side.
//
//	report, err := storm.Run(ctx, storm.Config{
//		URL: server.URL + "/payments", Body: `{"amount": 10, "note": "storm {n}"}`, Cuts: .3, Jitter: true,
//		Effects: func(ctx context.Context) (int, error) { return countPayments(ctx, db) },
//	})
//	if err == nil && len(report.Findings) > 0 { … }
//
// The command "txonce storm" does it from a shell.
//
// # How it works
//
// One key after the other: all clients send the request with that key at the same moment. A client that gets no answer,
// or 409, 425, 429 or 5xx, waits and repeats it with the same key and body, up to Config.Tries times. A share of the
// tries, Config.Cuts, gets no answer on purpose: half of these are cut while the server works, and of the others the
// answer is thrown away. The last try is never cut, so each client should get a final answer.
//
// An API passes when all final answers to one key are equal, and when it has one effect for each key that was answered
// with 2xx. Without Config.Effects a handler that runs twice is noticed only if its answers differ.
package storm
