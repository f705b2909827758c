package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/txonce/txonce/adapters/kafka"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/outboxtest"
	"github.com/txonce/txonce/outbox/relay"
)

// quiet keeps the examples' output to what they print.
var quiet = slog.New(slog.DiscardHandler)

// A handler that charges an order, wherever and however often the order is delivered. The broker here is kfake, and the
// database one in memory; in a worker they are Apache Kafka and a Store of adapters/pgxstore or adapters/sqlstore.
func Example() {
	broker, stop := exampleBroker("orders", `{"order_id":"A","cents":100}`, `{"order_id":"B","cents":200}`,
		`{"order_id":"A","cents":100}`)
	defer stop()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	type order struct {
		ID    string `json:"order_id"`
		Cents int    `json:"cents"`
	}
	store := consumertest.NewStore()
	charge, err := consumer.New(consumer.Config[*deduptest.Tx]{
		Name:  "billing",
		Store: store,
		Key:   consumer.JSONKey("order_id"),
		Handle: consumer.JSON(func(ctx context.Context, tx *deduptest.Tx, o order) error {
			return tx.Add("charged " + o.ID)
		}),
		Logger: quiet,
	})
	if err != nil {
		panic(err)
	}

	client, err := sarama.NewClient([]string{broker}, kafka.NewConfig())
	if err != nil {
		panic(err)
	}
	defer client.Close()
	orders, err := kafka.NewSubscriber(kafka.SubscriberConfig{
		Client: client, Group: "billing", Topics: []string{"orders"}, Processor: charge,
		Trace: &driver.SourceTrace{Acked: func(_ context.Context, e driver.SourceEvent) {
			// in a worker a signal ends ctx
			if e.Offset == 2 {
				cancel()
			}
		}},
		Logger: quiet,
	})
	if err != nil {
		panic(err)
	}
	if err := orders.Run(ctx); err != nil {
		panic(err)
	}
	fmt.Println("A:", store.Database().Count("charged A"))
	fmt.Println("B:", store.Database().Count("charged B"))
	// Output:
	// A: 1
	// B: 1
}

// Any Processor will do: nil acknowledges, a *consumer.RetryError delivers again.
func ExampleSubscriber() {
	broker, stop := exampleBroker("audit", "one", "two", "three")
	defer stop()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	client, err := sarama.NewClient([]string{broker}, kafka.NewConfig())
	if err != nil {
		panic(err)
	}
	defer client.Close()

	sub, err := kafka.NewSubscriber(kafka.SubscriberConfig{
		Client: client, Group: "audit", Topics: []string{"audit"}, Logger: quiet,
		Processor: processor(func(_ context.Context, msg *consumer.Message) error {
			if string(msg.Payload) == "two" && msg.Attempt == 1 {
				return &consumer.RetryError{Err: errors.New("not yet")}
			}
			fmt.Println(msg.Position, string(msg.Payload))
			if string(msg.Payload) == "three" {
				cancel()
			}
			return nil
		}),
	})
	if err != nil {
		panic(err)
	}
	if err := sub.Run(ctx); err != nil {
		panic(err)
	}
	// Output:
	// audit/0/0 one
	// audit/0/1 two
	// audit/0/2 three
}

func ExampleSubscriberConfig() {
	_, err := kafka.NewSubscriber(kafka.SubscriberConfig{
		Client: settings{cfg: kafka.NewConfig()}, Group: "billing", Topics: []string{"orders"},
	})
	fmt.Println(err)
	// Output: kafka: SubscriberConfig.Processor is required
}

// While the handler of one customer's message waits, messages of other customers go on. Messages of one key are still
// handled one after the other.
func ExampleSubscriberConfig_concurrency() {
	broker, stop := exampleBroker("charges")
	defer stop()
	if err := send([]string{broker}, "charges", keyed(0, "acme", "acme 1", "acme", "acme 2", "globex",
		"globex 1")...); err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	client, err := sarama.NewClient([]string{broker}, kafka.NewConfig())
	if err != nil {
		panic(err)
	}
	defer client.Close()

	answer := make(chan struct{})
	sub, err := kafka.NewSubscriber(kafka.SubscriberConfig{
		Client: client, Group: "billing", Topics: []string{"charges"}, Logger: quiet,
		Concurrency: 8,
		Processor: processor(func(_ context.Context, msg *consumer.Message) error {
			switch string(msg.Payload) {
			case "acme 1":
				<-answer
			case "globex 1":
				defer close(answer)
			case "acme 2":
				defer cancel()
			}
			fmt.Println(string(msg.Payload))
			return nil
		}),
	})
	if err != nil {
		panic(err)
	}
	if err := sub.Run(ctx); err != nil {
		panic(err)
	}
	// Output:
	// globex 1
	// acme 1
	// acme 2
}

// sarama's own defaults lose messages, and are refused.
func ExampleRisk() {
	cfg := sarama.NewConfig()
	cfg.Consumer.IsolationLevel = sarama.ReadCommitted
	cfg.Consumer.Group.ResetInvalidOffsets = false
	sub := kafka.SubscriberConfig{
		Client: settings{cfg: cfg}, Group: "live-dashboard", Topics: []string{"orders"},
		Processor: processor(func(context.Context, *consumer.Message) error { return nil }),
	}
	_, err := kafka.NewSubscriber(sub)
	fmt.Println(err)

	sub.AcceptedRisks = []kafka.Risk{kafka.RiskOffsetNewest}
	_, err = kafka.NewSubscriber(sub)
	fmt.Println(err)
	// Output:
	// kafka: the sarama.Config's Consumer.Offsets.Initial is not OffsetOldest: a partition without a committed offset would start at its end, and the messages before would never be handled; set it to sarama.OffsetOldest (kafka.NewConfig does), or accept kafka.RiskOffsetNewest (AcceptedRisks)
	// <nil>
}

