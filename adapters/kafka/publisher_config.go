package kafka

import (
	"errors"
	"fmt"

	"github.com/IBM/sarama"
)

// PublisherConfig says how a Publisher speaks to the cluster.
type PublisherConfig struct {
	// Client tells where the cluster is and how to speak to it. The Publisher opens connections of its own with the
	// Client's configuration as it is at construction, so that it can cut them; the Client itself is left alone and may be shared,
	// with a Subscriber too. Its settings must be safe: NewConfig makes such. Required.
	Client sarama.Client
}

// check reports what is wrong with c, all of it at once.
func (c PublisherConfig) check() error {
	var wrong []error
	switch {
	case c.Client == nil:
		wrong = append(wrong, errors.New("kafka: PublisherConfig.Client is required"))
	case c.Client.Closed():
		wrong = append(wrong, errors.New("kafka: PublisherConfig.Client is closed"))
	default:
		wrong = append(wrong, publisherRefusals(c.Client.Config())...)
	}
	return errors.Join(wrong...)
}

// publisherRefusals lists the settings of cfg under which messages could be lost, or overtake each other.
func publisherRefusals(cfg *sarama.Config) (wrong []error) {
	for _, rule := range []struct {
		broken  bool
		setting string
		why     string
		fix     string
	}{
		{
			cfg.Producer.RequiredAcks != sarama.WaitForAll, "Producer.RequiredAcks is not WaitForAll",
			"what only the leader has confirmed is lost with it",
			"set it to sarama.WaitForAll",
		},
		{
			!cfg.Producer.Idempotent, "Producer.Idempotent is false",
			"sarama's own retries would repeat messages",
			"set it to true",
		},
	} {
		if rule.broken {
			wrong = append(wrong, fmt.Errorf("kafka: the Client's %s: %s; %s (kafka.NewConfig does)", rule.setting, rule.why, rule.fix))
		}
	}
	return wrong
}
