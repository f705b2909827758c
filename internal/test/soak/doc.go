// Package soak runs workers whose handlers misbehave on purpose, on every database, and audits what is left: each message has
// its effect once or a dead letter that names its cause, and none has neither. `make soak` runs it at length; `make test`
// runs a short form. It has tests only.
package soak
