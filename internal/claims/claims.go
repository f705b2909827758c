// Package claims is the claim that every dedup.Store makes, whatever its database. A store implements Driver with the statements of
// its database, and calls Claim.Make in a transaction:
//
//	plan, err := claims.NewPlan(recs)                         // validated, each key once, in the order everyone locks in
//	err = leases.Use(leases.Due(plan.Windows(), now), use)    // registers windows, in transactions that end before the claim
//	…                                                         // BEGIN
//	c := claims.Claim{Plan: plan, Windows: &leases, Now: now}
//	answers, err := c.Make(ctx, driver)                       // ErrAgain: roll back, and begin again, up to Attempts times
//
// Make has the driver insert the rows, read those that were there before, and, where an inserted row is old, read how far keys were
// forgotten. A window whose registration ran out before the claim fails it with ErrAgain.
//
// The package also remembers what a store has registered: names of consumers (Names) and windows (Leases). It sends no SQL, and knows
// no clock but those that it is told.
package claims
