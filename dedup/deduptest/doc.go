// Package deduptest has the suite that every dedup.Store must pass, and an in-memory [Store] that passes it.
//
// # A store for another database
//
// [TestStore] takes a [Harness], which says how to make an empty database and what can be done to it from outside: write
// an effect in a transaction, list the effects that stand, let time pass. That much is required:
//
//	func TestStore(t *testing.T) {
//		deduptest.TestStore(t, deduptest.Harness[*sql.Tx]{
//			New:        newDatabase, // func(*testing.T) deduptest.DB[*sql.Tx]
//			Isolations: []string{"read committed", "serializable"},
//			DoesNotApply: map[string]string{
//				"each error code is retryable or not": "this database has no error codes",
//			},
//		})
//	}
//
// Cases that need more of a database, such as an error on demand, a way of cutting a COMMIT off or a handler's ways of
// losing its transaction, ask for a hook in [DB]. A case is never skipped in silence: without its hook it fails, unless
// DoesNotApply gives the reason why it cannot exist on that database, and then it is listed with that reason.
//
// The suite treats the store as a black box. Nodes are Stores on one database. Time passes by [DB].Age, which moves all
// recorded times into the past; messages that are delivered again get a Time that is as much earlier. Whether a key was
// lost or doubled is read from the effects, and by claiming it again, never by looking at the store's rows.
//
// Each sub-test is named after the rule that it shows, so that a failure names what is broken. The rules come from
// bugs that respected systems have or had. `make mutants` puts such bugs into a store and fails where no case finds them.
//
// # Testing other things
//
// [NewStore] makes a fake that behaves as the stores of real databases do, at the speed of a map.
package deduptest
