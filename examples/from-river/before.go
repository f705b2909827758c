// Package fromriver shows a consumer that finds duplicates with River's unique jobs, the same work with txonce, and how to
// move from the one to the other. docs/moving.md explains it.
package fromriver

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
)

// OrderPlaced is the message, and the arguments of the job.
type OrderPlaced struct {
	OrderID string `json:"order_id" river:"unique"`
	Cents   int64  `json:"cents"`
}

// Kind implements river.JobArgs.
func (OrderPlaced) Kind() string { return "charge" }

// InsertOpts makes the job of an order unique. River compares with the jobs that it still has: it deletes completed ones
// after a day (CompletedJobRetentionPeriod), and an order that comes later is another job.
func (OrderPlaced) InsertOpts() river.InsertOpts {
	return river.InsertOpts{UniqueOpts: river.UniqueOpts{ByArgs: true}}
}

// before is the old code: a consumer that inserts a job for each message, and a worker that charges.
type before struct {
	river.WorkerDefaults[OrderPlaced]
	pool   *pgxpool.Pool
	client *river.Client[pgx.Tx]
}

func newBefore(pool *pgxpool.Pool) (*before, error) {
	b := &before{pool: pool}
	workers := river.NewWorkers()
	if err := river.AddWorkerSafely(workers, b); err != nil {
		return nil, err
	}
	var err error
	b.client, err = river.NewClient(riverpgxv5.New(pool), &river.Config{
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 4}}, Workers: workers,
		FetchPollInterval: 100 * time.Millisecond,
	})
	return b, err
}

// handle handles a message of the broker.
func (b *before) handle(ctx context.Context, payload []byte) (duplicate bool, err error) {
	var o OrderPlaced
	if err := json.Unmarshal(payload, &o); err != nil {
		return false, err
	}
	inserted, err := b.client.Insert(ctx, o, nil)
	if err != nil {
		return false, err
	}
	return inserted.UniqueSkippedAsDuplicate, nil
}

// Work charges, and completes the job in the same transaction.
func (b *before) Work(ctx context.Context, job *river.Job[OrderPlaced]) error {
	return pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		if err := charge(ctx, tx, job.Args); err != nil {
			return err
		}
		_, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, job)
		return err
	})
}

func charge(ctx context.Context, tx pgx.Tx, o OrderPlaced) error {
	_, err := tx.Exec(ctx, `INSERT INTO charges (order_id, cents) VALUES ($1, $2)`, o.OrderID, o.Cents)
	return err
}
