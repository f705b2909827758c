// Package claims decides, for every dedup.Store, which messages are new. Each database implements Driver with its own
// statements. The store then calls Claim.Make in a transaction:
//
//	plan, err := claims.NewPlan(recs)                         // validates; sorts distinct keys into the locking order
//	err = leases.Use(leases.Due(plan.Windows(), now), use)    // registers windows in transactions of their own, before the claim
//	…                                                         // BEGIN
//	c := claims.Claim{Plan: plan, Windows: &leases, Now: now}
//	answers, err := c.Make(ctx, driver)                       // after ErrAgain: roll back and start over, up to Attempts times
//
// Make asks the driver to insert the rows and to read the rows that existed before. If an inserted row is old, the
// driver also reads until when keys were forgotten. A claim rolls back with its transaction, so a crash before COMMIT
// leaves nothing behind. If a window's registration expired before the claim, Make fails with ErrAgain.
//
// The package also remembers what a store has registered: names of consumers (Names) and windows (Leases). It sends no
// SQL. Callers pass in the times of both clocks, this machine's and the database's.
package claims
