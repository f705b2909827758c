// Package deduptest has a test suite that every dedup.Store must pass, and a [Store] in memory for tests.
//
// # A store for another database
//
// [TestStore] takes a [Harness], whose New makes an empty [DB]. A DB can write an effect in a transaction, list the
// committed effects, and age its rows. That much is required:
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
// Some cases need a hook in [DB], for example to cause an error of the database, to lose a COMMIT, or to lose the
// transaction of a handler. A case whose hook is missing fails, unless DoesNotApply says why the case cannot exist on
// the database. Then the reason is logged.
//
// # How it works
//
// The suite never reads the store's rows. It claims keys again and reads the effects, and so finds keys that are lost
// or processed twice. Several Stores on one database are the nodes of a system. [DB].Age lets time pass: it moves all
// recorded times into the past. A message that is delivered again afterwards gets a Time that is as much earlier.
//
// Each sub-test is named after its rule, so that a failure names what is broken. The rules come from bugs of well-known
// systems. `make mutants` puts such bugs into a store, and fails if no case finds them.
//
// # Testing other things
//
// [NewStore] returns a Store that behaves like those of real databases, but keeps its rows in a map. A crash of the
// process loses them.
package deduptest
