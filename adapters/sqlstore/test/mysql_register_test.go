package sqlstore_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/migrations"
)

// The DSN's parameters and the session's time zone must not change what a row means to another node.
func TestMySQLWhateverTheDSNSays(t *testing.T) {
	d := openMySQL(t)
	plain := d.open(t, d.dsn, deduptest.Options{})
	for i, params := range []string{
		"", "parseTime=true", "parseTime=false", "parseTime=true&loc=America%2FNew_York", "parseTime=true&loc=Local",
		"time_zone=%27%2B05%3A00%27", "parseTime=true&loc=UTC&time_zone=%27-11%3A00%27", "clientFoundRows=true",
		"interpolateParams=true", "interpolateParams=true&clientFoundRows=true&parseTime=true", "multiStatements=true",
		"sql_mode=%27ANSI,STRICT_ALL_TABLES%27", "sql_mode=%27NO_BACKSLASH_ESCAPES,STRICT_TRANS_TABLES%27&interpolateParams=true",
		"collation=utf8mb4_bin", isolationParameter(t) + "=%27SERIALIZABLE%27",
	} {
		t.Run(params, func(t *testing.T) {
			dsn := d.dsn
			if params != "" {
				dsn = testdb.WithMySQL(t, d.dsn, params)
			}
			s := d.open(t, dsn, deduptest.Options{})
			if err := s.Register(t.Context(), fmt.Sprint("billing", i), 0); err != nil {
				t.Fatal(err)
			}
			mine, other, alone := record(fmt.Sprint(`a"b\c{},NULL' $1 ünï 🙂 `, i)), record(fmt.Sprint("k", i)),
				record(fmt.Sprint("K", i))
			mine.Key.Tenant, mine.Time, mine.Fingerprint = `"`, time.Now().Add(20*time.Minute), dedup.Fingerprint{0xff}
			other.Time = time.Now().Add(-50 * time.Hour) // old enough that the claim reads the horizon
			for _, want := range []dedup.Verdict{dedup.First, dedup.Duplicate} {
				for i, c := range append(claim(t, s, mine, other), claim(t, s, alone)...) {
					if c.Verdict != want {
						t.Errorf("record %d: %v, want %v", i, c.Verdict, want)
					}
				}
			}
			for range 2 { // the second time no row changes
				within(t, s, func(ctx context.Context, tx *sql.Tx) error { return s.SaveResult(ctx, tx, mine.Key, everyByte) })
			}
			within(t, s, func(ctx context.Context, tx *sql.Tx) error { return s.SaveResult(ctx, tx, alone.Key, nil) })
			for _, v := range []struct { // the driver's count of changed rows depends on clientFoundRows
				version int64
				newer   bool
			}{{1, true}, {1, false}, {0, false}, {2, true}} {
				within(t, s, func(ctx context.Context, tx *sql.Tx) error {
					newer, err := s.Newer(ctx, tx, "o"+params, v.version)
					if newer != v.newer {
						t.Errorf("version %d: newer is %v", v.version, newer)
					}
					return err
				})
			}
			for _, from := range []*node{s, plain} {
				c, found, err := from.Lookup(t.Context(), mine.Key)
				if err != nil || !found || !bytes.Equal(c.Result, everyByte) || c.Fingerprint != mine.Fingerprint {
					t.Fatalf("Lookup = %+v, %v, %v", c, found, err)
				}
				if want := mine.Time.Add(mine.Keep()); c.ExpiresAt.Sub(want).Abs() > 2*time.Microsecond {
					t.Errorf("expires at %v, want %v", c.ExpiresAt, want)
				}
				if c, _, err := from.Lookup(t.Context(), alone.Key); err != nil || c.Result == nil ||
					len(c.Result) != 0 {
					t.Errorf("an empty result is %v, %v", c.Result, err)
				}
				if c, _, err := from.Lookup(t.Context(), other.Key); err != nil ||
					time.Until(c.ExpiresAt.Add(-other.Keep())).Abs() > 10*time.Minute {
					t.Errorf("claimed at %v, %v", c.ExpiresAt.Add(-other.Keep()), err)
				}
			}
			letter := consumer.DeadLetter{
				ID: consumer.DeadLetterID{byte(i), 0xff}, Record: mine, Cause: "rejected",
				Message: consumer.Message{Topic: "t", Payload: everyByte, OrderingKey: "\xff"},
			}
			within(t, s, func(ctx context.Context, tx *sql.Tx) error { return s.Park(ctx, tx, letter) })
			for _, from := range []*node{s, plain} {
				got, err := from.DeadLetters(t.Context(),
					consumer.DeadLetterFilter{ID: letter.ID, Consumer: "billing", Cause: "rejected"})
				if err != nil || len(got) != 1 || !bytes.Equal(got[0].Message.Payload, everyByte) ||
					got[0].Message.OrderingKey != "\xff" ||
					time.Since(got[0].First).Abs() > 10*time.Minute || !got[0].Settled {
					t.Errorf("DeadLetters = %+v, %v", got, err)
				}
				if got, err := from.DeadLetters(t.Context(),
					consumer.DeadLetterFilter{ID: letter.ID, Consumer: "Billing"}); err != nil || len(got) != 0 {
					t.Errorf("DeadLetters of another consumer = %+v, %v", got, err)
				}
			}
			if swept, err := s.Purge(t.Context(), dedup.Sweep{Owner: "me", Lease: time.Second, Limit: 10}); err != nil || swept.Keys != 0 {
				t.Errorf("Purge = %+v, %v", swept, err)
			}
		})
	}
}

