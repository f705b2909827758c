package watermilltx

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/txonce/txonce/internal/breaker"
	"github.com/txonce/txonce/outbox"
)

// DefaultConcurrency is how many messages a Publisher publishes at once.
const DefaultConcurrency = 16

// PublisherConfig of a Publisher.
type PublisherConfig struct {
	// Publisher sends the messages. "Confirmed" is what it means by returning nil: see the package's documentation for the
	// settings that watermill's publishers need. It stays the caller's to close. Required.
	Publisher message.Publisher

	// Concurrency is how many messages are published at once, each in a call of its own, because a call of watermill's
	// answers only for all of its messages. Defaults to DefaultConcurrency.
	Concurrency int

	// UUID makes a message's UUID. It must be the same on every publication. Defaults to its ID where that has at most 36
	// bytes, the room that watermill-sql has, and else to a UUID derived from it.
	UUID func(outbox.Message) string

	// Classify says whose fault an error of Publisher is: it may wrap it in outbox.Permanent, an *outbox.UnavailableError
	// or an *outbox.TopicError,
	// or return it as it is. Defaults to Classify.
	Classify func(topic string, err error) error

	// Breaker says when to rest. Defaults to its zero value's defaults.
	Breaker Breaker

	// Allow names what would otherwise be refused. Defaults to nothing.
	Allow []Allowance
}

// Breaker says when a Publisher whose broker is away rests, and for how long. The zero value of a field is its default.
type Breaker struct {
	Failures int           // calls in a row that fail before the first rest; defaults to 3
	Rest     time.Duration // the first rest, doubled each time that the call after it fails as well; defaults to 1 s
	MaxRest  time.Duration // the longest; defaults to 30 s
}

// Allowance names something that is refused because it can lose messages, for who wants it nevertheless.
type Allowance string

// What may be allowed.
const (
	// AllowInMemory accepts a gochannel.GoChannel: what it "publishes" is gone when the process ends.
	AllowInMemory Allowance = "AllowInMemory"

	// AllowUnconfirmed accepts settings with which a publisher returns nil before its broker has the message for good.
	AllowUnconfirmed Allowance = "AllowUnconfirmed"
)

func (cfg PublisherConfig) withDefaults() (PublisherConfig, error) {
	switch {
	case cfg.Publisher == nil:
		return cfg, errors.New("watermilltx: PublisherConfig.Publisher is required")
	case cfg.Concurrency < 0:
		return cfg, fmt.Errorf("watermilltx: PublisherConfig.Concurrency is %d: want 1 or more", cfg.Concurrency)
	}
	for _, a := range cfg.Allow {
		if a != AllowInMemory && a != AllowUnconfirmed {
			return cfg, fmt.Errorf("watermilltx: PublisherConfig.Allow names %q, which is nothing that is refused", a)
		}
	}
	if err := refuseUnsafe(cfg.Publisher, cfg.Allow); err != nil {
		return cfg, err
	}
	rests, err := breaker.Config(cfg.Breaker).WithDefaults()
	if err != nil {
		return cfg, fmt.Errorf("watermilltx: PublisherConfig.Breaker: %w", err)
	}
	cfg.Breaker = Breaker(rests)
	if cfg.Concurrency == 0 {
		cfg.Concurrency = DefaultConcurrency
	}
	if cfg.UUID == nil {
		cfg.UUID = uuidOf
	}
	if cfg.Classify == nil {
		cfg.Classify = Classify
	}
	return cfg, nil
}

// uuidLength is what watermill-sql's column holds.
const uuidLength = 36

func uuidOf(m outbox.Message) string {
	if len(m.ID) <= uuidLength {
		return m.ID
	}
	sum := sha256.Sum256([]byte(m.ID))
	sum[6] = sum[6]&0x0f | 0x80
	sum[8] = sum[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", sum[0:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}
