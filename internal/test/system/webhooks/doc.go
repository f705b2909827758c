// Package webhooks tests all verifiers through the real Receiver and consumer. It has no code of its own.
package webhooks
