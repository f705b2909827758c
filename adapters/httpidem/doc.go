// Package httpidem makes a POST that a client repeats take effect once: the repeat gets the response of the first
// request.
//
// # Use
//
//	guard, err := httpidem.New(httpidem.Config[pgx.Tx]{
//		Name:      "payments-api",
//		Store:     store, // of pgxstore.New or sqlstore.New
//		Secrets:   [][]byte{secret},
//		Principal: func(r *http.Request) (string, error) { return accountAndUser(r.Context()) },
//	})
//	…
//	mux.Handle("POST /payments", authenticate(guard.Handle(func(ctx context.Context, tx pgx.Tx, w http.ResponseWriter, r *http.Request) error {
//		… // INSERT with tx
//		w.WriteHeader(http.StatusCreated)
//		return json.NewEncoder(w).Encode(payment)
//	})))
//
// The client sends a random Idempotency-Key with each new request, and the same key with each repeat of it. Mount the
// Guard inside the router, for each route. Put CORS, authentication, rate limits and decompression around the Guard, in
// this order: they run for each request. Inside of Wrap, a CORS middleware's headers would be lost on each repeat,
// because they are not stored: they belong to the Origin of one request. Count quotas in the handler: it does not run
// for a repeat, so a repeat uses no quota. A rate limiter outside asks [Guard.Peek] for what it must not count. store.Register(ctx, "payments-api", window) at start finds a missing schema
// before the first request does. No Consumer on the same Store can then have that name. A dedup.Sweeper deletes expired
// keys: until it has, a repeat still gets the stored response.
//
// [Handler] says which responses commit. [Guard.Wrap] guards an http.Handler that exists already.
//
// # How it works
//
// One transaction holds the key, the handler's work and the response. The response stays in memory until COMMIT has
// succeeded. So a client that sees a 2xx knows that the work is committed, and a repeat gets the same status, body and
// stored headers, with "Idempotent-Replayed: true".
//
// Two requests are the same if Config.Name, the principal, the method, the request target and the key are equal. The
// target counts byte by byte: "/a%2Fb", "/a/b" and "/a/b/" differ, and so does the order of a query. The host does not
// count. If hosts are different shops, put the shop into the principal. The database gets an HMAC of all these, never
// the key. If the content differs, the answer is 422: see Config.Fingerprint. A multipart body has a random boundary,
// so a client must repeat its bytes.
//
// While a request runs, repeats in the same process wait without a connection, and others ask the database from time to
// time. After Config.Wait they get 409 with Retry-After.
//
// A status of 400 or more, an error and a panic roll the handler's work back. Config.Record says which of these
// responses are stored for repeats. By default these are 402, 410 and 451, which no other request can change. All
// others, such as 428, ask for other headers, credentials, a mended body or another time: a handler that answers 428
// without If-Match runs again when the same key comes with If-Match. All refusals of this package are Problem Details
// (RFC 9457), see [Reason].
//
// Not possible behind a Guard: streaming, Flush, Hijack, trailers, and informational responses such as 103. Timeouts
// belong in Config.Timeout. Put http.TimeoutHandler around the whole router, never inside a route: inside Wrap it
// answers 503 while its handler still runs, so the work is rolled back, and the rest of that handler has no
// transaction. Nothing in front may read the body without replacing it. A body that was partly read is refused if it
// has a Content-Length, and middleware has not replaced it, as those that decompress do. Otherwise httpidem cannot
// notice.
//
// # What a crash does
//
// After a crash before COMMIT nothing is stored, and a repeat runs. After a crash that follows COMMIT, a repeat gets
// the response. If the connection is lost during COMMIT, Handle claims the key again, which shows the outcome, and Wrap
// answers 503. If the work was committed, Handle answers with the stored response, which is marked as a replay,
// although it is the client's first. If the outcome stays unknown, the answer is 503 and the client's repeat decides.
// If the database is away, nothing runs, and the answer is 503.
//
// What a handler does outside of its transaction may happen again after a crash: give [DownstreamKey] to other systems.
package httpidem
