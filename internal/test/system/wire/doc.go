// Package wire runs real stores against real servers through a proxy that knows the protocol, and injects a fault at one
// message of each case, or at two. Afterwards it compares effects, claims, dead letters and published outbox messages with what
// the handlers were given.
//
//	make wire                                     # 30 s each on PostgreSQL and MariaDB
//	SEED=1 FROM=214 CASES=1 make wire ENGINE=postgres # one case of that run again, with its trace
//
// A case draws its cell first, which is a boundary (the statement, and the request or the answer), and an action
// (such as a cut before it), and then the moment: which message of that boundary. A third of the cases draw a second
// fault, which comes while the first one is being dealt with. Several lanes run cases at the same
// time. Each is like a process: it has its own store, its own connections, and its own proxy. Half of the messages are
// delivered to a second lane at the same time. Relays publish what the handlers enqueue; they are lanes too.
//
// The package has only tests. `make test` runs a short form.
package wire
