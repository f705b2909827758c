package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/txonce/txonce/adapters/kafka"
)

const connections = 8

// inWorld runs fn with a system in a new schema and topic, which it removes afterwards.
func inWorld(ctx context.Context, k kind, w *world, fn func(context.Context, system) error) (err error) {
	schema := fmt.Sprintf("bench_%x", time.Now().UnixNano())
	w.topic = schema
	drop, err := w.open(ctx, schema)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, drop()) }()
	s, err := k.setup(ctx, w)
	if err != nil {
		return fmt.Errorf("%s: set up: %w", k.name, err)
	}
	return fn(ctx, s)
}

// open makes the schema and the topic.
func (w *world) open(ctx context.Context, schema string) (drop func() error, err error) {
	cfg, err := pgxpool.ParseConfig(os.Getenv("TXONCE_POSTGRES"))
	if err != nil {
		return nil, err
	}
	w.kafka = strings.Split(os.Getenv("TXONCE_KAFKA"), ",")
	admin, err := sarama.NewClusterAdmin(w.kafka, kafka.NewConfig())
	if err != nil {
		return nil, fmt.Errorf("TXONCE_KAFKA: %w", err)
	}
	if err := admin.CreateTopic(w.topic, &sarama.TopicDetail{NumPartitions: 8, ReplicationFactor: 1}, false); err != nil {
		return nil, err
	}
	cfg.ConnConfig.RuntimeParams["search_path"] = schema
	cfg.MaxConns = 2 * connections // for handlers and the system's own connections
	if w.pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return nil, fmt.Errorf("TXONCE_POSTGRES: %w", err)
	}
	w.db = stdlib.OpenDBFromPool(w.pool)
	w.sarama = kafka.NewConfig()
	w.sarama.Producer.RequiredAcks, w.sarama.Producer.Idempotent, w.sarama.Net.MaxOpenRequests = sarama.WaitForAll, true, 1
	w.sarama.Producer.Return.Successes, w.sarama.Producer.Return.Errors = true, true

	drop = func() error {
		ctx := context.WithoutCancel(ctx)
		_, err := w.pool.Exec(ctx, "DROP SCHEMA "+schema+" CASCADE")
		err = errors.Join(err, w.db.Close(), admin.DeleteTopic(w.topic), admin.Close())
		w.pool.Close()
		return err
	}
	// Writes of the previous measurement must not reach the disk during this one.
	if _, err := w.pool.Exec(ctx, "CHECKPOINT"); err != nil {
		return nil, err
	}
	_, err = w.pool.Exec(ctx, "CREATE SCHEMA "+schema+"; CREATE TABLE effects (id text, amount bigint)", pgx.QueryExecModeSimpleProtocol)
	return drop, err
}

func (w *world) client() (sarama.Client, error) { return sarama.NewClient(w.kafka, w.sarama) }
