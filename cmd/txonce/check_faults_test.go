package main

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/test/brokers/testkafka"
	"github.com/txonce/txonce/internal/test/brokers/testrabbitmq"
	"github.com/txonce/txonce/internal/test/brokers/testsqs"
	"github.com/txonce/txonce/outbox/driver"
)

// everywhere are faults that each database may have.
func everywhere() []fault {
	return []fault{
		{"tables missing", func(t *testing.T, p *planted) { p.revert(t, 0) }, "schema", "error", "missing"},
		{"tables outdated", func(t *testing.T, p *planted) { p.revert(t, 2) }, "schema", "error", "version 2 of "},
		{"tables newer", statements(`INSERT INTO txonce_schema (version, works_with, applied_at) SELECT 99, 1, applied_at FROM txonce_schema WHERE version = 1`), "schema", "warning", "newer"},
		{"tables much newer", statements(`INSERT INTO txonce_schema (version, works_with, applied_at) SELECT 99, 99, applied_at FROM txonce_schema WHERE version = 1`), "schema", "error", "99"},
		{"a table dropped", statements(`DROP TABLE dead_letters`), "schema", "error", ""},
		{"dead letters", park1, "letters", "warning", "1 dead letter of billing: permanent"},
		{"unprovable messages", func(t *testing.T, p *planted) {
			p.old(t)
			p.exec(t, `UPDATE txonce_sweep SET forgotten_until = `+p.ago(10*24*time.Hour))
			m := delivery("order-2", "x")
			m.Time = time.Now().Add(-30 * 24 * time.Hour)
			p.deliver(t, func(context.Context, *sql.Tx, *consumer.Message) error { return nil }, m)
		}, "window", "error", "unprovable"},
		{"two windows", func(t *testing.T, p *planted) {
			p.receive(t, "queue")
			p.exec(t, `INSERT INTO txonce_windows (consumer, window_seconds, first_run, used_until) SELECT consumer, 7200, first_run, used_until FROM txonce_windows`)
		}, "window", "warning", "2h00m and 15d00h"},
		{"no sweeper", func(t *testing.T, p *planted) { p.old(t) }, "sweeper", "warning", "ever"},
		{"the sweeper stopped", func(t *testing.T, p *planted) { p.exec(t, `UPDATE txonce_passes SET ended_at = `+p.ago(50*time.Hour)) }, "sweeper", "warning", "ago"},
		{"no relay", func(t *testing.T, p *planted) { p.enqueue(t, "charged"); p.args = []string{"--max-outbox-age", "1ns"} }, "relay", "error", "no relay is alive"},
		{
			"no relay for a moment", func(t *testing.T, p *planted) { p.enqueue(t, "charged") }, "relay", "warning",
			"no relay is alive",
		},
		{
			"a failing topic", func(t *testing.T, p *planted) { p.enqueue(t, "charged"); p.settle(t, driver.Deferred) },
			"topic", "error", "the broker said no",
		},
		{
			"a parked message", func(t *testing.T, p *planted) { p.enqueue(t, "charged"); p.settle(t, driver.Parked) },
			"parked", "warning", "topic charged",
		},
		{"a replay that nobody runs", func(t *testing.T, p *planted) {
			park1(t, p)
			command(t, p, "dead-letters", "replay", "--consumer", "billing", "--reason", "x", "--yes", "--expect", "1")
			p.args = []string{"--max-replay-wait", "1ns"}
		}, "replays", "warning", "1 letters of billing wait"},
	}
}

func postgresFaults() []fault {
	return []fault{
		{
			"commits are lost", parameter("synchronous_commit", "off"), "durability", "error",
			"synchronous_commit is off",
		},
		{"read only", parameter("default_transaction_read_only", "on"), "settings", "error", "read-only"},
		{
			"a table is not logged", statements(`ALTER TABLE processed_messages SET UNLOGGED`), "unlogged", "error",
			"processed_messages",
		},
		{
			"autovacuum is off", statements(`ALTER TABLE outbox_messages SET (autovacuum_enabled=false)`), "autovacuum",
			"warning", "outbox_messages",
		},
		{
			"autovacuum is off in another spelling", statements(`ALTER TABLE txonce_passes SET (autovacuum_enabled=0)`),
			"autovacuum", "warning", "txonce_passes",
		},
		{"a table of another schema is not logged", func(t *testing.T, p *planted) {
			schema := otherSchema(t, p)
			p.exec(t, `ALTER TABLE "`+schema+`".dead_letters SET UNLOGGED`)
		}, "unlogged", "error", "dead_letters"},
		{"another schema without a fault", func(t *testing.T, p *planted) { otherSchema(t, p) }, "", "", ""},
		{"a trigger that is disabled", statements(`CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'`,
			`CREATE TRIGGER keep BEFORE DELETE ON dead_letters FOR EACH ROW EXECUTE FUNCTION keep()`,
			`ALTER TABLE dead_letters DISABLE TRIGGER keep`), "", "", ""},
		{"a trigger", statements(`CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'`,
			`CREATE TRIGGER keep BEFORE DELETE ON dead_letters FOR EACH ROW EXECUTE FUNCTION keep()`), "triggers", "warning", "keep"},
		{
			"foreign deletions are not refused", statements(`DROP TRIGGER txonce_guard ON processed_messages`), "guard", "error",
			"processed_messages has no trigger txonce_guard",
		},
		{
			"foreign deletions are not refused any more", statements(`ALTER TABLE processed_messages DISABLE TRIGGER txonce_guard`),
			"guard", "error", "or it is disabled",
		},
		{"an old transaction", func(t *testing.T, p *planted) {
			hold(t, p)
			waitFor(t, p, `SELECT count(*) > 0 FROM pg_stat_activity AS a JOIN pg_locks AS l USING (pid)
				WHERE l.relation = 'txonce_sweep'::regclass AND a.xact_start < clock_timestamp() - interval '1 second'`)
		}, "transactions", "warning", "has been open"},
		{"a slot holds WAL", func(t *testing.T, p *planted) {
			var name string
			if err := p.db.QueryRowContext(t.Context(),
				`SELECT slot_name FROM pg_create_physical_replication_slot('txonce_check_' || pg_backend_pid(), true)`).Scan(&name); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if _, err := p.db.ExecContext(context.Background(), `SELECT pg_drop_replication_slot($1)`,
					name); err != nil {
					t.Error(err)
				}
			})
			p.args = []string{"--max-slot-bytes", "-1"}
		}, "slots", "warning", "txonce_check_"},
	}
}

