package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
	"github.com/txonce/txonce/dedup"
)

// Check reads the settings of one session. The other sessions have the same settings if they are set in the DSN or in
// the server's configuration.
func (d *DB) Check(ctx context.Context) error {
	failed := func(err error) error {
		return engine.Database.Errorf("sqlstore: read the database's settings: %w", err)
	}
	server, err := d.describe(ctx, d.cfg.DB)
	if err != nil {
		return failed(err)
	}
	if need := server.tooOld(); need != "" {
		return fmt.Errorf("sqlstore: the server is %s: %s or later is needed", server.version, need)
	}
	set, err := d.readSettings(ctx)
	if err != nil {
		return failed(err)
	}
	if err := set.writes(); err != nil {
		return err
	}
	if err := set.checkSession(); err != nil {
		return err
	}
	if _, err := d.cfg.DB.ExecContext(ctx, `SELECT txonce_no_such_column`); !undefined(err) {
		if err != nil && !strings.Contains(err.Error(), "txonce_no_such_column") { // no answer to this statement
			return failed(err)
		}
		return fmt.Errorf("sqlstore: the errors of driver %T carry no number, so that a busy database looks like a bad message: "+
			"use go-sql-driver/mysql (%q came as %T)", d.cfg.DB.Driver(), err, err)
	}
	if !d.cfg.AllowAsyncCommit {
		if err := set.durable(); err != nil {
			return err
		}
	}
	return d.checkTables(ctx)
}

// settings are server variables by name. A variable that the server does not have is empty.
type settings map[string]string

// clockWasSet is a name beside those of the server's variables.
const clockWasSet = "(clock was set)"

func (d *DB) readSettings(ctx context.Context) (settings, error) {
	set := make(settings)
	var most string // the limit also cuts the answer of SHOW
	if err := d.cfg.DB.QueryRowContext(ctx, `SELECT @@sql_select_limit`).Scan(&most); err != nil {
		return nil, err
	}
	set["sql_select_limit"] = most
	var running bool
	if err := d.cfg.DB.QueryRowContext(ctx, `SELECT `+serversClock).Scan(&running); err != nil {
		return nil, err
	}
	if !running {
		set[clockWasSet] = "ON"
	}
	return set, engine.Query(ctx, d.cfg.DB, d.Plain.Settings).Each(func(rows engine.Row) error {
		var name, value string
		err := rows.Scan(&name, &value)
		set[strings.ToLower(name)] = value
		return err
	})
}

// on reports whether one of the named variables is on.
func (s settings) on(names ...string) bool {
	for _, name := range names {
		if v := s[name]; strings.EqualFold(v, "ON") || v == "1" {
			return true
		}
	}
	return false
}

func (s settings) writes() error {
	switch {
	case s.on("read_only", "super_read_only"):
		return engine.Database.Errorf("sqlstore: the server is read-only (read_only is ON), as a replica is: connect to the primary")
	case s.on("transaction_read_only", "tx_read_only"):
		return engine.Database.Errorf("sqlstore: transactions are read-only here: set transaction_read_only to OFF")
	case s.on("log_bin") && strings.EqualFold(s["binlog_format"], "STATEMENT"):
		return engine.Database.Errorf("sqlstore: binlog_format is STATEMENT, and InnoDB then refuses writes at READ COMMITTED: set it to ROW or MIXED")
	}
	return nil
}

// unfit is an error about a setting that breaks statements.
func unfit(format string, args ...any) error {
	return engine.Database.Errorf("sqlstore: %w: %w", dedup.ErrSettings, fmt.Errorf(format, args...))
}

// noSelectLimit is the value of sql_select_limit that is no limit.
const noSelectLimit = "18446744073709551615"

// checkSession fails if the session's settings would alter texts in transit, or leave a COMMIT out.
func (s settings) checkSession() error {
	modes := strings.Split(strings.ToUpper(s["sql_mode"]), ",")
	has := func(mode string) bool {
		for _, m := range modes {
			if m == mode {
				return true
			}
		}
		return false
	}
	if v := s["sql_select_limit"]; v != "" && v != noSelectLimit {
		return unfit("sql_select_limit is %s for the connections of Config.DB: rows would be missing without an error; set it to DEFAULT, or take it out of the DSN", v)
	}
	if !s.on("autocommit") {
		return unfit("autocommit is off for the connections of Config.DB: a statement outside of a transaction would never be committed; " +
			"take autocommit out of the DSN")
	}
	for _, name := range []string{"character_set_client", "character_set_connection", "character_set_results"} {
		if v := s[name]; !strings.EqualFold(v, "utf8mb4") {
			return unfit("%s is %q: the texts that Go sends are utf8mb4; set charset=utf8mb4 in the DSN", name, v)
		}
	}
	if s.on(clockWasSet) {
		return unfit("timestamp is set for the connections of Config.DB, so NOW() returns the same time for ever: take timestamp out of the DSN and of init_connect")
	}
	for name, want := range map[string]string{
		"sql_safe_updates": "OFF", "sql_auto_is_null": "OFF",
		"sql_big_selects": "ON",
	} {
		if s[name] != "" && s.on(name) != (want == "ON") {
			return unfit("%s is %s for the connections of Config.DB, with which the server refuses or changes statements of txonce: set it to %s, in the DSN (%s=%s) or on the server",
				name, s[name], want, name, map[string]string{"ON": "1", "OFF": "0"}[want])
		}
	}
	switch {
	case has("ORACLE"), has("HIGH_NOT_PRECEDENCE"):
		return unfit("sql_mode %q has ORACLE or HIGH_NOT_PRECEDENCE, which change what statements mean: take it out",
			s["sql_mode"])
	case !has("STRICT_TRANS_TABLES") && !has("STRICT_ALL_TABLES"):
		return unfit("sql_mode %q is not strict: values that do not fit are cut without an error; add STRICT_TRANS_TABLES", s["sql_mode"])
	case has("EMPTY_STRING_IS_NULL"):
		return unfit("sql_mode has EMPTY_STRING_IS_NULL: an empty payload or result would be lost; take it out")
	}
	return nil
}

