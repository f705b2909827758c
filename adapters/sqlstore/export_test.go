package sqlstore

import (
	"context"
	"strings"
	"time"

	"github.com/txonce/txonce/adapters/sqlstore/internal/mysql"
	"github.com/txonce/txonce/adapters/sqlstore/internal/postgres"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/claims"
)

// RunOut makes s believe that the window of rec is registered until then.
func (s *Store) RunOut(rec dedup.Record, until time.Time) {
	w := claims.WindowOf(rec)
	s.leases.Cover([]claims.Window{w}, until.Add(1000*time.Hour)) // forgets what it knew
	s.leases.Registered(w, until, time.Now())
}

// SetClock gives s another clock of its machine.
func (s *Store) SetClock(now func() time.Time) { s.now = now }

// AnswerWithin bounds what should be answered at once.
func (s *Store) AnswerWithin(d time.Duration) { s.answerWithin = d }

// PoolerWithin is for machines that are too slow to find out in time what a pooler does.
func (s *Store) PoolerWithin(d time.Duration) { s.db.Tables.(*postgres.DB).PoolerWithin = d }

// HasStandbys makes s believe that synchronous_standby_names is set where the session's txonce_test.standbys is "yes": it cannot
// be without a standby, nor for one session.
func (s *Store) HasStandbys() {
	_ = s.locate(context.Background(), nil)
	d := s.db.Tables.(*postgres.DB)
	d.SQL.AfterClaim = strings.Replace(d.SQL.AfterClaim, `current_setting('synchronous_standby_names') <> ''`, `coalesce(current_setting('txonce_test.standbys', true), '') = 'yes'`, 1)
}

// AsMySQL makes s take its server, MariaDB, for MySQL, where that has statements of its own.
func (s *Store) AsMySQL() { s.db.Tables.(*mysql.DB).TakeForMySQL("10.11.0-MariaDB") }

// Pretend makes s read settings of MariaDB as other values; version is the server's. Pairs of empty names are left out.
func (s *Store) Pretend(pairs ...string) {
	d := s.db.Tables.(*mysql.DB)
	query := "SELECT variable_name, variable_value FROM information_schema.session_variables"
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