// Register fails, and names the setting, for each setting that would lose or alter data. It accepts all others.
func TestMySQLRegisterRefuses(t *testing.T) {
	t.Parallel()
	d := openMySQL(t)
	readOnly := "tx_read_only" // the only name before MariaDB 11.1
	if d.isMySQL {
		readOnly = "transaction_read_only"
	}
	const (
		passing = iota // the error is gone once an operator changes the setting
		fatal          // the program itself must change
	)
	for _, tt := range []struct {
		name, params     string
		setting, value   string
		also, alsoValue  string
		want             string // empty: accepted
		onlyMariaDB      bool   // MySQL does not have it
		err              error
		fault            int
		allowAsyncCommit bool
	}{
		{name: "good"},
		{name: "not strict", params: "sql_mode=%27%27", want: "is not strict", err: dedup.ErrSettings},
		{name: "strict for all tables", params: "sql_mode=%27STRICT_ALL_TABLES%27"},
		{name: "strict for transactional tables", params: "sql_mode=%27STRICT_TRANS_TABLES%27"},
		{
			name: "empty is NULL", params: "sql_mode=%27STRICT_ALL_TABLES,EMPTY_STRING_IS_NULL%27",
			want: "EMPTY_STRING_IS_NULL", onlyMariaDB: true,
		},
		{name: "safe updates", params: "sql_safe_updates=1", want: "sql_safe_updates is ON", err: dedup.ErrSettings},
		{name: "few rows", params: "sql_select_limit=10", want: "sql_select_limit is 10", err: dedup.ErrSettings},
		{name: "no big selects", params: "sql_big_selects=0", want: "sql_big_selects is OFF", err: dedup.ErrSettings},
		{
			name: "NULL finds the last row", params: "sql_auto_is_null=1", want: "sql_auto_is_null is ON",
			err: dedup.ErrSettings,
		},
		{
			name: "Oracle's language", params: "sql_mode=%27ORACLE,STRICT_ALL_TABLES%27", want: "ORACLE",
			err: dedup.ErrSettings, onlyMariaDB: true,
		},
		{name: "latin1", params: "charset=latin1", want: "charset=utf8mb4", err: dedup.ErrSettings},
		{name: "utf8mb3", params: "charset=utf8", want: "charset=utf8mb4"},
		{
			name: "client's texts", setting: "character_set_client", value: "latin1",
			want: `character_set_client is "latin1"`,
		},
		{
			name: "connection's texts", setting: "character_set_connection", value: "latin1",
			want: `character_set_connection is "latin1"`,
		},
		{
			name: "results' texts", setting: "character_set_results", value: "utf8mb3",
			want: `character_set_results is "utf8mb3"`,
		},
		{name: "no autocommit", params: "autocommit=0", want: "autocommit is off", err: dedup.ErrSettings},
		{name: "read-only transactions", params: readOnly + "=1", want: "transaction_read_only"},
		{
			name: "read-only transactions by MySQL's name", setting: "transaction_read_only", value: "ON",
			want: "transaction_read_only",
		},
		{name: "a replica", setting: "read_only", value: "ON", want: "connect to the primary"},
		{
			name: "a replica even for those with rights", setting: "super_read_only", value: "1",
			want: "connect to the primary",
		},
		{
			name: "statements in the binary log", setting: "log_bin", value: "ON", also: "binlog_format",
			alsoValue: "STATEMENT", want: "binlog_format is STATEMENT",
		},
		{
			name: "rows in the binary log", setting: "log_bin", value: "ON", also: "binlog_format", alsoValue: "ROW",
			allowAsyncCommit: true,
		},
		{name: "statements in no log", setting: "log_bin", value: "OFF", also: "binlog_format", alsoValue: "STATEMENT"},
		{
			name: "flush at leisure", setting: "innodb_flush_log_at_trx_commit", value: "0",
			want: "innodb_flush_log_at_trx_commit is 0", err: dedup.ErrNotDurable, fault: fatal,
		},
		{
			name: "flush each second", setting: "innodb_flush_log_at_trx_commit", value: "2",
			want: "innodb_flush_log_at_trx_commit is 2", err: dedup.ErrNotDurable, fault: fatal,
		},
		{
			name: "flush at leisure, allowed", setting: "innodb_flush_log_at_trx_commit", value: "2",
			allowAsyncCommit: true,
		},
		{
			name: "binary log at leisure", setting: "log_bin", value: "ON", also: "sync_binlog", alsoValue: "0",
			want: "sync_binlog is 0", err: dedup.ErrNotDurable, fault: fatal,
		},
		{
			name: "binary log at leisure, allowed", setting: "log_bin", value: "ON", also: "sync_binlog", alsoValue: "0",
			allowAsyncCommit: true,
		},
		{name: "binary log flushed", setting: "log_bin", value: "ON", also: "sync_binlog", alsoValue: "1"},
		{name: "no binary log", setting: "log_bin", value: "OFF", also: "sync_binlog", alsoValue: "0"},
		{name: "MySQL 5", setting: "version", value: "5.7.44", want: "MySQL 8.0.19 or later", fault: fatal},
		{name: "MySQL, one too old", setting: "version", value: "8.0.18", want: "MySQL 8.0.19 or later", fault: fatal},
		{
			name: "MariaDB, one too old", setting: "version", value: "10.5.27-MariaDB-log", want: "MariaDB 10.6 or later",
			fault: fatal,
		},
		{
			name: "MariaDB that hides its version", setting: "version", value: "5.5.5-10.5.27-MariaDB",
			want: "MariaDB 10.6 or later", fault: fatal,
		},
		{name: "the oldest MariaDB", setting: "version", value: "5.5.5-10.6.0-MariaDB", onlyMariaDB: true},
	} {
		if tt.onlyMariaDB && d.isMySQL {
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			dsn := d.dsn
			if tt.params != "" {
				dsn = testdb.WithMySQL(t, dsn, tt.params)
			}
			s := newNode(t, openDB(t, "mysql", dsn),
				sqlstore.Config{Dialect: sqlstore.MySQL, AllowAsyncCommit: tt.allowAsyncCommit})
			s.Pretend(tt.setting, tt.value, tt.also, tt.alsoValue)
			err := s.Register(t.Context(), "billing", 0)
			wantRefusal(t, s, err, tt.want, tt.err)
			if tt.want != "" && s.Retryable(err) != (tt.fault == passing) {
				t.Errorf("Retryable(%v) = %v", err, s.Retryable(err))
			}
		})
	}
}

