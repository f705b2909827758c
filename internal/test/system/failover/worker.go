//go:build unix

package main

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/adapters/kafka"
	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/dedup"
	dedupdriver "github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/test/child"
	"github.com/txonce/txonce/internal/test/spawn"
)

const workerCommand = "worker"

// killer begins the payload of a message whose handler kills its process.
const killer = "killer-"

// settings are what a worker needs to know.
type settings struct {
	Name, Kind, Database, Topic string
	Kafka                       []string
	Cooperative, Broken         bool
	MaxUnfinished               int
}

// report is what a worker tells its parent: that messages of a partition are read again, or why it ends.
type report struct {
	Partition int32
	From      int64
	Messages  int
	End       string
}

// workerMain runs a worker and returns its exit code.
func workerMain() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	var s settings
	in, err := spawn.Settings(&s)
	if err != nil {
		fmt.Fprintln(os.Stderr, "failover: a worker is started by the command, which writes settings to its standard input:", err)
		return 2
	}
	go endWithParent(in)
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, nil)).With("worker", s.Name))
	var mu sync.Mutex
	out := json.NewEncoder(os.Stdout)
	tell := func(r report) {
		mu.Lock()
		defer mu.Unlock()
		_ = out.Encode(r) // fails only if the parent is gone, and then this process ends too
	}
	if err := s.work(ctx, tell); err != nil {
		slog.Error("the worker ends", "error", err)
		tell(report{End: err.Error()})
		return 1
	}
	return 0
}

func endWithParent(in *bufio.Reader) {
	_, _ = io.Copy(io.Discard, in)
	os.Exit(3)
}

// work is an ordinary worker.
func (s settings) work(ctx context.Context, tell func(report)) error {
	c, err := s.consumer(ctx)
	if err != nil {
		return err
	}
	cfg := kafka.NewConfig()
	cfg.ClientID = s.Name
	cfg.Consumer.Group.InstanceId = s.Name // a worker that was killed gets its partitions back at once
	if s.Cooperative {
		cfg.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{
			sarama.NewBalanceStrategyCooperativeSticky(),
		}
	}
	client, err := sarama.NewClient(s.Kafka, cfg)
	if err != nil {
		return err
	}
	defer client.Close()
	var processor consumer.Processor = c
	if s.Broken {
		processor = withoutPositions{c, c, c}
	}
	subscriber, err := kafka.NewSubscriber(kafka.SubscriberConfig{
		Client: client, Group: s.Topic, Topics: []string{s.Topic}, Processor: processor,
		MaxUnfinished: s.MaxUnfinished, MaxBatch: s.MaxUnfinished,
		Trace: &driver.SourceTrace{WentBack: func(_ context.Context, e driver.SourceEvent) {
			tell(report{Partition: e.Partition, From: e.Offset, Messages: e.Messages})
		}},
	})
	if err != nil {
		return err
	}
	return subscriber.Run(ctx)
}

// consumer returns the consumer on the database, which stays open until the process ends.
func (s settings) consumer(ctx context.Context) (positioned, error) {
	if s.Kind == mariadb {
		db, err := sql.Open("mysql", s.Database)
		if err != nil {
			return nil, err
		}
		store, err := sqlstore.New(sqlstore.Config{DB: db, Dialect: sqlstore.MySQL})
		if err != nil {
			return nil, err
		}
		return newConsumer(store, func(ctx context.Context, tx *sql.Tx, id string) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO effects (id) VALUES (?)`, id)
			return err
		})
	}
	pool, err := pgxpool.New(ctx, s.Database)
	if err != nil {
		return nil, err
	}
	store, err := pgxstore.New(pgxstore.Config{Pool: pool})
	if err != nil {
		return nil, err
	}
	return newConsumer(store, func(ctx context.Context, tx pgx.Tx, id string) error {
		_, err := tx.Exec(ctx, `INSERT INTO effects (id) VALUES ($1)`, id)
		return err
	})
}

func newConsumer[TTx any](store dedup.Store[TTx], insert func(ctx context.Context, tx TTx, id string) error) (
	*consumer.Consumer[TTx], error,
) {
	return consumer.New(consumer.Config[TTx]{
		Name: "billing", Store: store, Window: 15 * 24 * time.Hour,
		Key: func(m *consumer.Message) (string, error) { return string(m.Payload), nil },
		Handle: func(ctx context.Context, tx TTx, m *consumer.Message) error {
			if strings.HasPrefix(string(m.Payload), killer) {
				child.KillMyself()
			}
			return insert(ctx, tx, string(m.Payload))
		},
	})
}

// positioned is a consumer whose Store remembers positions.
type positioned interface {
	consumer.Processor
	driver.Starter
	driver.BatchProcessor
}

// withoutPositions hides from the Subscriber that the store remembers positions.
type withoutPositions struct {
	consumer.Processor
	driver.Starter
	driver.BatchProcessor
}

var (
	_ dedupdriver.Positions = (*pgxstore.Store)(nil)
	_ dedupdriver.Positions = (*sqlstore.Store)(nil)
)
