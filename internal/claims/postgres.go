package claims

import (
	"fmt"

	"github.com/txonce/txonce/dedup"
)

// PostgresSettings are the settings of a PostgreSQL server that decide whether a store may use it.
type PostgresSettings struct {
	synchronousCommit, fsync, readOnly, standbys, encoding string
	recovering                                             bool
}

// Dest returns the destinations for the columns of dialect.Postgres.Settings.
func (s *PostgresSettings) Dest() []any {
	return []any{&s.synchronousCommit, &s.fsync, &s.recovering, &s.readOnly, &s.standbys, &s.encoding}
}

// Check rejects a server that accepts no writes, that cannot store every text, or, unless allowAsync is true, that may
// lose commits.
func (s *PostgresSettings) Check(owner Owner, allowAsync bool) error {
	switch {
	case s.encoding != "UTF8":
		return fmt.Errorf("%s: the database's encoding is %s, which cannot store every text that a message may have: create it with ENCODING 'UTF8'", string(owner), s.encoding)
	case s.recovering:
		return owner.Errorf("%s: the database is a standby: connect to the primary (target_session_attrs=read-write)", owner)
	case s.readOnly == "on":
		return owner.Errorf("%s: transactions are read-only here: set default_transaction_read_only to off", owner)
	case allowAsync:
		return nil
	case s.fsync == "off":
		return fmt.Errorf("%w: fsync is off; turn it on, or set Config.AllowAsyncCommit", dedup.ErrNotDurable)
	}
	return PostgresDurable(s.synchronousCommit, s.standbys != "")
}

// PostgresDurable rejects a value of synchronous_commit if a crash could lose commits that were confirmed. standbys is
// true when the server has synchronous standbys.
func PostgresDurable(synchronousCommit string, standbys bool) error {
	if synchronousCommit == "off" || synchronousCommit == "local" && standbys {
		return fmt.Errorf("%w: synchronous_commit is %s; set it to on for this role or database, or set Config.AllowAsyncCommit", dedup.ErrNotDurable, synchronousCommit)
	}
	return nil
}
