// Package audit compares what a consumer has claimed with what it has done. It detects faults that should be
// impossible: a claim without its effect, an effect that was made twice, an effect without a claim, a message that was
// acknowledged and never processed, an outbox message that is not on its topic. It proves nothing about messages
// outside of its sample.
//
// # Use
//
//	report, err := audit.Claims(ctx, audit.Config{
//		DB: db, Dialect: "postgres", Consumer: "billing", Sample: 100_000,
//		Effects: `SELECT order_id, count(*) FROM ledger WHERE order_id IN (:ids) GROUP BY 1`,
//	})
//
// [Claims] and [Effects] compare claims with effects, [Messages] a broker's messages with claims, and [Outbox] what was
// published with the topic.
//
// # How it works
//
// A claim and its effect are committed together. So 1,000 claims and their effects that are read in one snapshot
// (REPEATABLE READ, READ ONLY) must fit exactly, also while workers run: there is nothing to wait for, and no false
// finding. Each snapshot is short, so that it does not hold back vacuum.
//
// Outbox first lists what the broker has confirmed, and then reads the topic: so a relay that publishes meanwhile
// causes no false finding either. Messages that are still in the outbox are not listed.
//
// Some findings need not be faults. The claims of discarded dead letters and of messages that the handler leaves alone
// have no effect. When a letter was replayed under another key, and the handler reads the key from the payload, the
// other key has no effect and the payload's has two.
package audit
