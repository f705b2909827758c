package awssqs

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/txonce/txonce/internal/breaker"
)

// PublisherConfig says how a Publisher speaks to SQS.
type PublisherConfig struct {
	// Client is an *sqs.Client. It may be shared, with a Subscriber too. Its own retries are welcome, within the deadline of a
	// call. Required.
	Client API

	// Concurrency is how many batches, of ten messages at most, are on their way at once. More need a Client whose HTTP client
	// keeps as many idle connections. Defaults to 10.
	Concurrency int

	// Breaker rests the Publisher while SQS is away. Defaults to what the BreakerConfig says.
	Breaker BreakerConfig

	// Allow names what would otherwise be refused: AllowUncheckedMessages. Defaults to nothing.
	Allow []Allowance
}

// BreakerConfig says when a Publisher stops trying, and for how long. While it rests it answers each message with an
// *outbox.UnavailableError that says how long yet, and sends nothing; then one call tries.
type BreakerConfig struct {
	Failures int           // calls in a row of which nothing is confirmed, by the fault of SQS, before the first rest; defaults to 3
	Rest     time.Duration // the first rest; doubled each time the try after it fails too; defaults to 1 second
	MaxRest  time.Duration // the longest; defaults to 30 seconds
}

// AllowUncheckedMessages accepts DisableMessageChecksumValidation: nobody would notice a message that SQS has received otherwise
// than it was sent.
const AllowUncheckedMessages Allowance = "AllowUncheckedMessages"

const defaultConcurrency = 10

// withDefaults returns c complete, or what is wrong with it, all of it at once.
func (c PublisherConfig) withDefaults() (PublisherConfig, error) {
	var wrong []error
	refuse := func(format string, args ...any) {
		wrong = append(wrong, fmt.Errorf("awssqs: PublisherConfig."+format, args...))
	}
	if c.Client == nil {
		refuse("Client is required")
	}
	if client, ok := c.Client.(interface{ Options() sqs.Options }); ok {
		if nilClient, isClient := c.Client.(*sqs.Client); isClient && nilClient == nil {
			refuse("Client is a nil *sqs.Client")
		} else if client.Options().DisableMessageChecksumValidation && !slices.Contains(c.Allow, AllowUncheckedMessages) {
			refuse("Client has DisableMessageChecksumValidation set: a message that SQS has received otherwise than it was sent would count as published; " +
				"leave it false, or allow it with awssqs.AllowUncheckedMessages")
		}
	}
	switch {
	case c.Concurrency < 0:
		refuse("Concurrency is %d: want 1 or more", c.Concurrency)
	case c.Concurrency == 0:
		c.Concurrency = defaultConcurrency
	}
	rests, err := breaker.Config(c.Breaker).WithDefaults()
	if err != nil {
		refuse("Breaker: %w", err)
	}
	c.Breaker = BreakerConfig(rests)
	for _, a := range c.Allow {
		if a != AllowUncheckedMessages {
			refuse("Allow contains %q, which is nothing that could be allowed", a)
		}
	}
	return c, errors.Join(wrong...)
}
