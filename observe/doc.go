// Package observe has the words that consumers, relays, sweepers and subscribers use to report what happened, so that a
// metric, a span, a log line and a dead letter name the same thing in the same way.
//
// # Use
//
// The hooks of consumer.Trace, driver.SourceTrace, relay.Trace and dedup.SweepTrace pass these words. Each list is
// closed: [Outcomes], [Causes] and [Results] return all of its words, so a program can export a counter for each word
// before it first occurs.
package observe
