package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/internal/test/spawn"
	"github.com/txonce/txonce/outbox"
)

// fencedCode is a worker's exit code when the Kafka group has a newer member with the same instance ID.
const fencedCode = 4

// leaseTTL is short so that other workers take over from a killed one within the demo's few seconds.
const leaseTTL = 2 * time.Second

// workerConfig has the settings of a worker.
type workerConfig struct {
	Database string // DSN
	Driver   string // of database/sql
	Dialect  sqlstore.Dialect
	LeaseTTL time.Duration // how long other relays wait before they take over from one that was killed
	Trace    *consumer.Trace

	place
	broker      string // kfake, kafka, sqs or rabbitmq
	Sarama      *sarama.Config
	SourceTrace *driver.SourceTrace
	Concurrency int // SQS and RabbitMQ
	MaxBatch    int // SQS and RabbitMQ
}

// ends are a worker's subscriber and publisher. close must be called after both have ended.
type ends struct {
	orders interface{ Run(context.Context) error }
	events outbox.Publisher
	close  func()
}

// connect returns a subscriber that gives orders to billing, and a publisher for the events.
func (w workerConfig) connect(billing consumer.Processor) (*ends, error) {
	switch w.broker {
	case "sqs":
		return w.connectSQS(billing)
	case "rabbitmq":
		return w.connectRabbitMQ(billing)
	default:
		return w.connectKafka(billing)
	}
}

// workerMain runs a worker process and returns its exit code. The settings are the first line on standard input.
func workerMain() int {
	var s settings
	in, err := spawn.Settings(&s)
	if err != nil {
		fmt.Fprintln(os.Stderr, "quickstart: a worker is started by the demo, which writes settings to its standard input:", err)
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
		if errors.Is(err, sarama.ErrFencedInstancedId) {
			return fencedCode
		}
		return 1
	}
	return 0
}

// obey reads the parent's commands, and ends the process when the parent is gone.
func obey(in *bufio.Reader, stop *fault) {
	for {
		line, err := in.ReadString('\n')
		if strings.TrimSuffix(line, "\n") == haltOrder {
			stop.Next()
		}
		if err == io.EOF {
			os.Exit(3)
		}
	}
}

func (s settings) work(ctx context.Context, reports *reporter, stop *fault) error {
	w := workerConfig{
		Database: s.Database, Driver: s.Driver, Dialect: sqlstore.Dialect(s.Dialect), LeaseTTL: leaseTTL,
		Trace: reports.trace(),
		place: s.place, broker: s.Broker,
		Sarama: s.sarama(), SourceTrace: reports.sourceTrace(),
		Concurrency: 4, MaxBatch: 50,
	}
	if s.Telemetry {
		w.Trace = w.Trace.Then(reports.forward())
	}
	book := ledger{events: s.Events}
	if s.Store == "sqlite" { // SQLite has one writer at a time
		w.Concurrency, w.MaxBatch = 2, 100
	}
	switch {
	case s.Broken != "":
		return workBroken(ctx, w, s.Broken, reports, stop)
	case s.Store == "pgx":
		return workOnPgx(ctx, w, within(stop, book.onPgx))
	case s.Store == "mysql":
		return workOnSQL(ctx, w, within(stop, book.onMySQL))
	default:
		return workOnSQL(ctx, w, within(stop, book.onSQL))
	}
}
