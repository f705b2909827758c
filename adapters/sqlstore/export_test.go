package sqlstore

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/txonce/txonce/adapters/sqlstore/internal/mysql"
	"github.com/txonce/txonce/adapters/sqlstore/internal/postgres"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/claims"
	"github.com/txonce/txonce/internal/watermark"
	"github.com/txonce/txonce/outbox/driver"
)

// RunOut makes s assume that the window of rec is registered until the given time.
func (s *Store) RunOut(rec dedup.Record, until time.Time) {
	w := claims.WindowOf(rec)
	s.leases.Cover([]claims.Window{w}, until.Add(1000*time.Hour)) // clears what s knew before
	s.leases.Registered(w, until, time.Now())
}

// SetClock replaces the machine's clock.
func (s *Store) SetClock(now func() time.Time) { s.now = now }

// AnswerWithin sets the limit for statements that the database should answer at once.
func (s *Store) AnswerWithin(d time.Duration) { s.answerWithin = d }

// PoolerWithin sets the limit of the check for a pooler. Slow machines need more time.
func (s *Store) PoolerWithin(d time.Duration) { s.db.Tables.(*postgres.DB).PoolerWithin = d }

// HasStandbys makes s assume that synchronous_standby_names is set in sessions whose txonce_test.standbys is "yes". The real
// setting needs a standby and cannot be set for one session.
func (s *Store) HasStandbys() {
	_ = s.locate(context.Background(), nil)
	d := s.db.Tables.(*postgres.DB)
	d.SQL.AfterClaim = strings.Replace(d.SQL.AfterClaim, `current_setting('synchronous_standby_names') <> ''`, `coalesce(current_setting('txonce_test.standbys', true), '') = 'yes'`, 1)
}

// Pretend makes s read other values for settings of the server; version is the server's version. It skips pairs with empty names.
func (s *Store) Pretend(pairs ...string) {
	d := s.db.Tables.(*mysql.DB)
	var table, version string
	if err := s.cfg.DB.QueryRow("SELECT version()").Scan(&version); err != nil {
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

// LowWatermark returns the seq where the next poll of each shard of the session begins, at least.
func LowWatermark(session driver.Session) int64 { return slices.Min(beginPoll(session).Lows) }

// Skip returns the highest seq that a poll of a shard of the session begins at because the messages below wait.
func Skip(session driver.Session) int64 { return slices.Max(beginPoll(session).Skips) }

func beginPoll(session driver.Session) *watermark.Poll {
	o := session.(*outboxSession)
	o.mu.Lock()
	defer o.mu.Unlock()
	var shards []int16
	var tokens []int64
	for n, s := range o.shards {
		shards, tokens = append(shards, int16(n)), append(tokens, s.Token)
	}
	return o.hold.Marks.Begin(shards, tokens)
}
