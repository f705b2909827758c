package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
)

// server holds the statements and limits that differ between MySQL and MariaDB.
type server struct {
	version string
	mariaDB bool
	// limits the claim's wait and run time for one statement, without changing the session
	claimPrefix string
	enter       map[sql.IsolationLevel]string // prepares a session for a transaction of the Store, by isolation level
	leave       string                        // resets the session
}

// enterSession saves the session's own values in user variables, and leaveSession resets them. If a handler changed the
// session's settings, leaveSession sets autocommit to a text that the server rejects. The statement then fails, and the
// connection is closed. So does enterSession if the session has another clock, which other code of the application may
// have set. MySQL takes LEAST for a decimal number, and a setting must be an integer. wait_timeout makes the server end
// idle connections. Without it a frozen process would hold its claims forever.
const (
	enterSession = `SET @txonce_was_settings = %[4]s, @txonce_was_autocommit = @@autocommit, @txonce_was_isolation = @@%[1]s, @txonce_was_wait = @@wait_timeout,
	autocommit = IF(` + serversClock + `, 'OFF', 'of a session whose clock was SET'), %[1]s = '%[2]s', wait_timeout = CAST(LEAST(@@wait_timeout, %[3]d) AS UNSIGNED)`
	leaveSession = `SET autocommit = IF(@txonce_was_settings <=> %[2]s AND ` + serversClock + `, IF(@txonce_was_autocommit, 'ON', 'OFF'), 'of another session'),
	%[1]s = @txonce_was_isolation, wait_timeout = @txonce_was_wait`

	// serversClock is whether the session has the server's clock. After SET timestamp, NOW and the clock of later
	// claims have another time, and SYSDATE has the server's.
	serversClock = `ABS(TIMESTAMPDIFF(SECOND, NOW(), SYSDATE())) < 5`

	// sessionSettings reads the settings that a handler may change and that would affect later handlers.
	sessionSettings = `CAST(CONCAT_WS(' ', DATABASE(), CURRENT_ROLE(), @@sql_mode, @@foreign_key_checks, @@unique_checks, @@sql_log_bin,
	@@completion_type, @@innodb_lock_wait_timeout, @@lock_wait_timeout, @@%[1]s, @@%[2]s, @@character_set_client, @@character_set_connection,
	@@character_set_results, @@collation_connection, @@time_zone, @@sql_safe_updates, @@sql_select_limit, @@sql_auto_is_null,
	@@group_concat_max_len, @@auto_increment_increment, @@auto_increment_offset) AS BINARY)`
)

// describe asks the server for its version, once.
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
		s.claimPrefix = mariaDBWait(cfg.ClaimTimeout)
	}
	idle := int64(math.MaxInt32)
	if cfg.IdleInTxTimeout > 0 {
		idle = int64(math.Ceil(cfg.IdleInTxTimeout.Seconds()))
	}
	session := fmt.Sprintf(sessionSettings, readOnly, limit)
	if s.mariaDB {
		session = strings.Replace(session, "@@unique_checks",
			"@@unique_checks, @@check_constraint_checks, @@system_versioning_asof", 1)
	}
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

// mariaDBWait is the prefix of a claim that waits for limit. max_statement_time is exact; the limit for lock waits has
// a resolution of one second.
func mariaDBWait(limit time.Duration) string {
	return fmt.Sprintf("SET STATEMENT max_statement_time = %.3f, innodb_lock_wait_timeout = %.0f FOR ", limit.Seconds(),
		math.Ceil(limit.Seconds())+1)
}

// tooOld returns the minimum version if the server lacks SKIP LOCKED or JSON_TABLE.
func (s *server) tooOld() string {
	parts := strings.FieldsFunc(strings.TrimPrefix(s.version, "5.5.5-"),
		func(r rune) bool { return r < '0' || r > '9' })
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