func wantRefusal(t *testing.T, s *node, err error, says string, is error) {
	t.Helper()
	switch {
	case says == "" && err != nil:
		t.Errorf("Register = %v", err)
	case says == "":
	case err == nil || !strings.Contains(err.Error(), says) || is != nil && !errors.Is(err, is):
		t.Errorf("Register = %v, want %q and %v", err, says, is)
	case errors.Is(s.Register(context.Background(), "billing", 0), dedup.ErrNameTaken):
		t.Error("the consumer's name is not free again")
	}
}

// Register fails for tables with a wrong definition, in the DSN's database and in another one.
func TestMySQLRegisterRefusesTables(t *testing.T) {
	t.Parallel()
	d, other := openMySQL(t), openMySQL(t)
	there := other.dsn[strings.LastIndex(other.dsn, "/")+1:]
	engine := func(table, name string) string { return "ALTER TABLE " + table + " ENGINE = " + name }
	type change struct{ do, undo, want string }
	var changes []change
	for _, table := range []string{"processed_messages", "txonce_windows", "txonce_sweep", "outbox_locks"} {
		changes = append(changes, change{engine(table, "MyISAM"), engine(table, "InnoDB"), "table " + table + " has engine MyISAM"})
	}
	another := "Aria"
	if d.isMySQL {
		another = "MEMORY"
	}
	changes = append(changes, change{
		engine("txonce_sources", another), engine("txonce_sources", "InnoDB"),
		"table txonce_sources has engine " + another,
	})
	for _, c := range []struct{ table, column, binary string }{
		{"processed_messages", "key", "BINARY(16) NOT NULL"},
		{"processed_messages", "token", "BINARY(8) NOT NULL"},
		{"dead_letters", "id", "BINARY(16) NOT NULL"},
		{"dead_letters", "key", "BINARY(16)"},
		{"txonce_windows", "consumer", "VARBINARY(255) NOT NULL"},
		{"source_positions", "consumer", "VARBINARY(255) NOT NULL"},
		{"source_positions", "source", "VARBINARY(1024) NOT NULL"},
	} {
		modify := "ALTER TABLE " + c.table + " MODIFY `" + c.column + "` "
		changes = append(changes, change{
			modify + "VARCHAR(100) COLLATE utf8mb4_bin", modify + c.binary,
			"column " + c.column + " of table " + c.table + " is varchar(100) with collation utf8mb4_bin",
		})
	}
	changes = append(changes,
		change{
			"ALTER TABLE dead_letters MODIFY error TEXT CHARACTER SET latin1 NOT NULL",
			"ALTER TABLE dead_letters MODIFY error TEXT CHARACTER SET utf8mb4 NOT NULL",
			"column error of table dead_letters is latin1",
		},
		change{"CREATE VIEW txonce_view AS SELECT 1", "DROP VIEW txonce_view", ""},
		// a table that is not txonce's
		change{"CREATE TABLE txoncery (n INT) ENGINE = MyISAM", "DROP TABLE txoncery", ""},
	)
	for _, c := range changes {
		t.Run(c.do, func(t *testing.T) {
			for schema, db := range map[string]*sql.DB{"": d.db, there: other.db} {
				s := newNode(t, openDB(t, "mysql", d.dsn), sqlstore.Config{Dialect: sqlstore.MySQL, Schema: schema})
				if err := s.Register(t.Context(), "good", 0); err != nil {
					t.Errorf("before: %v", err)
				}
				exec(t, db, c.do)
				err := s.Register(t.Context(), "billing", 0)
				wantRefusal(t, s, err, c.want, dedup.ErrSchema)
				if c.want != "" && !s.Retryable(err) {
					t.Errorf("%v is not retryable", err)
				}
				exec(t, db, c.undo)
			}
		})
	}
}