// A program with a sarama.ConsumerGroup of its own is checked as a Subscriber is, and gets the same answers.
func ExampleCheck() {
	cfg := sarama.NewConfig()
	cfg.Consumer.Offsets.Initial = sarama.OffsetOldest
	cfg.Consumer.IsolationLevel = sarama.ReadCommitted
	fmt.Println(kafka.Check(cfg))
	fmt.Println(kafka.Check(kafka.NewConfig()))
	// Output:
	// kafka: the sarama.Config's Consumer.Group.ResetInvalidOffsets is true: messages deleted before they were handled would be skipped silently; set it to false (kafka.NewConfig does), or accept kafka.RiskResetInvalidOffsets (AcceptedRisks)
	// <nil>
}

// handWritten is a sarama.ConsumerGroupHandler that a program had before. The message is marked when its effects are
// committed.
type handWritten struct{ billing consumer.Processor }

func (h handWritten) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (h handWritten) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (h handWritten) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for msg := range claim.Messages() {
		if err := h.billing.Process(session.Context(), kafka.ToMessage(msg)); err != nil {
			return err
		}
		session.MarkMessage(msg, "")
	}
	return nil
}

// A sarama handler of your own calls the Processor with the message that ToMessage returns. Check refuses unsafe
// settings first.
func ExampleToMessage() {
	broker, stop := exampleBroker("orders", "A", "B", "A")
	defer stop()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	cfg := kafka.NewConfig()
	cfg.Consumer.Fetch.Default = 10 << 20 // or what else the program has set
	if err := kafka.Check(cfg); err != nil {
		panic(err)
	}
	group, err := sarama.NewConsumerGroup([]string{broker}, "billing", cfg)
	if err != nil {
		panic(err)
	}
	defer group.Close()
	seen := 0
	billing := processor(func(_ context.Context, msg *consumer.Message) error {
		fmt.Println(msg.Position, string(msg.Payload))
		if seen++; seen == 3 {
			cancel()
		}
		return nil
	})
	if err := group.Consume(ctx, []string{"orders"}, handWritten{billing}); err != nil {
		panic(err)
	}
	// Output:
	// orders/0/0 A
	// orders/0/1 B
	// orders/0/2 A
}

func ExampleNewConfig() {
	cfg := kafka.NewConfig()
	cfg.ClientID = "billing"
	cfg.Consumer.Group.InstanceId = "billing-3" // a static member: its restart is no rebalance
	cfg.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategyCooperativeSticky()}
	fmt.Println(cfg.Validate(), cfg.Consumer.Offsets.Initial == sarama.OffsetOldest)
	// Output: <nil> true
}

func ExampleSubscriberConfig_trace() {
	broker, stop := exampleBroker("orders", "one", "two")
	defer stop()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	client, err := sarama.NewClient([]string{broker}, kafka.NewConfig())
	if err != nil {
		panic(err)
	}
	defer client.Close()
	sub, err := kafka.NewSubscriber(kafka.SubscriberConfig{
		Client: client, Group: "billing", Topics: []string{"orders"}, Logger: quiet,
		Processor: processor(func(context.Context, *consumer.Message) error { return nil }),
		Trace: &driver.SourceTrace{
			Assigned: func(_ context.Context, e driver.SourceEvent) {
				fmt.Printf("assigned %s/%d in generation %d\n", e.Source, e.Partition, e.Generation)
			},
			Revoked: func(_ context.Context, e driver.SourceEvent) {
				fmt.Printf("gave up %s/%d\n", e.Source,
					e.Partition)
			},
			Acked: func(_ context.Context, e driver.SourceEvent) {
				if e.Offset == 1 {
					fmt.Printf("%s/%d is done up to %d\n", e.Source, e.Partition, e.Offset)
					cancel()
				}
			},
		},
	})
	if err != nil {
		panic(err)
	}
	if err := sub.Run(ctx); err != nil {
		panic(err)
	}
	// Output:
	// assigned orders/0 in generation 1
	// orders/0 is done up to 1
	// gave up orders/0
}

// exampleBroker is a Kafka in this process with one topic of one partition, which holds these texts.
func exampleBroker(topic string, texts ...string) (address string, stop func()) {
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, topic))
	if err != nil {
		panic(err)
	}
	if err := send(c.ListenAddrs(), topic, text(0, texts...)...); err != nil {
		panic(err)
	}
	return c.ListenAddrs()[0], c.Close
}

// A relay publishes to Kafka what a transaction has left in the outbox. The outbox here is one in memory; in a program
// it is a Store of adapters/pgxstore or adapters/sqlstore.
func ExamplePublisher() {
	broker, stop := exampleBroker("charges")
	defer stop()
	client, err := sarama.NewClient([]string{broker}, kafka.NewConfig())
	if err != nil {
		panic(err)
	}
	defer client.Close()
	events, err := kafka.NewPublisher(kafka.PublisherConfig{Client: client})
	if err != nil {
		panic(err)
	}
	defer events.Close()

	store := outboxtest.NewMemory()
	r, err := relay.New(relay.Config{Queue: store, Publisher: events, Logger: quiet})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	err = store.InTx(ctx, func(tx *outboxtest.Tx) error {
		return store.Enqueue(ctx, tx, outbox.Message{
			ID: "charge-A", Topic: "charges", OrderingKey: "A",
			Payload: []byte("100"),
		})
	})
	if err != nil {
		panic(err)
	}
	fmt.Println(r.RunOnce(ctx)) // a program calls Run
	// Output: 1 <nil>
}
