package kafka

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/IBM/sarama"

	"github.com/txonce/txonce/internal/risks"
	"github.com/txonce/txonce/internal/usercode"
)

// PublisherConfig configures a Publisher.
type PublisherConfig struct {
	// Client has the addresses of the brokers and the settings of connections. The Publisher opens connections of its
	// own with a copy of the Client's configuration, so that it can cut them. The Client may be shared, with a
	// Subscriber too. Its settings must be safe, as those of NewConfig are. Required.
	Client sarama.Client

	// AcceptedRisks may contain RiskAutoTopicCreation. Defaults to nothing.
	AcceptedRisks []Risk

	// Logger gets one line for each topic whose messages are confirmed when only one broker has them. Defaults to
	// slog.Default().
	Logger *slog.Logger
}

// RiskAutoTopicCreation accepts Metadata.AllowAutoTopicCreation: if a message's topic is misspelled, the cluster may
// create a topic with the wrong name and one partition.
const RiskAutoTopicCreation Risk = "RiskAutoTopicCreation"

// withDefaults returns c with its defaults, or an error that names every wrong field.
func (c PublisherConfig) withDefaults() (PublisherConfig, error) {
	var wrong []error
	refuse := func(format string, args ...any) {
		wrong = append(wrong, fmt.Errorf("kafka: PublisherConfig."+format, args...))
	}
	switch {
	case c.Client == nil:
		refuse("Client is required")
	case c.Client.Closed():
		refuse("Client is closed")
	case len(c.Client.Brokers()) == 0:
		refuse("Client knows no broker: its Metadata.Full must be true")
	}
	if c.Client != nil {
		cfg := c.Client.Config()
		wrong = append(wrong, refusals(publisherRules(cfg), c.AcceptedRisks)...)
		if err := byKey(cfg.Producer.Partitioner); err != nil {
			wrong = append(wrong, fmt.Errorf("kafka: the sarama.Config's Producer.Partitioner %w, and messages of one key could overtake each other; "+
				"use sarama.NewHashPartitioner (kafka.NewConfig does) or another that uses only the key", err))
		}
	}
	if err := risks.Check(c.AcceptedRisks, RiskAutoTopicCreation); err != nil {
		refuse("%w", err)
	}
	c.Logger = usercode.Logger(c.Logger)
	return c, errors.Join(wrong...)
}

// publisherRules are the rules against settings that allow messages to be lost, to overtake each other, or to get no
// answer.
func publisherRules(cfg *sarama.Config) []rule {
	flush, most := cfg.Producer.Flush, int(sarama.MaxRequestSize)-requestOverhead
	return []rule{
		{
			cfg.Producer.RequiredAcks != sarama.WaitForAll, "Producer.RequiredAcks is not WaitForAll",
			"a message that only the leader of its partition has is reported as confirmed, and is lost if that broker dies",
			"set it to sarama.WaitForAll", "",
		},
		{
			!cfg.Producer.Idempotent, "Producer.Idempotent is false",
			"when an answer is lost, sarama would repeat messages, behind later messages of their key",
			"set it to true", "",
		},
		{
			cfg.Net.MaxOpenRequests != 1, fmt.Sprintf("Net.MaxOpenRequests is %d", cfg.Net.MaxOpenRequests),
			"a request that is sent again would arrive after the next one",
			"set it to 1", "",
		},
		{
			!cfg.Producer.Return.Successes, "Producer.Return.Successes is false",
			"sarama would not report confirmed messages",
			"set it to true", "",
		},
		{
			!cfg.Producer.Return.Errors, "Producer.Return.Errors is false",
			"sarama would not report failed messages",
			"set it to true", "",
		},
		{
			cfg.Producer.Retry.Max <= 0, "Producer.Retry.Max is 0",
			"each change of a partition's leader would fail the messages that are being sent, and repeat them",
			"set it to 1 or more", "",
		},
		{
			cfg.Producer.Transaction.ID != "", "Producer.Transaction.ID is set",
			"the Publisher answers for each message, and a transaction commits all or none; two relays with one ID would fence each other, and a relay that dies would hold up all readers",
			"set it to \"\"", "",
		},
		{
			len(cfg.Producer.Interceptors) > 0, "Producer.Interceptors is set",
			"they could change the key of a message after its order was fixed, and run again on each of sarama's retries",
			"set it to nil; headers are made by the relay's HeaderFormat", "",
		},
		{
			cfg.Producer.Timeout >= cfg.Net.ReadTimeout,
			fmt.Sprintf("Producer.Timeout (%v) is not less than Net.ReadTimeout (%v)", cfg.Producer.Timeout,
				cfg.Net.ReadTimeout),
			"the connection would be closed while the leader still waits for replicas, and all its messages would be sent again",
			"lower Producer.Timeout", "",
		},
		{
			(flush.Messages > 0 || flush.Bytes > 0) && flush.Frequency == 0,
			"Producer.Flush.Messages or Bytes is set, but not Frequency",
			"messages that do not fill a batch would never be sent",
			"set Producer.Flush.Frequency to a few milliseconds, or set none of them: a batch then has the messages that came while the one before was sent", "",
		},
		{
			flush.Frequency > maxLinger, fmt.Sprintf("Producer.Flush.Frequency is %v", flush.Frequency),
			"each call would wait that long for more messages, and the relay for the call",
			"set it to " + maxLinger.String() + " or less", "",
		},
		{
			cfg.Producer.MaxMessageBytes > most, fmt.Sprintf("Producer.MaxMessageBytes is %d",
				cfg.Producer.MaxMessageBytes),
			"a request with such a message would exceed sarama.MaxRequestSize, and fail with all its messages",
			fmt.Sprintf("set it to %d or less", most), "",
		},
		{
			!cfg.Version.IsAtLeast(sarama.V0_11_0_0), "Version is " + cfg.Version.String(),
			"it has neither headers nor idempotence",
			"set it to " + minVersion.String() + " or later", "",
		},
		{
			cfg.Metadata.AllowAutoTopicCreation, "Metadata.AllowAutoTopicCreation is true",
			"when a topic's name is misspelled, the cluster would create that topic with one partition, and no consumer would read it",
			"set it to false", RiskAutoTopicCreation,
		},
	}
}

const (
	requestOverhead = 64 << 10 // added by sarama, and by the request around a batch
	maxLinger       = time.Second
)
