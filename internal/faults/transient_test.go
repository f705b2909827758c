package faults_test

import (
	"testing"

	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/faults"
)

// What passes by itself, or is the same for all messages, is blamed on none: each of these was or could be taken for a
// message's own data.
func TestTransientServerStatesBlameNoMessage(t *testing.T) {
	for number, want := range map[uint16]driver.FaultClass{
		3032: driver.FaultServer,     // offline_mode
		3100: driver.FaultServer,     // Group Replication's hook refused COMMIT
		3168: driver.FaultServer,     // the server is not available
		3169: driver.FaultConnection, // the session was killed
		3781: driver.FaultServer,     // held too long while a new primary applies its backlog
		3782: driver.FaultServer,     // killed while held
		3783: driver.FaultServer,     // held on a member that left its group
		3796: driver.FaultServer,     // group_replication_consistency on a member that is not online
		3797: driver.FaultServer,     // BEFORE
		3798: driver.FaultServer,     // AFTER, while others commit
		3799: driver.FaultServer,     // AFTER, at BEGIN
		1461: driver.FaultResources,  // max_prepared_stmt_count
		1243: driver.FaultSession,    // unknown prepared statement
		1026: driver.FaultStorage,    // error writing a file
		28:   driver.FaultStorage,    // the operating system's own
		1296: driver.FaultStorage,    // NDB
		1297: driver.FaultResources,  // NDB, temporary
		1047: driver.FaultServer,     // Galera: not prepared
		1213: driver.FaultContention, // also Galera's certification
		1964: driver.FaultContention, // MariaDB: the commit before it failed
		1290: driver.FaultServer,     // read_only
		1836: driver.FaultServer,     // read only mode
		1874: driver.FaultServer,     // innodb_read_only
		3989: driver.FaultServer,     // a schema in read only mode
		1021: driver.FaultResources, 1114: driver.FaultResources, 1037: driver.FaultResources,
		1038: driver.FaultResources, 1041: driver.FaultResources,
		3024: driver.FaultTimeLimit,
		// these are a message's
		1062: driver.FaultData, 1153: driver.FaultData, 1406: driver.FaultData, 1197: driver.FaultData,
	} {
		if got := faults.OfMySQL(number); got != want {
			t.Errorf("MySQL's %d is of class %q, want %q", number, got, want)
		}
	}
	for code, want := range map[string]driver.FaultClass{
		"53100": driver.FaultResources, "53200": driver.FaultResources, "53300": driver.FaultResources,
		"53400": driver.FaultLimit,
		"57000": driver.FaultConnection, "57014": driver.FaultTimeLimit, "57P01": driver.FaultConnection,
		"57P02": driver.FaultConnection,
		"57P03": driver.FaultConnection, "57P04": driver.FaultConnection, "57P05": driver.FaultConnection,
		"58000": driver.FaultStorage, "58030": driver.FaultStorage,
		"40000": driver.FaultContention, "40001": driver.FaultContention, "40003": driver.FaultConnection,
		"40P01": driver.FaultContention,
		"55006": driver.FaultContention, "55P03": driver.FaultContention, "72000": driver.FaultContention,
		"25006": driver.FaultServer, "26000": driver.FaultSession, "42P05": driver.FaultSession,
		// these are a message's
		"40002": driver.FaultData, "23505": driver.FaultData, "22001": driver.FaultData, "54000": driver.FaultData,
	} {
		if got := faults.OfPostgres(code); got != want {
			t.Errorf("PostgreSQL's %s is of class %q, want %q", code, got, want)
		}
	}
}
