package faults_test

import (
	"testing"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/faults"
)

// What passes by itself, or is the same for all messages, is blamed on none: each of these was or could be taken for a message's own data.
func TestTransientServerStatesBlameNoMessage(t *testing.T) {
	for number, want := range map[uint16]dedup.FaultClass{
		3032: dedup.FaultServer,     // offline_mode
		3100: dedup.FaultServer,     // Group Replication's hook refused COMMIT
		3168: dedup.FaultServer,     // the server is not available
		3169: dedup.FaultConnection, // the session was killed
		3781: dedup.FaultServer,     // held too long while a new primary applies its backlog
		3782: dedup.FaultServer,     // killed while held
		3783: dedup.FaultServer,     // held on a member that left its group
		3796: dedup.FaultServer,     // group_replication_consistency on a member that is not online
		3797: dedup.FaultServer,     // BEFORE
		3798: dedup.FaultServer,     // AFTER, while others commit
		3799: dedup.FaultServer,     // AFTER, at BEGIN
		1461: dedup.FaultResources,  // max_prepared_stmt_count
		1243: dedup.FaultSession,    // unknown prepared statement
		1026: dedup.FaultStorage,    // error writing a file
		28:   dedup.FaultStorage,    // the operating system's own
		1296: dedup.FaultStorage,    // NDB
		1297: dedup.FaultResources,  // NDB, temporary
		1047: dedup.FaultServer,     // Galera: not prepared
		1213: dedup.FaultContention, // also Galera's certification
		1964: dedup.FaultContention, // MariaDB: the commit before it failed
		1290: dedup.FaultServer,     // read_only
		1836: dedup.FaultServer,     // read only mode
		1874: dedup.FaultServer,     // innodb_read_only
		3989: dedup.FaultServer,     // a schema in read only mode
		1021: dedup.FaultResources, 1114: dedup.FaultResources, 1037: dedup.FaultResources, 1038: dedup.FaultResources, 1041: dedup.FaultResources,
		3024: dedup.FaultTimeLimit,
		1062: dedup.FaultData, 1153: dedup.FaultData, 1406: dedup.FaultData, 1197: dedup.FaultData, // these are a message's
	} {
		if got := faults.OfMySQL(number); got != want {
			t.Errorf("MySQL's %d is of class %q, want %q", number, got, want)
		}
	}
	for code, want := range map[string]dedup.FaultClass{
		"53100": dedup.FaultResources, "53200": dedup.FaultResources, "53300": dedup.FaultResources, "53400": dedup.FaultLimit,
		"57000": dedup.FaultConnection, "57014": dedup.FaultTimeLimit, "57P01": dedup.FaultConnection, "57P02": dedup.FaultConnection,
		"57P03": dedup.FaultConnection, "57P04": dedup.FaultConnection, "57P05": dedup.FaultConnection,
		"58000": dedup.FaultStorage, "58030": dedup.FaultStorage,
		"40000": dedup.FaultContention, "40001": dedup.FaultContention, "40003": dedup.FaultConnection, "40P01": dedup.FaultContention,
		"55006": dedup.FaultContention, "55P03": dedup.FaultContention, "72000": dedup.FaultContention,
		"25006": dedup.FaultServer, "26000": dedup.FaultSession, "42P05": dedup.FaultSession,
		"40002": dedup.FaultData, "23505": dedup.FaultData, "22001": dedup.FaultData, "54000": dedup.FaultData, // these are a message's
	} {
		if got := faults.OfPostgres(code); got != want {
			t.Errorf("PostgreSQL's %s is of class %q, want %q", code, got, want)
		}
	}
}
