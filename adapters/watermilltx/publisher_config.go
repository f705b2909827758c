package watermilltx

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/txonce/txonce/internal/publishing"
	"github.com/txonce/txonce/internal/risks"
	"github.com/txonce/txonce/outbox"
)

// DefaultConcurrency is how many messages a Publisher publishes at once.
const DefaultConcurrency = 16

// PublisherConfig configures a Publisher.
type PublisherConfig struct {
	// Publisher sends the messages. The caller closes it. Required.
	Publisher message.Publisher

	// Confirms states that Publisher.Publish returns nil only after the broker has confirmed the message. txonce cannot
	// find that out: see the package's documentation for the settings that watermill's publishers need. Required,
	// unless AcceptedRisks contains RiskUnconfirmed.
	Confirms bool

	// Concurrency is how many messages are published at once, each with a call of its own, because watermill's Publish
	// has one answer for all of its messages.
	//
	// Defaults to DefaultConcurrency.
	Concurrency int

	// UUID makes a message's UUID. It must return the same UUID whenever the message is published.
	//
	// Defaults to a UUID that is derived from the message's ID, its sequence number and the time when it was enqueued:
	// brokers such as JetStream drop a message whose UUID they know, and two messages of an outbox may have the same
	// ID. The ID is in the metadata outbox.HeaderID. If your broker does not look at UUIDs, a function that returns the
	// ID is as good; watermill-sql has room for 36 bytes.
	UUID func(outbox.Message) string

	// Classify says whose fault an error of Publisher is: it may wrap it in outbox.Permanent, an
	// *outbox.UnavailableError or an *outbox.TopicError, or return it as it is.
	//
	// Defaults to Classify.
	Classify func(topic string, err error) error

	// AcceptedRisks lists the settings that are used although they can lose messages. Defaults to none.
	AcceptedRisks []Risk
}

// Risk names a setting that is refused because it can lose messages, unless AcceptedRisks contains it.
type Risk = risks.Risk

// Risks of a Publisher.
const (
	// RiskInMemory accepts a gochannel.GoChannel: the messages that it "publishes" are gone when the process ends.
	RiskInMemory Risk = "RiskInMemory"

	// RiskUnconfirmed accepts a publisher that returns nil before its broker has stored the message.
	RiskUnconfirmed Risk = "RiskUnconfirmed"
)

func (cfg PublisherConfig) withDefaults() (PublisherConfig, error) {
	_, inMemory := cfg.Publisher.(*gochannel.GoChannel)
	accepted := func(r Risk) bool { return slices.Contains(cfg.AcceptedRisks, r) }
	if err := risks.Check(cfg.AcceptedRisks, RiskInMemory, RiskUnconfirmed); err != nil {
		return cfg, fmt.Errorf("watermilltx: PublisherConfig.%w", err)
	}
	switch {
	case cfg.Publisher == nil:
		return cfg, errors.New("watermilltx: PublisherConfig.Publisher is required")
	case cfg.Concurrency < 0:
		return cfg, fmt.Errorf("watermilltx: PublisherConfig.Concurrency is %d: want 1 or more", cfg.Concurrency)
	case inMemory && !accepted(RiskInMemory):
		return cfg, errors.New("watermilltx: PublisherConfig.Publisher is a gochannel.GoChannel, whose messages are gone when the process ends; " +
			"use a broker, or accept watermilltx.RiskInMemory (AcceptedRisks)")
	case !inMemory && !cfg.Confirms && !accepted(RiskUnconfirmed):
		return cfg, fmt.Errorf("watermilltx: PublisherConfig.Confirms is false: set it to true if Publish of your %T returns nil only after the broker has confirmed the "+
			"message. Check for watermill-amqp that Publish.ConfirmDelivery is true, and for watermill-kafka that OverwriteSaramaConfig has "+
			"Producer.RequiredAcks = WaitForAll and Producer.Idempotent = true; or accept watermilltx.RiskUnconfirmed (AcceptedRisks)", cfg.Publisher)
	}
	cfg.Concurrency = cmp.Or(cfg.Concurrency, DefaultConcurrency)
	if cfg.UUID == nil {
		cfg.UUID = uuidOf
	}
	if cfg.Classify == nil {
		cfg.Classify = Classify
	}
	return cfg, nil
}

func uuidOf(m outbox.Message) string {
	sum := sha256.Sum256([]byte(publishing.Once(&m)))
	sum[6] = sum[6]&0x0f | 0x80
	sum[8] = sum[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", sum[0:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}
