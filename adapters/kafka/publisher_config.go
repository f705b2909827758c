package kafka

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/txonce/txonce/internal/breaker"
)

// PublisherConfig says how a Publisher speaks to the cluster.
type PublisherConfig struct {
	// Client tells where the cluster is and how to speak to it. The Publisher opens connections of its own with the
	// Client's configuration as it is now, so that it can cut them; the Client itself is left alone and may be shared, with
	// a Subscriber too. Its settings must be safe: NewConfig makes such. Required.
	Client sarama.Client

	// Breaker rests the Publisher while the brokers are away. Defaults to what the BreakerConfig says.
	Breaker BreakerConfig

	// Allow names what would otherwise be refused: AllowAutoTopicCreation. Defaults to nothing.
	Allow []Allowance

	// Logger gets one line for each topic that confirms messages which only one broker has. Defaults to slog.Default().
	Logger *slog.Logger
}

// BreakerConfig says when a Publisher stops trying, and for how long. While it rests it answers each message with an
// *outbox.UnavailableError that says how long yet, and touches no broker; then one call tries.
type BreakerConfig struct {
	Failures int           // calls in a row of which nothing is confirmed, by the brokers' fault, before the first rest; defaults to 3
	Rest     time.Duration // the first rest; doubled each time the try after it fails too; defaults to 1 second
	MaxRest  time.Duration // the longest; defaults to 30 seconds
}

// AllowAutoTopicCreation accepts Metadata.AllowAutoTopicCreation: the cluster may create a topic of one partition because a
// message was sent to a misspelled name.
const AllowAutoTopicCreation Allowance = "AllowAutoTopicCreation"

// withDefaults returns c complete, or what is wrong with it, all of it at once.
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
		wrong = append(wrong, publisherRefusals(c.Client.Config(), c.Allow)...)
	}
	rests, err := breaker.Config(c.Breaker).WithDefaults()
	if err != nil {
		refuse("Breaker: %w", err)
	}
	c.Breaker = BreakerConfig(rests)
	for _, a := range c.Allow {
		if a != AllowAutoTopicCreation {
			refuse("Allow contains %q, which is nothing that could be allowed", a)
		}
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c, errors.Join(wrong...)
}

// publisherRefusals lists the settings of cfg under which messages could be lost, overtake each other, or never get an answer.
func publisherRefusals(cfg *sarama.Config, allow []Allowance) (wrong []error) {
	flush, most := cfg.Producer.Flush, int(sarama.MaxRequestSize)-requestOverhead
	for _, rule := range []struct {
		broken  bool
		setting string
		why     string
		fix     string
	}{
		{
			cfg.Producer.RequiredAcks != sarama.WaitForAll, "Producer.RequiredAcks is not WaitForAll",
			"a message that only its partition's leader has is lost with it, and was reported as confirmed",
			"set it to sarama.WaitForAll",
		},
		{
			!cfg.Producer.Idempotent, "Producer.Idempotent is false",
			"when an answer is lost, sarama itself would repeat messages, behind later ones of their key",
			"set it to true",
		},
		{
			cfg.Net.MaxOpenRequests != 1, fmt.Sprintf("Net.MaxOpenRequests is %d", cfg.Net.MaxOpenRequests),
			"a request that is sent again would come behind the next one",
			"set it to 1",
		},
		{
			!cfg.Producer.Return.Successes, "Producer.Return.Successes is false",
			"sarama would not tell what the broker confirmed",
			"set it to true",
		},
		{
			!cfg.Producer.Return.Errors, "Producer.Return.Errors is false",
			"sarama would not tell what failed",
			"set it to true",
		},
		{
			cfg.Producer.Retry.Max <= 0, "Producer.Retry.Max is 0",
			"each change of a partition's leader would fail what is on its way, and repeat it",
			"set it to 1 or more",
		},
		{
			cfg.Producer.Transaction.ID != "", "Producer.Transaction.ID is set",
			"the Publisher answers for each message, and a transaction has one fate; two relays with one ID would fence each other, and one that dies hold up all readers",
			"set it to \"\"",
		},
		{
			len(cfg.Producer.Interceptors) > 0, "Producer.Interceptors is set",
			"they could change a message's key after its place in the order was chosen, and run again on each of sarama's retries",
			"set it to nil; headers are made by the relay's HeaderFormat",
		},
		{
			cfg.Producer.Timeout >= cfg.Net.ReadTimeout, fmt.Sprintf("Producer.Timeout (%v) is not less than Net.ReadTimeout (%v)", cfg.Producer.Timeout, cfg.Net.ReadTimeout),
			"the connection would be given up while the leader still waits for replicas, and everything on it be sent again",
			"lower Producer.Timeout",
		},
		{
			(flush.Messages > 0 || flush.Bytes > 0) && flush.Frequency == 0, "Producer.Flush.Messages or Bytes is set, but not Frequency",
			"what does not fill a batch would never be sent",
			"set Producer.Flush.Frequency, a few milliseconds, or neither: a batch is then what has gathered during the one before",
		},
		{
			flush.Frequency > maxLinger, fmt.Sprintf("Producer.Flush.Frequency is %v", flush.Frequency),
			"messages would wait for others in each call, and the relay for them",
			"set it to " + maxLinger.String() + " or less",
		},
		{
			cfg.Producer.MaxMessageBytes > most, fmt.Sprintf("Producer.MaxMessageBytes is %d", cfg.Producer.MaxMessageBytes),
			"a request with such a message would exceed sarama.MaxRequestSize, and fail with all that it carries",
			fmt.Sprintf("set it to %d or less", most),
		},
		{
			!cfg.Version.IsAtLeast(sarama.V0_11_0_0), "Version is " + cfg.Version.String(),
			"it knows neither headers nor idempotence",
			"set it to " + minVersion.String() + " or later",
		},
		{
			cfg.Metadata.AllowAutoTopicCreation && !slices.Contains(allow, AllowAutoTopicCreation), "Metadata.AllowAutoTopicCreation is true",
			"a misspelled topic would come to be, with one partition, and nobody would read it",
			"set it to false, or allow it with kafka.AllowAutoTopicCreation",
		},
	} {
		if rule.broken {
			wrong = append(wrong, fmt.Errorf("kafka: the Client's %s: %s; %s (kafka.NewConfig is right)", rule.setting, rule.why, rule.fix))
		}
	}
	if err := byKey(cfg.Producer.Partitioner); err != nil {
		wrong = append(wrong, fmt.Errorf("kafka: the Client's Producer.Partitioner %w, and messages of one key could overtake each other; "+
			"use sarama.NewHashPartitioner or another that looks at nothing but the key (kafka.NewConfig is right)", err))
	}
	return wrong
}

const (
	requestOverhead = 64 << 10 // of sarama's, and of the request around a batch
	maxLinger       = time.Second
)
