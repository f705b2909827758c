// Package claims is what every dedup.Store does alike, whatever its database: it plans the claim of a call's records
// and keeps book of what the store has registered. It is pure Go, knows no SQL and no clock but those it is told.
//
// A store claims like this:
//
//	plan, err := claims.NewPlan(recs)              // validated, each key once, in the order everyone locks in
//	due := leases.Due(plan.Windows())              // register these first, in a transaction that commits before the claim
//	…                                              // BEGIN; one multi-row INSERT of plan.Rows
//	leases.Cover(plan.Windows(), clock)            // false: undo, register again, claim again
//	…                                              // read what was there before; read the horizon where a row is not Young
//	return plan.Answers(found), nil                // in the order of recs
package claims
