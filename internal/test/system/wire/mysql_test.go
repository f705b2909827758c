package wire

import (
	"slices"
	"testing"

	_ "github.com/go-sql-driver/mysql" // registers "mysql"

	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/internal/test/wireproxy"
)

// mysqlCodes are deadlock, lock wait timeout, interrupted, and table full.
var mysqlCodes = []string{"1213", "1205", "1317", "1114"}

const (
	mysqlEffects = `CREATE TABLE effects (name VARCHAR(64) NOT NULL, run VARCHAR(32) NOT NULL, KEY (name)) ENGINE = InnoDB`
	mysqlInsert  = `INSERT INTO effects (name, run) VALUES (?, ?)`
)

// openMySQL returns a world on MariaDB or MySQL: see testdb.OnMySQL.
func openMySQL(t *testing.T, seed uint64) *world {
	dsn := testdb.MySQLTables(t, mysqlEffects)
	w := newWorld(t, seed, "mysql", dsn)
	w.name = marks
	w.clean = w.sqlNode(t, "mysql", dsn, sqlstore.MySQL, mysqlInsert, &lane{}, 0)
	for i, name := range slices.Repeat([]string{single, "batch"}, 4) {
		l := newLane(name, mysqlConsumer, mysqlCodes)
		l.node = w.sqlNode(t, "mysql", l.through(t, dsn, wireproxy.ThroughMySQL), sqlstore.MySQL, mysqlInsert, l, 1-i%2)
		w.lanes = append(w.lanes, l)
	}
	for i := range 2 {
		l := newLane("relay", mysqlRelay, mysqlCodes)
		w.relay(t, l, w.sqlStore(t, "mysql", l.through(t, dsn, wireproxy.ThroughMySQL), sqlstore.MySQL, l), w.flaky(i))
	}
	return w
}
