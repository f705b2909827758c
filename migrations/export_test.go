package migrations

// Split cuts a file for MySQL into its statements.
var Split = split

// MySQLLockName returns the name of the lock of a database.
var MySQLLockName = mysqlLockName
