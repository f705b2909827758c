package main

import (
	"context"
	stdsql "database/sql"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	wmessage "github.com/ThreeDotsLabs/watermill/message"
)

const forwarderTopic = "events"

// forwarding is watermill-sql v3 with watermill's forwarder, set up like in its documentation.
type forwarding struct {
	*place
	schema    sql.DefaultPostgreSQLSchema
	forwarder *forwarder.Forwarder
}

func newForwarding(ctx context.Context, p *place) (system, error) {
	f := &forwarding{place: p}
	poll := time.Second // the default
	if p.tuned {
		poll = 10 * time.Millisecond
	}
	subscriber, err := sql.NewSubscriber(p.db, sql.SubscriberConfig{
		SchemaAdapter:    f.schema,
		OffsetsAdapter:   sql.DefaultPostgreSQLOffsetsAdapter{},
		InitializeSchema: true,
		PollInterval:     poll,
	}, watermill.NopLogger{})
	if err != nil {
		return nil, err
	}
	if err := subscriber.SubscribeInitialize(forwarderTopic); err != nil {
		return nil, err
	}
	publisher, err := wkafka.NewPublisher(wkafka.PublisherConfig{
		Brokers: kafkaAddresses(), Marshaler: wkafka.DefaultMarshaler{}, OverwriteSaramaConfig: p.sarama,
	}, watermill.NopLogger{})
	if err != nil {
		return nil, err
	}
	f.forwarder, err = forwarder.NewForwarder(subscriber, confirmingWatermill{p, publisher}, watermill.NopLogger{},
		forwarder.Config{ForwarderTopic: forwarderTopic})
	return f, err
}

type confirmingWatermill struct {
	*place
	wmessage.Publisher
}

func (c confirmingWatermill) Publish(topic string, msgs ...*wmessage.Message) error {
	if err := c.Publisher.Publish(topic, msgs...); err != nil {
		return err
	}
	for _, m := range msgs {
		c.acknowledge(m.Context(), m.UUID)
	}
	return nil
}

func (f *forwarding) inTx(ctx context.Context, fn func(*stdsql.Tx, wmessage.Publisher) error) error {
	tx, err := f.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	p, err := sql.NewPublisher(tx, sql.PublisherConfig{SchemaAdapter: f.schema}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	if err := fn(tx, forwarder.NewPublisher(p, forwarder.PublisherConfig{ForwarderTopic: forwarderTopic})); err != nil {
		return err
	}
	return tx.Commit()
}

func (f *forwarding) Fill(ctx context.Context, from, to int) error {
	for ; from < to; from += 1000 {
		err := f.inTx(ctx, func(_ *stdsql.Tx, p wmessage.Publisher) error {
			var msgs []*wmessage.Message
			for i := from; i < min(to, from+1000); i++ {
				msgs = append(msgs, wmessage.NewMessage(fmt.Sprint(i), payload))
			}
			return p.Publish(f.topic, msgs...)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (f *forwarding) Tx(ctx context.Context, id string) error {
	return f.inTx(ctx, func(tx *stdsql.Tx, p wmessage.Publisher) error {
		if _, err := tx.ExecContext(ctx, insertEffect, id); err != nil {
			return err
		}
		return p.Publish(f.topic, wmessage.NewMessage(id, payload))
	})
}

func (f *forwarding) Relay(ctx context.Context) error {
	stopped := context.AfterFunc(ctx, func() { _ = f.forwarder.Close() })
	defer stopped()
	return f.forwarder.Run(context.WithoutCancel(ctx))
}
