package sqlstore_test

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"time"
	"unsafe"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
	"github.com/txonce/txonce/adapters/sqlstore/internal/mysql"
	"github.com/txonce/txonce/adapters/sqlstore/internal/postgres"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/claims"
)

// reach returns the unexported field name of what p points to. These tests are a module of their own, because they need
// the drivers of all databases, and so a file export_test.go cannot serve them.
func reach[T any](p any, name string) *T {
	field := reflect.ValueOf(p).Elem().FieldByName(name)
	if !field.IsValid() || field.Type() != reflect.TypeFor[T]() {
		panic(fmt.Sprintf("%T has no field %s of type %v", p, name, reflect.TypeFor[T]()))
	}
	return (*T)(unsafe.Pointer(field.UnsafeAddr()))
}

// tables is the part of the store that knows its database.
func (n *node) tables() any { return reach[engine.Engine](n.Store, "db").Tables }

// RunOut makes n assume that the window of rec is registered until the given time.
func (n *node) RunOut(rec dedup.Record, until time.Time) {
	w, leases := claims.WindowOf(rec), reach[claims.Leases](n.Store, "leases")
	leases.Cover([]claims.Window{w}, until.Add(1000*time.Hour)) // clears what n knew before
	leases.Registered(w, until, time.Now())
}

// SetClock replaces the machine's clock.
func (n *node) SetClock(now func() time.Time) { *reach[func() time.Time](n.Store, "now") = now }

// AnswerWithin sets the limit for statements that the database should answer at once.
func (n *node) AnswerWithin(d time.Duration) { *reach[time.Duration](n.Store, "answerWithin") = d }

// PoolerWithin sets the limit of the check for a pooler. Slow machines need more time.
func (n *node) PoolerWithin(d time.Duration) { n.tables().(*postgres.DB).PoolerWithin = d }

// PoolerRounds sets how often two connections of that check send statements at the same time.
func (n *node) PoolerRounds(rounds int) { n.tables().(*postgres.DB).PoolerRounds = rounds }

// HasStandbys makes n assume that synchronous_standby_names is set in sessions whose txonce_test.standbys is "yes". The
// real setting needs a standby and cannot be set for one session.
func (n *node) HasStandbys() {
	// the store finds its schema, and makes its statements
	_, _ = n.DeadLetters(context.Background(), consumer.DeadLetterFilter{})
	d := n.tables().(*postgres.DB)
	standbys := `coalesce(current_setting('txonce_test.standbys', true), '') = 'yes'`
	d.SQL.AfterClaim = strings.Replace(d.SQL.AfterClaim, `current_setting('synchronous_standby_names') <> ''`,
		standbys, 1)
}

// Pretend makes n read other values for settings of the server; version is the server's version. It skips pairs with
// empty names.
func (n *node) Pretend(pairs ...string) {
	d := n.tables().(*mysql.DB)
	var table, version string
	if err := n.db.QueryRow("SELECT version()").Scan(&version); err != nil {
		panic(err)
	}
	if table = "performance_schema"; strings.Contains(version, "MariaDB") {
		table = "information_schema"
	}
	query := "SELECT variable_name, variable_value FROM " + table + ".session_variables"
	for i := 0; i+1 < len(pairs); i += 2 {
		switch name, value := pairs[i], pairs[i+1]; name {
		case "":
		case "version":
			d.Plain.Describe = "SELECT '" + value + "', ''"
		default:
			query += " UNION ALL SELECT '" + name + "', '" + value + "'"
		}
	}
	d.Plain.Settings = query
}
