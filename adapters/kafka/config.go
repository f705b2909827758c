package kafka

import (
	"log/slog"
	"time"

	"github.com/IBM/sarama"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/risks"
)

// SubscriberConfig says what a Subscriber receives and who handles it.
type SubscriberConfig struct {
	// Client tells where the cluster is and how to speak to it. Run opens connections of its own with the Client's
	// configuration, because a group that waits for a rebalance blocks the connection it waits on; the Client itself is
	// left alone and may be shared. Required.
	Client sarama.Client

	// Group is the consumer group. Subscribers of one Group share the partitions of its topics. Required.
	Group string

	// Topics to receive; they must exist. Required.
	Topics []string

	// Processor handles the messages: a consumer.Consumer. As a consumer.BatchProcessor it gets batches, as a
	// consumer.Starter it is started by Run, as a consumer.Windowed it is compared with the topics' retention. Required.
	Processor consumer.Processor

	// MaxBatch is how many messages of a partition a BatchProcessor gets at once, at the most. A batch should be done
	// well within Grace. Defaults to 500.
	MaxBatch int

	// MaxBatchBytes is how many bytes of keys, values and headers a batch holds, unless its first message alone is
	// larger. Defaults to 4 MiB.
	MaxBatchBytes int

	// Concurrency is how many messages of a partition are handled side by side, or batches of them where the Processor is a
	// BatchProcessor; what waits is shared among them. Messages of one key are handled one after the other, in order, as
	// ever; keyless ones are free. A committed offset still says that everything below it is finished, so one slow message
	// leaves more to be delivered again after a crash. Each batch takes a connection to the database. Defaults to 1.
	Concurrency int

	// MaxUnfinished is how many messages of a partition are held in memory: those being handled, those waiting, and
	// those to be retried. Twice MaxBatchBytes are a limit as well. When either is reached no more are fetched; what
	// was fetched already, up to about Consumer.Fetch.Default bytes, comes on top. Defaults to twice MaxBatch, and
	// no less than Concurrency.
	MaxUnfinished int

	// Grace is how long a running handler may take when Run's context has ended, before its own context is cancelled.
	// When a partition is taken away it is at most three quarters of Consumer.Group.Rebalance.Timeout, after which the
	// group goes on without this member. Defaults to 30 seconds.
	Grace time.Duration

	// AcceptedRisks lists the settings that are used although they can lose messages or effects. Defaults to nothing.
	AcceptedRisks []Risk

	// Trace is told what happens. Defaults to nobody.
	Trace *Trace

	// Logger gets one line for whatever a person should know. Defaults to slog.Default().
	Logger *slog.Logger
}

// Risk names a setting that is refused because it can lose messages or effects, unless AcceptedRisks contains it.
type Risk = risks.Risk

// Risks of a Subscriber.
const (
	// RiskShortWindow accepts a Processor that forgets keys sooner than a topic forgets messages, with a warning. A
	// message read again after that, as when offsets are reset, is parked as unprovable.
	RiskShortWindow Risk = "RiskShortWindow"

	// RiskOffsetNewest accepts Consumer.Offsets.Initial = OffsetNewest: a partition without a committed offset starts
	// at its end. Messages sent before the group first looked are not handled, also on partitions added later.
	RiskOffsetNewest Risk = "RiskOffsetNewest"

	// RiskResetInvalidOffsets accepts Consumer.Group.ResetInvalidOffsets: messages that were deleted before the group
	// handled them are passed over without a word.
	RiskResetInvalidOffsets Risk = "RiskResetInvalidOffsets"

	// RiskReadUncommitted accepts Consumer.IsolationLevel = ReadUncommitted: messages of Kafka transactions that are
	// aborted have effects.
	RiskReadUncommitted Risk = "RiskReadUncommitted"

	// RiskFetchMax accepts Consumer.Fetch.Max: sarama skips a message for which it does not suffice.
	RiskFetchMax Risk = "RiskFetchMax"
)

// Trace is told what becomes of a Subscriber's partitions. Nil hooks are left out. Hooks run on the partitions'
// goroutines, several at a time: they must be quick and safe for concurrent use.
type Trace struct {
	Assigned func(Assignment)                                   // before its first message is delivered
	Revoked  func(Assignment)                                   // nothing more of it is delivered or marked
	Marked   func(topic string, partition int32, message int64) // everything up to this offset is done; committed soon
}

// Assignment is a partition that the group gave to a Subscriber.
type Assignment struct {
	Topic      string
	Partition  int32
	Generation int32  // of the group; each rebalance is a new one
	Member     string // the Subscriber, as the group calls it
}

// NewConfig returns sarama's defaults, changed so that a Subscriber and a Publisher accept them: a new group starts at
// the oldest message, a gap is an error, and aborted transactions are not seen; what is sent counts when all replicas have it,
// sarama's own retries repeat and overtake nothing, and no topic comes to be because its name was misspelled. Set the rest as
// you like, above all ClientID.
func NewConfig() *sarama.Config {
	cfg := sarama.NewConfig()
	cfg.Metadata.AllowAutoTopicCreation = false
	cfg.Consumer.Offsets.Initial = sarama.OffsetOldest
	cfg.Consumer.Group.ResetInvalidOffsets = false
	cfg.Consumer.IsolationLevel = sarama.ReadCommitted
	cfg.Producer.RequiredAcks = sarama.WaitForAll
	cfg.Producer.Idempotent = true
	cfg.Net.MaxOpenRequests = 1 // as Idempotent demands
	cfg.Producer.Return.Successes, cfg.Producer.Return.Errors = true, true
	return cfg
}
