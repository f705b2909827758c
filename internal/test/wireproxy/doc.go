// Package wireproxy cuts connections to a database at the one moment that matters: around a COMMIT.
//
// A proxy on loopback stands between a client and PostgreSQL, MySQL or MariaDB. It understands as much of the wire
// protocol as it takes to see COMMIT go by, as a simple query or as PostgreSQL's prepared statement, and lets the first one
// suffer a deduptest.Fault: cut before it reaches the server, cut before its answer reaches the client, or held back while
// the client is already gone. Everything else passes, on any number of connections.
//
//	dsn = wireproxy.Postgres(t, dsn, deduptest.AnswerLost)
//
// A proxy that cuts connections at random finds these moments once in a thousand runs. Transport encryption is refused,
// as the proxy could not read it.
package wireproxy
