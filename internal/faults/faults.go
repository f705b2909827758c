// Package faults decides what follows from an error of a database. Each database has one table from its error codes to
// classes, and one table tells what follows from a class in each operation. docs/operations.md shows the latter; Table
// prints it.
package faults

import (
	"github.com/txonce/txonce/dedup/driver"
)

// Class is a driver.FaultClass.
type Class = driver.FaultClass

// The classes, with short names for the tables of this package.
const (
	unknown     = driver.FaultUnknown
	connection  = driver.FaultConnection
	server      = driver.FaultServer
	access      = driver.FaultAccess
	permission  = driver.FaultPermission
	deployment  = driver.FaultDeployment
	contention  = driver.FaultContention
	timeLimit   = driver.FaultTimeLimit
	idleLimit   = driver.FaultIdleLimit
	limit       = driver.FaultLimit
	resources   = driver.FaultResources
	storage     = driver.FaultStorage
	internal    = driver.FaultInternal
	session     = driver.FaultSession
	transaction = driver.FaultTransaction
	data        = driver.FaultData
	aborted     = driver.FaultAborted
)

// Database is a kind of database.
type Database string

// The databases.
const (
	Postgres Database = "PostgreSQL"
	MySQL    Database = "MySQL and MariaDB"
	SQLite   Database = "SQLite"
	Any      Database = "" // for errors that a store calls Retryable
)

// Retryable is dedup.Store's, for an error of a handler's statement.
func (d Database) Retryable(c Class) bool { return d.After(c, Handler).Do != Count }

// Ambiguous is driver.FaultClassifier's.
func (d Database) Ambiguous(c Class) bool {
	v := d.After(c, Handler)
	return v.Do != Count && v.Beside == secondTime
}

// Refused reports whether an error of this class, while the program starts, can only be mended by a person: a wrong
// user, database, permission or file.
func (d Database) Refused(c Class) bool {
	return c == access || c == permission || d == SQLite && c == server // a file that must not be written
}

// Undecided reports whether an error of this class, as the answer to COMMIT, leaves open whether the transaction is
// committed. It may come from a pooler that has passed COMMIT on.
func Undecided(c Class) bool {
	return c == connection || c == storage || c == internal || c == timeLimit
}
