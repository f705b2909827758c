package migrations

// Split cuts a file for MySQL into its statements.
var Split = split
