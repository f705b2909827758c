// Package strict reads what senders of webhooks sign, and refuses everything that two readers could read differently: a
// header that is there twice, a number that is too long, a JSON member whose name occurs twice.
//
// Its errors say what is wrong, without secrets. The verifiers add why a delivery is refused, or which field of their
// Config is wrong.
package strict
