package dialect

import "strings"

// relaySettings returns the settings of the relay's statements, for the transaction if local is "true". Every statement
// finds its rows by short index reads. A session that first runs them on small tables would plan scans of whole tables
// and keep those plans while the tables grow, so such plans are disabled. The planner counts a disabled plan that it
// cannot avoid as very expensive, so JIT compilation is disabled too. The timeouts release the locks of a process that
// freezes in the middle of a transaction.
func relaySettings(local string) string {
	var all []string
	for _, s := range [...]string{
		"'enable_seqscan', 'off'", "'enable_bitmapscan', 'off'", "'enable_hashjoin', 'off'",
		"'enable_mergejoin', 'off'", "'jit', 'off'",
		"'plan_cache_mode', 'force_generic_plan'",
		"'lock_timeout', '5s'", "'idle_in_transaction_session_timeout', '5s'",
	} {
		all = append(all, "set_config("+s+", "+local+")")
	}
	return "SELECT " + strings.Join(all, ", ")
}
