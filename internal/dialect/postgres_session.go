package dialect

import "strings"

// postgresSettings are the settings of a session that a handler may change and that would affect a later handler. They
// form one text that begins with synchronous_commit. search_path is last, because it may contain any character.
const postgresSettings = `concat_ws(' ', current_setting('synchronous_commit'), session_user, current_user,
	current_setting('session_replication_role'), current_setting('default_transaction_isolation'),
	current_setting('default_transaction_read_only'), current_setting('default_transaction_deferrable'),
	current_setting('statement_timeout'), current_setting('lock_timeout'), current_setting('row_security'),
	current_setting('client_encoding'), current_setting('standard_conforming_strings'), current_setting('DateStyle'),
	current_setting('IntervalStyle'), current_setting('bytea_output'), current_setting('TimeZone'), ` + postgresTemporary + `,
	current_setting('search_path'))`

// postgresTemporary identifies the session's temporary tables, which hide other tables of the same name.
const postgresTemporary = `CASE WHEN pg_my_temp_schema() = 0 THEN '0 0' ELSE
	(SELECT concat_ws(' ', count(*), coalesce(max(objid), 0)) ` + inTemporarySchema + `) END`

const renewSavepoint = `RELEASE SAVEPOINT txonce_handler; SAVEPOINT txonce_handler`

// PostgresSession holds the statements that adapters/sqlstore uses to inspect a session. They name no table.
type PostgresSession struct {
	SessionSettings, Mark, ProofByMark, ProofByID string
	Savepoint, RenewSavepoint, RenewAndProbe      string
	UndoDivision, SameTemporary                   string
	Committed, InProgress                         string
}

// PostgresShortLockWaits limits each wait for a lock of this transaction to a tenth of the shortest limit of time, and
// to 50 ms at most.
const PostgresShortLockWaits = `SELECT set_config('lock_timeout', least(50, greatest(1, coalesce(min(setting::bigint) / 10, 50)))::text, true)
	FROM pg_catalog.pg_settings WHERE name IN ('statement_timeout', 'transaction_timeout', 'lock_timeout') AND setting::bigint > 0`

// NewPostgresSession returns the statements.
func NewPostgresSession() PostgresSession {
	q := strings.NewReplacer("@settings", postgresSettings, "@temporary", postgresTemporary).Replace
	return PostgresSession{
		SessionSettings: q(`SELECT @settings`),

		// A transaction is identified by its id if it has one, and otherwise by a setting that ends with it.
		Mark:        q(`SELECT set_config('txonce.transaction', clock_timestamp()::text, true), @settings, ` + PostgresHistory),
		ProofByMark: q(`SELECT coalesce(current_setting('txonce.transaction', true), ''), @settings`),
		ProofByID:   q(`SELECT coalesce(pg_current_xact_id_if_assigned()::text, ''), @settings`),

		// In a batch, another handler may run after this one. Releasing the savepoint fails in any other transaction;
		// and it also releases the savepoints that a handler left set, so that no later handler can roll back to them.
		// RenewAndProbe fails with a division by zero if the session has ever had temporary tables; UndoDivision makes
		// the transaction usable again. Then SameTemporary tells whether they are those that Savepoint found. It costs
		// five times as much.
		Savepoint:      q(`SELECT set_config('txonce.temporary', @temporary, true); SAVEPOINT txonce_handler`),
		RenewSavepoint: renewSavepoint,
		RenewAndProbe:  renewSavepoint + `; SELECT 1 / (pg_my_temp_schema() = 0)::int`,
		UndoDivision:   `ROLLBACK TO SAVEPOINT txonce_handler`,
		SameTemporary:  q(`SELECT current_setting('txonce.temporary') = @temporary`),

		// true if it ended too long ago to tell
		Committed:  `SELECT coalesce(pg_xact_status($1::text::xid8) = 'committed', true)`,
		InProgress: `SELECT pg_xact_status($1::text::xid8) = 'in progress'`,
	}
}