func mysqlFaults(isMySQL bool) []fault {
	readOnly := "tx_read_only"
	open := `SELECT count(*) > 0 FROM information_schema.INNODB_TRX AS t JOIN information_schema.PROCESSLIST AS p ON p.ID = t.trx_mysql_thread_id
		WHERE p.DB = DATABASE() AND t.trx_started < NOW() - INTERVAL 1 SECOND`
	if isMySQL {
		readOnly = "transaction_read_only"
		open = `SELECT count(*) > 0 FROM performance_schema.events_transactions_current AS e JOIN performance_schema.threads AS t USING (thread_id)
			WHERE t.processlist_db = DATABASE() AND e.state = 'ACTIVE' AND e.timer_wait > 1000000000000`
	}
	return []fault{
		{"not strict", parameter("sql_mode", "''"), "settings", "error", "STRICT_TRANS_TABLES"},
		{"another charset", parameter("charset", "latin1"), "settings", "error", "utf8mb4"},
		{"autocommit is off", parameter("autocommit", "0"), "settings", "error", "autocommit"},
		{"read only", parameter(readOnly, "1"), "settings", "error", "read-only"},
		{"no transactions", statements(`ALTER TABLE txonce_sweep ENGINE = MyISAM`), "schema", "error", "MyISAM"},
		{"keys without case", statements("ALTER TABLE txonce_windows MODIFY consumer VARCHAR(255) COLLATE utf8mb4_general_ci NOT NULL"), "schema", "error", "consumer"},
		{
			"a trigger", statements(`CREATE TRIGGER keep BEFORE DELETE ON dead_letters FOR EACH ROW SET @x = 1`),
			"triggers", "warning", "keep",
		},
		{"a young transaction, and another time zone", func(t *testing.T, p *planted) {
			hold(t, p)
			p.args = nil
			p.param("time_zone", "'+05:00'")
		}, "", "", ""},
		{"an old transaction", func(t *testing.T, p *planted) {
			hold(t, p)
			waitFor(t, p, open)
		}, "transactions", "warning", "has been open"},
	}
}

func sqliteFaults() []fault {
	return []fault{
		{
			"commits are lost", parameter("_pragma", "synchronous(normal)"), "durability", "error",
			"synchronous is normal",
		},
		{"no write-ahead log", statements(`PRAGMA journal_mode = delete`), "journal", "warning", "delete"},
		{
			"a trigger", statements(`CREATE TRIGGER keep BEFORE DELETE ON dead_letters BEGIN SELECT RAISE(IGNORE); END`),
			"triggers", "warning", "keep",
		},
	}
}

func brokerFaults() []fault {
	return []fault{
		{"a topic keeps messages for longer", func(t *testing.T, p *planted) {
			brokers := testkafka.Brokers(t)
			topic := testkafka.Topic(t, brokers, 1)
			p.receive(t, "kafka group billing, topic "+topic)
			p.exec(t, `UPDATE txonce_windows SET window_seconds = 86400`)
			p.args = []string{"--kafka", strings.Join(brokers, ",")}
		}, "kafka", "error", "keeps messages for up to"},
		{"a topic confirms messages that only one broker has", func(t *testing.T, p *planted) {
			brokers := testkafka.Brokers(t)
			p.receive(t, "kafka group billing, topic "+testkafka.Topic(t, brokers, 1))
			p.args = []string{"--kafka", strings.Join(brokers, ",")}
		}, "kafka", "warning", "set min.insync.replicas to 2"},
		{"a topic is missing", func(t *testing.T, p *planted) {
			p.receive(t, "kafka group billing, topic nothing-of-this-name")
			p.args = []string{"--kafka", strings.Join(testkafka.Brokers(t), ",")}
		}, "kafka", "error", "nothing-of-this-name"},
		{"a queue moves messages away too early", func(t *testing.T, p *planted) {
			client := testsqs.Server(t)
			queue := testsqs.Queue(t, client, testsqs.Redrive(t, client, testsqs.Queue(t, client, nil), 2))
			p.receive(t, "sqs queue "+queue[strings.LastIndex(queue, "/")+1:])
			p.args = []string{"--sqs", *client.Options().BaseEndpoint}
		}, "sqs", "error", "redrive policy"},
		{"a queue of RabbitMQ keeps messages for ever", func(t *testing.T, p *planted) {
			at := testrabbitmq.Server(t)
			p.receive(t, "rabbitmq queue "+testrabbitmq.Queue(t, at, nil))
			p.args = []string{"--amqp", at}
		}, "amqp", "error", "for ever"},
	}
}
