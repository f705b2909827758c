package awssqs

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/risks"
)

// LambdaConfig says who handles the messages of a LambdaHandler.
type LambdaConfig struct {
	// Processor handles the messages: a consumer.Consumer. As a consumer.BatchProcessor it gets batches, else one message after the
	// other; as a consumer.Starter it is started by each invocation, which a Consumer does once. Required.
	Processor consumer.Processor

	// Client, an *sqs.Client, lets messages come back when the Processor asks for it. It needs sqs:ChangeMessageVisibility and
	// sqs:GetQueueUrl on the queue. Defaults to none: then a message that failed comes back after the queue's visibility timeout,
	// which AWS wants to be six times as long as the function's timeout.
	Client API

	// Margin is how long before the end of an invocation handlers are cancelled, and what is unfinished is reported as failed. Half of
	// it is for them to return. Defaults to 2 seconds.
	Margin time.Duration

	// MaxBatch is how many messages a BatchProcessor gets at once, at the most. Defaults to 100.
	MaxBatch int

	// AcceptedRisks may contain RiskShortWindow. Defaults to nothing.
	AcceptedRisks []Risk

	// Logger gets one line for each invocation in which something failed. Defaults to slog.Default().
	Logger *slog.Logger
}

// maxRetention is how long a queue can keep messages.
const maxRetention = 14 * 24 * time.Hour

// withDefaults returns c complete, or what is wrong with it, all of it at once.
func (c LambdaConfig) withDefaults() (LambdaConfig, error) {
	var wrong []error
	refuse := func(format string, args ...any) {
		wrong = append(wrong, fmt.Errorf("awssqs: LambdaConfig."+format, args...))
	}
	if c.Processor == nil {
		refuse("Processor is required")
	}
	if client, isClient := c.Client.(*sqs.Client); isClient && client == nil {
		refuse("Client is a nil *sqs.Client; leave it out instead")
	}
	if w, ok := c.Processor.(consumer.Windowed); ok && w.Window() < maxRetention && !slices.Contains(c.AcceptedRisks, RiskShortWindow) {
		refuse("Processor forgets keys after %v, and a queue may keep messages for %v: what is delivered again after that would be parked as unprovable, or run again; "+
			"set consumer.Config.Window to that, or accept awssqs.RiskShortWindow (AcceptedRisks) where the queue's MessageRetentionPeriod is shorter", w.Window(), maxRetention)
	}
	if c.Margin < 0 {
		refuse("Margin is %v: want more than 0", c.Margin)
	}
	if c.MaxBatch < 0 {
		refuse("MaxBatch is %d: want 1 or more", c.MaxBatch)
	}
	if err := risks.Check(c.AcceptedRisks, RiskShortWindow); err != nil {
		refuse("%w", err)
	}
	if c.Margin == 0 {
		c.Margin = 2 * time.Second
	}
	if c.MaxBatch == 0 {
		c.MaxBatch = 100
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c, errors.Join(wrong...)
}