func (s settings) durable() error {
	const orAllow = "or set Config.AllowAsyncCommit"
	switch {
	case s["innodb_flush_log_at_trx_commit"] != "1":
		return fmt.Errorf("%w: innodb_flush_log_at_trx_commit is %s: a commit may be forgotten; set it to 1, %s",
			dedup.ErrNotDurable, s["innodb_flush_log_at_trx_commit"], orAllow)
	case s.on("log_bin") && s["sync_binlog"] != "1":
		return fmt.Errorf("%w: sync_binlog is %s: after a crash a commit that is not in the binary log is rolled back; set it to 1, %s",
			dedup.ErrNotDurable, s["sync_binlog"], orAllow)
	}
	return nil
}

// checkTables fails if the tables do not have the engine, columns and collations that the migrations create.
func (d *DB) checkTables(ctx context.Context) error {
	err := engine.Query(ctx, d.cfg.DB, d.Plain.Tables, engine.Nullable(d.cfg.Schema)).Each(func(rows engine.Row) error {
		var table string
		var storage sql.NullString
		if err := rows.Scan(&table, &storage); err != nil {
			return err
		}
		return engine.Database.Errorf("%w: table %s has engine %s, which knows no transactions: ALTER TABLE %s ENGINE = InnoDB",
			dedup.ErrSchema, table, storage.String, table)
	})
	if err == nil {
		err = engine.Query(ctx, d.cfg.DB, d.Plain.Columns, engine.Nullable(d.cfg.Schema)).Each(func(rows engine.Row) error {
			var table, column, kind, collation string
			if err := rows.Scan(&table, &column, &kind, &collation); err != nil {
				return err
			}
			return engine.Database.Errorf("%w: column %s of table %s is %s with collation %s, which takes different keys for the same "+
				"(upper and lower case, trailing spaces): it must be binary, as txonce's migrations make it",
				dedup.ErrSchema, column, table, kind, collation)
		})
	}
	if err == nil {
		err = engine.Query(ctx, d.cfg.DB, d.Plain.Texts, engine.Nullable(d.cfg.Schema)).Each(func(rows engine.Row) error {
			var table, column, charset string
			if err := rows.Scan(&table, &column, &charset); err != nil {
				return err
			}
			return engine.Database.Errorf("%w: column %s of table %s is %s, which does not have every text that a message may hold: "+
				"ALTER TABLE %s CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", dedup.ErrSchema, column, table,
				charset, table)
		})
	}
	if err != nil && !errors.Is(err, dedup.ErrSchema) {
		return engine.Database.Errorf("sqlstore: read the tables' definitions: %w", err)
	}
	return err
}

// CheckSession implements engine.Tables.
func (d *DB) CheckSession(ctx context.Context) error {
	set, err := d.readSettings(ctx)
	if err != nil {
		return engine.Database.Errorf("sqlstore: read the database's settings: %w", err)
	}
	return set.checkSession()
}

// Refresh checks for replicas. Register alone is not enough, because a program may claim without calling it.
func (d *DB) Refresh(ctx context.Context) error {
	set, err := d.readSettings(ctx)
	if err != nil {
		return err
	}
	if !set.on("autocommit") || set["sql_select_limit"] != noSelectLimit {
		return set.checkSession()
	}
	// With AFTER_COMMIT other sessions see a commit before a replica has it.
	d.flushes.Store(set.on("rpl_semi_sync_master_enabled") && strings.EqualFold(set["rpl_semi_sync_master_wait_point"],
		"AFTER_COMMIT") ||
		set.on("rpl_semi_sync_source_enabled") && strings.EqualFold(set["rpl_semi_sync_source_wait_point"],
			"AFTER_COMMIT"))
	if n, err := strconv.ParseInt(set["max_allowed_packet"], 10, 64); err == nil {
		d.packet.Store(n)
	}
	return nil
}

// packetRoom is the part of max_allowed_packet that is reserved for everything but the payload.
const packetRoom = 64 << 10

// Fits fails for messages larger than max_allowed_packet allows. The server would close the connection, which looks
// like an outage.
func (d *DB) Fits(bytes int) error {
	if most := d.packet.Load(); most > 0 && int64(bytes) > most-packetRoom {
		return fmt.Errorf("sqlstore: %d bytes are more than the server takes: max_allowed_packet is %d; raise it there, and maxAllowedPacket in the DSN", bytes, most)
	}
	return nil
}
