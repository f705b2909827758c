//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/adapters/pgxstore"
)

const partitions = 6

// testbed is the schema and the topic of one run.
type testbed struct {
	name   string
	dsn    string // its search_path is the schema
	pool   *pgxpool.Pool
	kafka  []string
	topic  string
	client sarama.Client
	admin  sarama.ClusterAdmin
}

func openTestbed(ctx context.Context, o options, name string) (*testbed, error) {
	g := &testbed{name: name, dsn: withSearchPath(o.postgres, name), kafka: o.kafka, topic: name}
	if err := g.open(ctx, o); err != nil {
		return nil, errors.Join(err, g.Close(context.WithoutCancel(ctx)))
	}
	return g, nil
}

func (g *testbed) open(ctx context.Context, o options) (err error) {
	cfg, err := pgxpool.ParseConfig(g.dsn)
	if err != nil {
		return err
	}
	cfg.MaxConns = enqueuers + 4
	if g.pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return err
	}
	if err := pgxstore.Migrate(ctx, g.pool, g.name); err != nil {
		return fmt.Errorf("PostgreSQL: %w", err)
	}
	for _, statement := range [...]string{
		`CREATE TABLE chaos_keys (key integer PRIMARY KEY, n bigint NOT NULL DEFAULT 0) WITH (fillfactor = 50)`,
		fmt.Sprintf(`INSERT INTO chaos_keys (key) SELECT generate_series(0, %d)`, o.keys-1),
		`CREATE TABLE chaos_ledger (id text PRIMARY KEY, key integer NOT NULL, n bigint NOT NULL, payload bytea NOT NULL)`,
	} {
		if _, err := g.pool.Exec(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	config := sarama.NewConfig()
	config.ClientID = "relaychaos"
	config.Version = sarama.V2_8_0_0
	config.Net.DialTimeout = 5 * time.Second
	config.Admin.Timeout = 25 * time.Second // a Kafka may pause for longer than the default of 3 s
	config.Consumer.MaxWaitTime = 100 * time.Millisecond
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	config.Consumer.Return.Errors = true
	if g.client, err = sarama.NewClient(g.kafka, config); err != nil {
		return fmt.Errorf("connect to Kafka at %q: %w", g.kafka, err)
	}
	if g.admin, err = sarama.NewClusterAdminFromClient(g.client); err != nil {
		return fmt.Errorf("connect to Kafka's controller: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := g.createTopic(ctx); err != nil {
		return fmt.Errorf("create topic %s: %w", g.topic, err)
	}
	return g.awaitLeaders(ctx)
}

// createTopic retries while the controller has fenced its only broker because it paused, and when an answer comes too
// late. No other program makes a topic of this name.
func (g *testbed) createTopic(ctx context.Context) error {
	for {
		err := g.admin.CreateTopic(g.topic, &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1}, false)
		switch {
		case errors.Is(err, sarama.ErrTopicAlreadyExists):
			return nil
		case !errors.Is(err, sarama.ErrInvalidReplicationFactor) && !errors.Is(err, sarama.ErrRequestTimedOut):
			return err
		}
		if stopped := sleep(ctx, 250*time.Millisecond); stopped != nil {
			return errors.Join(err, stopped)
		}
	}
}

// awaitLeaders waits until every partition can be read. CreateTopic returns earlier.
func (g *testbed) awaitLeaders(ctx context.Context) error {
	for {
		err := g.client.RefreshMetadata(g.topic)
		for i := int32(0); i < partitions && err == nil; i++ {
			_, err = g.client.GetOffset(g.topic, i, sarama.OffsetNewest)
		}
		if err == nil {
			return nil
		}
		if sleep(ctx, 20*time.Millisecond) != nil {
			return fmt.Errorf("topic %s is not ready: %w", g.topic, err)
		}
	}
}

// held returns how many shards a relay holds under a lease that is valid for a moment longer, by the database's clock.
func (g *testbed) held(ctx context.Context, relay string) (shards int, err error) {
	err = g.pool.QueryRow(ctx, `
		SELECT count(*) FROM txonce_relays r JOIN txonce_shards s ON s.owner = r.owner
		WHERE r.name = $1 AND r.until > clock_timestamp() + interval '50 ms'`, relay).Scan(&shards)
	if err != nil {
		return 0, fmt.Errorf("read the relay's lease: %w", err)
	}
	return shards, nil
}

// pending counts all messages in the outbox's tables, whatever they wait for.
func (g *testbed) pending(ctx context.Context) (n int64, err error) {
	err = g.pool.QueryRow(ctx, `
		SELECT (SELECT count(*) FROM outbox_messages) + (SELECT count(*) FROM outbox_delayed) + (SELECT count(*) FROM outbox_parked)`).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count the pending messages: %w", err)
	}
	return n, nil
}

// Close removes the schema and the topic.
func (g *testbed) Close(ctx context.Context) error {
	var errs []error
	if g.pool != nil {
		_, err := g.pool.Exec(ctx, `DROP SCHEMA IF EXISTS `+pgx.Identifier{g.name}.Sanitize()+` CASCADE`)
		errs = append(errs, err)
		g.pool.Close()
	}
	if g.admin != nil {
		if err := g.admin.DeleteTopic(g.topic); err != nil && !errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
			errs = append(errs, fmt.Errorf("delete topic %s: %w", g.topic, err))
		}
	}
	if g.client != nil {
		errs = append(errs, g.client.Close())
	}
	return errors.Join(errs...)
}

// withSearchPath adds search_path to a DSN, which is a URL or a list of keywords. name needs no quotes.
func withSearchPath(dsn, name string) string {
	switch {
	case !strings.Contains(dsn, "://"):
		return dsn + " search_path=" + name
	case strings.Contains(dsn, "?"):
		return dsn + "&search_path=" + name
	default:
		return dsn + "?search_path=" + name
	}
}
