// Package wireproxy stands between a client and a server, knows their protocol, and injects faults at single messages.
//
// A Proxy on loopback forwards between clients and PostgreSQL, MySQL or MariaDB. It numbers the
// messages of both directions since Arm, says of each which statement it belongs to and whether that is a COMMIT (also
// as a prepared statement), and asks Config.Decide what happens to it: an Action cuts the connection before or after it,
// sends it late, holds it, or makes the server fail.
//
//	dsn, proxy := wireproxy.ThroughPostgres(t, dsn, wireproxy.Config{Decide: decide})
//
// Postgres and MySQL do this for a deduptest.Fault at the first COMMIT.
//
// A proxy that cuts connections at random would hit these moments once in a thousand runs. The proxy refuses transport
// encryption and compression, because it could not read them.
package wireproxy
