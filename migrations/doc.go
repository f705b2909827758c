// Package migrations installs the tables that txonce needs.
//
// # Use
//
// A program chooses one of three ways, which lead to the same schema:
//
//   - [Apply] updates the database when the program starts. Any number of processes may call it at the same time.
//   - [FS] returns the SQL files for golang-migrate: 0001_processed_messages.up.sql and .down.sql. On MySQL the DSN
//     must contain multiStatements=true.
//   - [Goose] returns the same migrations for goose: one annotated file each.
//
// # How it works
//
// Migrations are numbered from 1. Each writes its number into the table txonce_schema. Stores read that table at start
// and report what is missing. They never change the schema.
//
// A released migration never changes; a change of the schema is a new migration with the next number. Its row in
// txonce_schema also has a column works_with: the number of the latest migration that a program must know to work with
// the new schema. If that is the number before or lower, a rolling deployment can apply the new migration first,
// because programs of the previous release still work. Otherwise they refuse to start with it: 0011_guard for PostgreSQL
// is such a migration.
//
// # What a crash does
//
// On PostgreSQL and SQLite each migration is one transaction, so a crash leaves no migration half done. On MySQL each
// statement commits by itself. After a crash the next Apply runs all statements of the interrupted migration again,
// which does no harm.
package migrations
