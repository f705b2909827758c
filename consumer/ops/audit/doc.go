// Package audit compares what a consumer has claimed with what it has done. It detects faults that should be impossible: a claim without its
// effect, an effect that was made twice, an effect without a claim, a message that was acknowledged and never processed. It proves nothing
// about what it has not looked at.
//
// # Use
//
//	report, err := audit.Claims(ctx, audit.Config{
//		DB: db, Dialect: "postgres", Consumer: "billing", Sample: 100_000,
//		Effects: `SELECT order_id, count(*) FROM ledger WHERE order_id IN (:ids) GROUP BY 1`,
//	})
//
// # How it works
//
// A claim and its effect are committed together. So 1,000 claims and their effects that are read in one snapshot (REPEATABLE READ, READ ONLY)
// must fit exactly, also while workers run: there is nothing to wait for, and no false finding. Each snapshot is short, so that it does not
// hold back vacuum.
//
// These claims have no effect, and are found although nothing is wrong: those of discarded dead letters, and those of messages that the
// handler leaves alone.
package audit
