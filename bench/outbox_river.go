package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// jobs is River as an outbox: the worker of each job publishes a message.
type jobs struct {
	*place
	client *river.Client[pgx.Tx]
}

type publish struct {
	Message string `json:"message"`
	Payload []byte `json:"payload"`
}

func (publish) Kind() string { return "publish" }

type publisher struct {
	river.WorkerDefaults[publish]
	*place
	producer sarama.SyncProducer
}

func (p *publisher) Work(ctx context.Context, job *river.Job[publish]) error {
	_, _, err := p.producer.SendMessage(&sarama.ProducerMessage{
		Topic: p.topic, Key: sarama.StringEncoder(key(job.Args.Message)), Value: sarama.ByteEncoder(job.Args.Payload),
	})
	if err == nil {
		p.acknowledge(ctx, job.Args.Message)
	}
	return err
}

func newJobs(ctx context.Context, p *place) (system, error) {
	driver := riverpgxv5.New(p.pool)
	migrator, err := rivermigrate.New(driver, nil)
	if err != nil {
		return nil, err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return nil, err
	}
	client, err := p.client()
	if err != nil {
		return nil, err
	}
	producer, err := sarama.NewSyncProducerFromClient(client)
	if err != nil {
		return nil, err
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, &publisher{place: p, producer: producer})
	cfg := &river.Config{
		Queues:  map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 100}},
		Workers: workers, Logger: slog.New(slog.DiscardHandler),
	}
	if p.tuned {
		cfg.FetchCooldown, cfg.FetchPollInterval = time.Millisecond, 10*time.Millisecond
	}
	c, err := river.NewClient(driver, cfg)
	return &jobs{p, c}, err
}

func (j *jobs) Fill(ctx context.Context, from, to int) error {
	for ; from < to; from += 1000 {
		var params []river.InsertManyParams
		for i := from; i < min(to, from+1000); i++ {
			params = append(params, river.InsertManyParams{Args: publish{fmt.Sprint(i), payload}})
		}
		if _, err := j.client.InsertMany(ctx, params); err != nil {
			return err
		}
	}
	return nil
}

func (j *jobs) Tx(ctx context.Context, id string) error {
	return pgx.BeginFunc(ctx, j.pool, func(tx pgx.Tx) error {
		if err := effect(ctx, tx, id); err != nil {
			return err
		}
		_, err := j.client.InsertTx(ctx, tx, publish{id, payload}, nil)
		return err
	})
}

func (j *jobs) Relay(ctx context.Context) error { return runRiver(ctx, j.client) }
