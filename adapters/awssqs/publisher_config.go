package awssqs

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/txonce/txonce/internal/risks"
)

// PublisherConfig configures a Publisher.
type PublisherConfig struct {
	// Client is an *sqs.Client. It may be shared, with a Subscriber too. It may retry, within the deadline of a call.
	// Required.
	Client API

	// Concurrency is how many requests run at once, each with a batch of at most ten messages. A higher number needs a
	// Client whose HTTP client keeps as many idle connections.
	//
	// Defaults to 10.
	Concurrency int

	// AcceptedRisks may contain RiskUncheckedMessages. Defaults to nothing.
	AcceptedRisks []Risk
}

// RiskUncheckedMessages accepts DisableMessageChecksumValidation: a message that was damaged on the way to SQS counts
// as published.
const RiskUncheckedMessages Risk = "RiskUncheckedMessages"

// withDefaults returns c with its defaults, or an error that names every wrong field.
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
		} else if client.Options().DisableMessageChecksumValidation && !slices.Contains(c.AcceptedRisks,
			RiskUncheckedMessages) {
			refuse("Client has DisableMessageChecksumValidation set: a message that was damaged on the way to SQS would count as published; " +
				"leave it false, or accept awssqs.RiskUncheckedMessages (AcceptedRisks)")
		}
	}
	if c.Concurrency < 0 {
		refuse("Concurrency is %d: want 1 or more", c.Concurrency)
	}
	c.Concurrency = cmp.Or(c.Concurrency, 10)
	if err := risks.Check(c.AcceptedRisks, RiskUncheckedMessages); err != nil {
		refuse("%w", err)
	}
	return c, errors.Join(wrong...)
}
