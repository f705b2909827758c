package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
)

// mysqlServer is what depends on which server it is.
type server struct {
	version     string
	mariaDB     bool
	claimPrefix string                        // bounds how long the claim waits and runs, without touching the session
	enter       map[sql.IsolationLevel]string // sets a session up for a transaction of the Store's
	leave       string                        // sets it back
}

// The session's own values are kept in variables of the session. Where it has other settings afterwards than before, mysqlLeave
// fails, so that the connection is not used again: autocommit takes ON and OFF, and no other text. wait_timeout has the server end a connection that stands
// idle, as that of a frozen process does, which would otherwise keep its claims for ever.
const (
	enterSession = `SET @txonce_was_settings = %[4]s, @txonce_was_autocommit = @@autocommit, @txonce_was_isolation = @@%[1]s, @txonce_was_wait = @@wait_timeout,
	autocommit = 0, %[1]s = '%[2]s', wait_timeout = LEAST(@@wait_timeout, %[3]d)`
	leaveSession = `SET autocommit = IF(@txonce_was_settings <=> %[2]s, IF(@txonce_was_autocommit, 'ON', 'OFF'), 'of another session'),
	%[1]s = @txonce_was_isolation, wait_timeout = @txonce_was_wait`

	// mysqlSession is what a handler may change and a later one would meet.
	sessionSettings = `CAST(CONCAT_WS(' ', DATABASE(), CURRENT_ROLE(), @@sql_mode, @@foreign_key_checks, @@unique_checks, @@sql_log_bin,
	@@completion_type, @@innodb_lock_wait_timeout, @@lock_wait_timeout, @@%[1]s, @@%[2]s, @@character_set_client, @@character_set_connection,
	@@character_set_results, @@collation_connection, @@time_zone, @@sql_safe_updates, @@sql_select_limit, @@sql_auto_is_null,
	@@group_concat_max_len, @@auto_increment_increment, @@auto_increment_offset) AS BINARY)`
)

// describe asks once which server it is.
func (d *DB) describe(ctx context.Context, q engine.Queryer) (*server, error) {
	if s := d.server.Load(); s != nil {
		return s, nil
	}
	var version, comment string
	if err := q.QueryRowContext(ctx, d.Plain.Describe).Scan(&version, &comment); err != nil {
		return nil, err
	}
	s := newServer(version, d.cfg)
	d.server.Store(s)
	return s, nil
}

func newServer(version string, cfg engine.Config) *server {
	s := &server{version: version, mariaDB: strings.Contains(strings.ToLower(version), "mariadb")}
	isolation, readOnly, limit := "transaction_isolation", "transaction_read_only", "max_execution_time"
	if s.mariaDB {
		isolation, readOnly, limit = "tx_isolation", "tx_read_only", "max_statement_time" // the only names before 11.1
		// The claim's own limits: the server's limit for a statement is exact, where a wait for a lock is counted in seconds.
		s.claimPrefix = fmt.Sprintf("SET STATEMENT max_statement_time = %.3f, innodb_lock_wait_timeout = %.0f FOR ",
			cfg.ClaimTimeout.Seconds(), math.Ceil(cfg.ClaimTimeout.Seconds())+1)
	}
	idle := int64(math.MaxInt32)
	if cfg.IdleInTxTimeout > 0 {
		idle = int64(math.Ceil(cfg.IdleInTxTimeout.Seconds()))
	}
	session := fmt.Sprintf(sessionSettings, readOnly, limit)
	s.enter = make(map[sql.IsolationLevel]string)
	for level, name := range map[sql.IsolationLevel]string{
		sql.LevelDefault: "READ-COMMITTED", sql.LevelReadCommitted: "READ-COMMITTED",
		sql.LevelRepeatableRead: "REPEATABLE-READ", sql.LevelSerializable: "SERIALIZABLE",
	} {
		s.enter[level] = fmt.Sprintf(enterSession, isolation, name, idle, session)
	}
	s.leave = fmt.Sprintf(leaveSession, isolation, session)
	return s
}

// TakeForMySQL has the engine send to a MariaDB of that version what it would send to MySQL, for tests.
func (d *DB) TakeForMySQL(version string) {
	s := newServer(version, d.cfg)
	s.mariaDB, s.claimPrefix = false, ""
	d.server.Store(s)
}

// tooOld names what the server lacks: SKIP LOCKED and JSON_TABLE.
func (s *server) tooOld() string {
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
