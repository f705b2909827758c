package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/txonce/txonce/adapters/kafka"
	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/consumer"
)

// leaseTTL is short, so that what a killed worker held is taken over within the demo's few seconds.
const leaseTTL = 2 * time.Second

// workerConfig is what worker.go is told.
type workerConfig struct {
	Database   string // DSN
	Driver     string // of database/sql
	Dialect    sqlstore.Dialect
	Kafka      []string
	Orders     string // topic
	Events     string // topic
	Group      string
	LeaseTTL   time.Duration // of the outbox: how long the others wait for a relay that was killed
	Sarama     *sarama.Config
	Trace      *consumer.Trace
	KafkaTrace *kafka.Trace
}

// workerMain is a worker process, from the settings on its standard input to its exit code.
func workerMain() int {
	in := bufio.NewReader(os.Stdin)
	var s settings
	line, err := in.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &s)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "quickstart: a worker is started by the demo, which tells it what to do:", err)
		return 2
	}
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, nil)).With("worker", s.Name))
	reports := newReporter(os.Stdout)
	stop := &fault{after: s.Halt, stand: reports.flush}
	go obey(in, stop)

	ctx, cancel := context.WithCancel(context.Background())
	var reporting sync.WaitGroup
	reporting.Go(func() { reports.run(ctx) })
	err = s.work(ctx, reports, stop)
	cancel()
	reporting.Wait()
	if err != nil {
		slog.Error("the worker ends", "error", err)
		return 1
	}
	return 0
}

// obey takes the parent's orders, and ends the process when there is no parent any more.
func obey(in *bufio.Reader, stop *fault) {
	for {
		line, err := in.ReadString('\n')
		if line == haltOrder {
			stop.Next()
		}
		if err == io.EOF {
			os.Exit(3)
		}
	}
}

func (s settings) work(ctx context.Context, reports *reporter, stop *fault) error {
	w := workerConfig{
		Database: s.Database, Driver: s.Driver, Dialect: sqlstore.Postgres,
		Kafka: s.Kafka, Orders: s.Orders, Events: s.Events, Group: s.Group, Sarama: s.sarama(), LeaseTTL: leaseTTL,
		Trace: reports.trace(), KafkaTrace: reports.kafkaTrace(),
	}
	book := ledger{events: s.Events}
	if s.Store == "sqlite" {
		w.Dialect = sqlstore.SQLite
	}
	switch {
	case s.Broken != "":
		return workBroken(ctx, w, s.Broken, reports, stop)
	case s.Store == "pgx":
		return workOnPgx(ctx, w, within(stop, book.onPgx))
	default:
		return workOnSQL(ctx, w, within(stop, book.onSQL))
	}
}

// sarama is kafka.NewConfig with a group that notices quickly who comes and goes.
func (s settings) sarama() *sarama.Config {
	cfg := kafka.NewConfig()
	cfg.ClientID = s.Name
	cfg.Consumer.Group.Session.Timeout = sessionTimeout
	cfg.Consumer.Group.Heartbeat.Interval = 300 * time.Millisecond
	cfg.Consumer.Group.Rebalance.Timeout = 10 * time.Second
	cfg.Consumer.Group.Rebalance.Retry.Backoff = 200 * time.Millisecond
	cfg.Consumer.Offsets.AutoCommit.Interval = 250 * time.Millisecond
	cfg.Consumer.MaxWaitTime = 100 * time.Millisecond // a partition is given up when its fetch comes back
	if s.Static {
		cfg.Consumer.Group.InstanceId = s.Name // comes back as the same member, with the same partitions
	}
	cfg.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategyRange()}
	if s.Rebalance == "cooperative" {
		cfg.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategyCooperativeSticky()}
	}
	return cfg
}
