// Package soak runs workers whose handlers misbehave on purpose, on every database, and audits the result: each message
// has either its effect exactly once or a dead letter that names its cause. `make soak` runs it at length; `make test`
// runs a short form. The package has only tests.
package soak
