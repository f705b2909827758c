package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/adapters/rabbitmq"
	"github.com/txonce/txonce/outbox"
)

// demo is what surrounds the worker: tables, queues, a producer of orders and a count of the charges.
type demo struct {
	name string
	pool *pgxpool.Pool
	conn *amqp.Connection
	ch   *amqp.Channel
}

func open(ctx context.Context, url, database, name string) (_ *demo, err error) {
	cfg, err := pgxpool.ParseConfig(database)
	if err != nil {
		return nil, err
	}
	cfg.ConnConfig.RuntimeParams["search_path"] = name
	d := &demo{name: name}
	if d.pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			d.close()
		}
	}()
	if err := pgxstore.Migrate(ctx, d.pool, name); err != nil {
		return nil, fmt.Errorf("is PostgreSQL there? make services-up starts one: %w", err)
	}
	if _, err := d.pool.Exec(ctx, `CREATE TABLE IF NOT EXISTS charges (order_id text, cents int)`); err != nil {
		return nil, err
	}
	if d.conn, err = amqp.Dial(url); err != nil {
		return nil, fmt.Errorf("is RabbitMQ there? make services-up starts one: %w", err)
	}
	if d.ch, err = d.conn.Channel(); err != nil {
		return nil, err
	}
	for _, queue := range []string{name + "-orders", name + "-charged"} {
		if _, err := d.ch.QueueDeclare(queue, true, false, false, false,
			amqp.Table{"x-queue-type": "quorum"}); err != nil {
			return nil, err
		}
	}
	return d, nil
}

func (d *demo) close() {
	if d.conn != nil {
		_ = d.conn.CloseDeadline(time.Now().Add(time.Second))
	}
	d.pool.Close()
}

// tidy deletes the queues that the worker made for retries. All orders are charged, so these queues are empty.
func (d *demo) tidy() error {
	for _, queue := range rabbitmq.RetryQueues(d.name + "-orders") {
		if _, err := d.ch.QueueDelete(queue, false, false, false); err != nil { // deleting a missing queue is no error
			return err
		}
	}
	return nil
}

// send sends each order twice, like a producer that did not get an answer.
func (d *demo) send(ctx context.Context, to outbox.Publisher, orders int) error {
	var msgs []outbox.Message
	for i := range 2 * orders {
		id := fmt.Sprintf("A-%d", i%orders)
		msgs = append(msgs, outbox.Message{ID: id, Topic: d.name + "-orders", OrderingKey: id, Payload: fmt.Appendf(nil, `{"order":%q,"cents":%d}`, id, i%orders)})
	}
	if err := errors.Join(to.Publish(ctx, msgs)...); err != nil {
		return err
	}
	fmt.Printf("%d orders sent, each twice, to %s-orders\n", orders, d.name)
	return nil
}

// watch prints the progress, and calls done when every order is charged and announced.
func (d *demo) watch(ctx context.Context, orders int, done func()) error {
	began, tick := time.Now(), time.NewTicker(500*time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		waiting, err := d.ch.QueueDeclarePassive(d.name+"-orders", true, false, false, false, nil)
		if err != nil {
			return err
		}
		announced, err := d.ch.QueueDeclarePassive(d.name+"-charged", true, false, false, false, nil)
		if err != nil {
			return err
		}
		var charges, distinct int
		if err := d.pool.QueryRow(ctx, `SELECT count(*), count(DISTINCT order_id) FROM charges`).Scan(&charges,
			&distinct); err != nil {
			if ctx.Err() != nil {
				return nil // ctx ended during the query
			}
			return err
		}
		fmt.Printf("%4.1f s: %d deliveries wait, %d charges of %d orders, %d announced\n",
			time.Since(began).Seconds(), waiting.Messages, charges, distinct, announced.Messages)
		if waiting.Messages == 0 && distinct >= orders && announced.Messages >= charges {
			fmt.Printf("every order is charged once: look at table %s.charges and queue %s-charged\n", d.name, d.name)
			done()
			return nil
		}
	}
}
