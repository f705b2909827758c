package deduptest

import (
	"github.com/txonce/txonce/dedup/driver"
)

// PostgresCodes are the error codes of a Harness on PostgreSQL, by SQLSTATE. An error about the data of a statement is
// the message's fault. An error that any message would meet is the database's. Some errors can be the fault of either:
// a wrong or too expensive statement causes them, and so does an unfinished deployment.
func PostgresCodes() map[string]Code {
	messages := Code{}
	databases := Code{Retryable: true}
	either := Code{Retryable: true, Ambiguous: true}
	unknown := func(c Code) Code {
		c.Unknown = true
		return c
	}
	class := func(c Code, class driver.FaultClass) Code {
		c.Class = class
		return c
	}
	codes := map[string]Code{}
	for _, group := range []struct {
		as    Code
		codes []string
	}{
		{messages, []string{"21000", "22000", "22001", "22003", "22007", "22012", "22P02"}}, // data
		{messages, []string{"23000", "23502", "23503", "23505", "23514", "23P01"}},          // constraints
		// features, routines, cursors, views
		{messages, []string{"0A000", "2F000", "34000", "38000", "39000", "44000", "55000"}},
		// RAISE, a code of the application's own
		{messages, []string{"P0001", "P0002", "P0003", "TX001"}},
		// read-only: a standby, after a failover
		{databases, []string{"25006"}},
		// a prepared statement is missing: a pooler switched the session
		{databases, []string{"26000"}},
		// serialization failure, deadlock, lock timeout
		{class(databases, driver.FaultContention), []string{"40001", "40P01", "55P03"}},
		// out of disk, memory, connections
		{databases, []string{"53000", "53100", "53200", "53300"}},
		// connection, completion unknown
		{unknown(databases), []string{"08000", "08003", "08006", "08P01", "40003"}},
		// shutdown, crash, system, I/O
		{unknown(databases), []string{"57P01", "57P02", "57P03", "57P05", "58000", "58030"}},
		// a schema, column or permission is missing: a deployment, or a wrong statement
		{either, []string{"3F000", "42501", "42601", "42703", "42804", "42883", "42P01", "42P02"}},
		// the transaction's state, a configured limit
		{either, []string{"25000", "25001", "25P01", "53400"}},
		{class(either, driver.FaultIdleLimit), []string{"25P03"}},
		{class(unknown(either), driver.FaultTimeLimit), []string{"25P04", "57014"}},
		// a library is missing, internal errors, corruption
		{unknown(either), []string{"58P01", "XX000", "XX001", "XX002"}},
	} {
		for _, code := range group.codes {
			codes[code] = group.as
		}
	}
	return codes
}
