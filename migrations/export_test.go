package migrations

// MySQLLockName returns the name of the lock of a database.
var MySQLLockName = mysqlLockName