// Register distinguishes errors that an operator must fix from temporary errors.
func TestMySQLRegisterTellsWhatAPersonMustChange(t *testing.T) {
	t.Parallel()
	cfg, err := mysql.ParseDSN(testdb.MySQL(t))
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		change func(c *mysql.Config)
		access bool
	}{
		"database": {func(c *mysql.Config) { c.DBName = "nowhere_of_txonce" }, true},
		"user":     {func(c *mysql.Config) { c.User = "nobody_of_txonce" }, true},
		"server":   {func(c *mysql.Config) { c.Addr = "127.0.0.1:1" }, false},
	} {
		wrong := cfg.Clone()
		tt.change(wrong)
		s := newNode(t, openDB(t, "mysql", wrong.FormatDSN()), sqlstore.Config{Dialect: sqlstore.MySQL})
		err := s.Register(t.Context(), "billing", 0)
		if err == nil || errors.Is(err, dedup.ErrAccess) != tt.access || !s.Retryable(err) {
			t.Errorf("another %s: Register = %v; want ErrAccess: %v, and retryable", name, err, tt.access)
		}
	}
}

// With a driver whose errors have no numbers, a busy database would look like a bad message, and the message would be
// parked.
func TestMySQLRefusesADriverWithoutNumbers(t *testing.T) {
	d := openMySQL(t)
	s := newNode(t, openDB(t, opaqueDriver(d.db.Driver()), d.dsn), sqlstore.Config{Dialect: sqlstore.MySQL})
	if err := s.Register(t.Context(), "billing", 0); err == nil || !strings.Contains(err.Error(),
		"sqlstore_test.opaque") || s.Retryable(err) {
		t.Errorf("Register = %v, want an error that names the driver", err)
	}
}

// The tables may be in another database than the DSN's.
func TestMySQLSchema(t *testing.T) {
	d, other := openMySQL(t), testdb.MySQL(t)
	name := other[strings.LastIndex(other, "/")+1:]
	if err := migrations.Apply(t.Context(), d.db, "mysql", name); err != nil {
		t.Fatal(err)
	}
	exec(t, d.db, `DROP TABLE processed_messages`)
	s := newNode(t, openDB(t, "mysql", d.dsn), sqlstore.Config{Dialect: sqlstore.MySQL, Schema: name})
	if err := s.Register(t.Context(), "billing", 0); err != nil {
		t.Fatal(err)
	}
	for _, want := range []dedup.Verdict{dedup.First, dedup.Duplicate} {
		if c := claim(t, s, record("k"), record("l")); c[0].Verdict != want {
			t.Errorf("%v, want %v", c[0].Verdict, want)
		}
	}
}
