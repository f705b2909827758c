package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	wmessage "github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// peers compares with libraries whose messages are in a table of the same database. They handle a backlog: one
// transaction per message, which writes the effect and settles the message. What txonce and the way by hand handle is
// in memory, as a broker's messages are.
func (b *bench) peers(ctx context.Context) error {
	t := b.report.table("peers", "messages/s")
	for _, column := range loopback {
		b.progress("peers, %s", column.name)
		err := b.server.inWorld(ctx, column.conns+8, false, func(ctx context.Context, w *world) error {
			c, err := w.inMemory()
			if err != nil {
				return err
			}
			hs := []*handling{
				{name: "by hand", do: each(w.byHand)},
				{name: "Process", base: "by hand", do: each(process(c.plain))},
				{name: "ProcessBatch, Pipeline", base: "by hand", do: hundred(c.pipeline)},
				w.backlog("watermill Router on watermill-sql v3", b.size.peers, w.watermill),
				w.backlog("River", b.size.peers, func(ctx context.Context, ids []string,
					t *tally,
				) error {
					return w.river(ctx, ids, t, column.conns)
				}),
			}
			return b.compare(ctx, w, t, column, b.size.slot, b.size.rounds, hs)
		})
		if err != nil {
			return fmt.Errorf("%s: %w", column.name, err)
		}
	}
	return nil
}

// backlog is a way that commits n messages with new IDs, and then measures how fast system handles them.
func (w *world) backlog(name string, n int, system func(ctx context.Context, ids []string, t *tally) error) *handling {
	h := &handling{name: name, base: "by hand"}
	h.measure = func(ctx context.Context) (float64, error) {
		ids, t := make([]string, n), newTally(n)
		for i := range ids {
			ids[i] = h.id()
		}
		h.handled.Add(int64(n))
		return drain(ctx, t, func(ctx context.Context) error { return system(ctx, ids, t) })
	}
	return h
}

// watermill handles messages in the transaction in which watermill-sql has read them, a hundred at the most. The last
// message counts when all effects are committed.
func (w *world) watermill(ctx context.Context, ids []string, t *tally) error {
	db := stdlib.OpenDBFromPool(w.pool)
	defer db.Close()
	topic := "topic_" + ids[0][len(ids[0])-8:] // a new one for each backlog
	subscriber, err := sql.NewSubscriber(db, sql.SubscriberConfig{
		SchemaAdapter: sql.DefaultPostgreSQLSchema{}, OffsetsAdapter: sql.DefaultPostgreSQLOffsetsAdapter{},
		InitializeSchema: true, PollInterval: 10 * time.Millisecond,
	}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	if err := subscriber.SubscribeInitialize(topic); err != nil {
		return err
	}
	publisher, err := sql.NewPublisher(db, sql.PublisherConfig{SchemaAdapter: sql.DefaultPostgreSQLSchema{}},
		watermill.NopLogger{})
	if err != nil {
		return err
	}
	var msgs []*wmessage.Message
	for _, id := range ids {
		msgs = append(msgs, wmessage.NewMessage(id, wmessage.Payload(`{"amount":1}`)))
	}
	if err := publisher.Publish(topic, msgs...); err != nil {
		return err
	}
	router, err := wmessage.NewRouter(wmessage.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	handled := newTally(len(ids))
	router.AddConsumerHandler("ledger", topic, subscriber, func(msg *wmessage.Message) error {
		tx, ok := sql.TxFromContext(msg.Context())
		if !ok {
			return errors.New("there is no transaction")
		}
		if _, err := tx.ExecContext(msg.Context(), insertEffect, msg.UUID); err != nil {
			return err
		}
		if handled.add(1) < len(ids) {
			t.add(1)
		}
		return nil
	})
	committed := make(chan error, 1)
	go func() {
		err := errors.Join(handled.wait(ctx), w.committed(ctx, ids))
		if err == nil {
			t.add(1)
		}
		committed <- err
	}()
	stopped := context.AfterFunc(ctx, func() { _ = router.Close() })
	defer stopped()
	err = router.Run(context.WithoutCancel(ctx))
	return errors.Join(err, <-committed)
}

// committed returns when all of these messages are in the ledger.
func (w *world) committed(ctx context.Context, ids []string) error {
	for rows := 0; rows < len(ids); {
		if err := w.pool.QueryRow(ctx, `SELECT count(*) FROM ledger WHERE id = ANY($1)`, ids).Scan(&rows); err != nil {
			return err
		}
	}
	return nil
}

// charge is a job of River.
type charge struct {
	Order string `json:"order"`
}

func (charge) Kind() string { return "charge" }

type charger struct {
	river.WorkerDefaults[charge]
	world *world
	tally *tally
}

// Work writes the effect and completes the job in one transaction.
func (c *charger) Work(ctx context.Context, job *river.Job[charge]) error {
	err := pgx.BeginFunc(ctx, c.world.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, insertEffect, job.Args.Order); err != nil {
			return err
		}
		_, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, job)
		return err
	})
	if err == nil {
		c.tally.add(1)
	}
	return err
}

func (w *world) river(ctx context.Context, ids []string, t *tally, workers int) error {
	driver := riverpgxv5.New(w.pool)
	migrator, err := rivermigrate.New(driver, nil)
	if err != nil {
		return err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return err
	}
	registered := river.NewWorkers()
	river.AddWorker(registered, &charger{world: w, tally: t})
	client, err := river.NewClient(driver, &river.Config{
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: workers}}, Workers: registered,
		Logger:        slog.New(slog.DiscardHandler),
		FetchCooldown: time.Millisecond, FetchPollInterval: 10 * time.Millisecond,
	})
	if err != nil {
		return err
	}
	var jobs []river.InsertManyParams
	for _, id := range ids {
		jobs = append(jobs, river.InsertManyParams{Args: charge{id}})
	}
	if _, err := client.InsertMany(ctx, jobs); err != nil {
		return err
	}
	return runRiver(ctx, client)
}

// runRiver works on jobs until ctx ends.
func runRiver(ctx context.Context, client *river.Client[pgx.Tx]) error {
	if err := client.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	<-ctx.Done()
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return client.Stop(stop)
}
