package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// mysqlServer is what depends on which server it is.
type mysqlServer struct {
	version     string
	mariaDB     bool
	claimPrefix string                        // bounds how long the claim waits and runs, without touching the session
	enter       map[sql.IsolationLevel]string // sets a session up for a transaction of the Store's
	leave       string                        // sets it back
}

// The session's own values are kept in variables of the session. wait_timeout has the server end a connection that stands
// idle, as that of a frozen process does, which would otherwise keep its claims for ever.
const (
	mysqlEnter = `SET @txonce_was_autocommit = @@autocommit, @txonce_was_isolation = @@%[1]s, @txonce_was_wait = @@wait_timeout,
	autocommit = 0, %[1]s = '%[2]s', wait_timeout = LEAST(@@wait_timeout, %[3]d)`
	mysqlLeave = `SET autocommit = @txonce_was_autocommit, %s = @txonce_was_isolation, wait_timeout = @txonce_was_wait`
)

// describe asks once which server it is.
func (d *mysql) describe(ctx context.Context, q queryer) (*mysqlServer, error) {
	if s := d.server.Load(); s != nil {
		return s, nil
	}
	var version, comment string
	if err := q.QueryRowContext(ctx, d.sql.Describe).Scan(&version, &comment); err != nil {
		return nil, err
	}
	s := newMySQLServer(version, d.cfg)
	d.server.Store(s)
	return s, nil
}

func newMySQLServer(version string, cfg Config) *mysqlServer {
	s := &mysqlServer{version: version, mariaDB: strings.Contains(strings.ToLower(version), "mariadb")}
	isolation := "transaction_isolation"
	if s.mariaDB {
		isolation = "tx_isolation" // the only name before 11.1
		// The claim's own limits: the server's limit for a statement is exact, where a wait for a lock is counted in seconds.
		s.claimPrefix = fmt.Sprintf("SET STATEMENT max_statement_time = %.3f, innodb_lock_wait_timeout = %.0f FOR ",
			cfg.InFlightWait.Seconds(), math.Ceil(cfg.InFlightWait.Seconds())+1)
	}
	idle := int64(math.MaxInt32)
	if cfg.IdleLimit > 0 {
		idle = int64(math.Ceil(cfg.IdleLimit.Seconds()))
	}
	s.enter = make(map[sql.IsolationLevel]string)
	for level, name := range map[sql.IsolationLevel]string{
		sql.LevelDefault: "READ-COMMITTED", sql.LevelReadCommitted: "READ-COMMITTED",
		sql.LevelRepeatableRead: "REPEATABLE-READ", sql.LevelSerializable: "SERIALIZABLE",
	} {
		s.enter[level] = fmt.Sprintf(mysqlEnter, isolation, name, idle)
	}
	s.leave = fmt.Sprintf(mysqlLeave, isolation)
	return s
}

// tooOld names what the server lacks: SKIP LOCKED and JSON_TABLE.
func (s *mysqlServer) tooOld() string {
	parts := strings.FieldsFunc(strings.TrimPrefix(s.version, "5.5.5-"), func(r rune) bool { return r < '0' || r > '9' })
	number := 0
	for i := range 3 {
		n := 0
		if i < len(parts) {
			n, _ = strconv.Atoi(parts[i])
		}
		number = number*1000 + n
	}
	switch {
	case s.mariaDB && number < 10_006_000:
		return "MariaDB 10.6"
	case !s.mariaDB && number < 8_000_019:
		return "MySQL 8.0.19"
	}
	return ""
}
