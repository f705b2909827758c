// Package wireproxy cuts connections to a database around a COMMIT.
//
// A proxy on loopback forwards between a client and PostgreSQL, MySQL or MariaDB. It understands enough of the wire
// protocol to recognize COMMIT, as a simple query or as PostgreSQL's prepared statement, and applies a deduptest.Fault
// to the first one: it cuts the connection before COMMIT reaches the server, or before the answer reaches the client,
// or it delays COMMIT until after the client is gone. It forwards everything else unchanged, on any number of
// connections.
//
//	dsn = wireproxy.Postgres(t, dsn, deduptest.AnswerLost)
//
// A proxy that cuts connections at random would hit these moments once in a thousand runs. The proxy refuses transport
// encryption, because it could not read it.
package wireproxy
