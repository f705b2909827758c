package kafka

import (
	"log/slog"
	"time"

	"github.com/IBM/sarama"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/internal/risks"
)

// SubscriberConfig configures a Subscriber.
type SubscriberConfig struct {
	// Client has the cluster's addresses and configuration. Run opens connections of its own with them, because a group
	// that waits for a rebalance blocks its connection. So the Client may be shared. Required.
	Client sarama.Client

	// Group is the consumer group. Subscribers of one Group share the partitions of its topics. Required.
	Group string

	// Topics to receive; they must exist. Required.
	Topics []string

	// Processor handles the messages: a consumer.Consumer. A driver.BatchProcessor gets batches, a driver.Starter is
	// started by Run, and the window of a driver.Windowed is compared with the topics' retention. Required.
	Processor consumer.Processor

	// MaxBatch is the maximum number of a partition's messages that a BatchProcessor gets at once. A batch should be
	// done well within Grace. consumer.Config.MaxPerTransaction limits how many of them share a transaction.
	//
	// Defaults to 500.
	MaxBatch int

	// MaxBatchBytes is the maximum sum of the bytes of keys, values and headers in a batch, unless its first message
	// alone is larger.
	//
	// Defaults to 4 MiB.
	MaxBatchBytes int

	// Concurrency is how many batches of a partition are handled in parallel, or single messages when the Processor is
	// no BatchProcessor. Waiting messages are shared among them. Messages of one key are still handled one after the
	// other, in order; messages without a key have no order. All messages below the committed offset are finished, so
	// behind one slow message more messages are delivered again after a crash. Each batch needs a connection to the
	// database.
	//
	// Defaults to 1.
	Concurrency int

	// MaxUnfinished is the maximum number of a partition's messages in memory: those being handled, those waiting, and
	// those to be retried. Their bytes are limited to twice MaxBatchBytes. When either limit is reached, no more
	// messages are fetched; those already fetched, up to about Consumer.Fetch.Default bytes, come in addition.
	//
	// Defaults to twice MaxBatch, at least Concurrency. It must not be less than MaxBatch or Concurrency.
	MaxUnfinished int

	// Grace is how long handlers may go on after Run's context ended, before their own contexts are cancelled. When a
	// partition is revoked it is at most three quarters of Consumer.Group.Rebalance.Timeout, because after that time
	// the group goes on without this member.
	//
	// Defaults to 30 seconds.
	Grace time.Duration

	// AcceptedRisks lists the settings that are used although they can lose messages or effects. Defaults to nothing.
	AcceptedRisks []Risk

	// Trace has hooks.
	//
	// Defaults to none.
	Trace *driver.SourceTrace

	// Logger gets one line for each event that an operator should know.
	//
	// Defaults to slog.Default().
	Logger *slog.Logger
}

// Risk names a setting that is refused because it can lose messages or effects, unless AcceptedRisks contains it.
type Risk = risks.Risk

// Risks of a Subscriber.
const (
	// RiskShortWindow accepts, with a warning, a Processor that forgets keys sooner than a topic deletes messages. A
	// message that is read again after its key was forgotten, for example because offsets were reset, is parked as
	// unprovable.
	RiskShortWindow Risk = "RiskShortWindow"

	// RiskCompaction accepts, with a warning, a topic whose cleanup.policy contains compact: when a key gets another
	// message, its older messages are deleted, and those that were not handled yet are never handled.
	RiskCompaction Risk = "RiskCompaction"

	// RiskOffsetNewest accepts Consumer.Offsets.Initial = OffsetNewest: a partition without a committed offset starts
	// at its end. Messages that were sent before that are not handled. The same applies to partitions that are added
	// later.
	RiskOffsetNewest Risk = "RiskOffsetNewest"

	// RiskResetInvalidOffsets accepts Consumer.Group.ResetInvalidOffsets: messages that were deleted before the group
	// handled them are passed over silently.
	RiskResetInvalidOffsets Risk = "RiskResetInvalidOffsets"

	// RiskReadUncommitted accepts Consumer.IsolationLevel = ReadUncommitted: messages of aborted Kafka transactions are
	// handled.
	RiskReadUncommitted Risk = "RiskReadUncommitted"

	// RiskFetchMax accepts a Consumer.Fetch.Max: sarama skips a message that is larger.
	RiskFetchMax Risk = "RiskFetchMax"
)

// NewConfig returns sarama's defaults, changed so that a Subscriber and a Publisher accept them: a new group starts at
// the oldest message, an offset gap is an error, and messages of aborted transactions are not delivered; a sent message
// is confirmed when all in-sync replicas have it, sarama's own retries neither repeat nor reorder messages, and a
// misspelled name does not create a topic. Set the other fields as you like, above all ClientID.
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
