package awslambda

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/txonce/txonce/adapters/awssqs"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/internal/risks"
	"github.com/txonce/txonce/internal/usercode"
)

// Client has the operations of SQS that a Handler calls. *sqs.Client implements it.
type Client interface {
	GetQueueUrl(context.Context, *sqs.GetQueueUrlInput, ...func(*sqs.Options)) (*sqs.GetQueueUrlOutput, error)
	ChangeMessageVisibilityBatch(context.Context, *sqs.ChangeMessageVisibilityBatchInput,
		...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityBatchOutput, error)
}

// Config configures a Handler.
type Config struct {
	// Processor handles the messages: a consumer.Consumer. A driver.BatchProcessor gets batches, others get one message
	// at a time. Each invocation calls Start of a driver.Starter; a Consumer starts once. Required.
	Processor consumer.Processor

	// Client, an *sqs.Client, makes failed messages come back after the delay that the Processor asks for. It needs
	// sqs:ChangeMessageVisibility and sqs:GetQueueUrl on the queue.
	//
	// Defaults to none: a failed message comes back after the queue's visibility timeout. AWS wants that to be six
	// times the function's timeout.
	Client Client

	// Margin is how long before the invocation's deadline handlers are cancelled. They have half of it to return; then
	// unfinished messages are reported as failed.
	//
	// Defaults to 2 seconds.
	Margin time.Duration

	// MaxBatch is the maximum number of messages that a BatchProcessor gets at once.
	//
	// Defaults to 100.
	MaxBatch int

	// AcceptedRisks may contain awssqs.RiskShortWindow.
	//
	// Defaults to none.
	AcceptedRisks []awssqs.Risk

	// Logger gets one line for each invocation with failed messages.
	//
	// Defaults to slog.Default().
	Logger *slog.Logger
}

// maxRetention is the longest retention period that SQS allows for a queue.
const maxRetention = 14 * 24 * time.Hour

// withDefaults returns c with its defaults, or one error that names all fields at fault.
func (c Config) withDefaults() (Config, error) {
	var wrong []error
	refuse := func(format string, args ...any) {
		wrong = append(wrong, fmt.Errorf("awslambda: Config."+format, args...))
	}
	if c.Processor == nil {
		refuse("Processor is required")
	}
	if client, isClient := c.Client.(*sqs.Client); isClient && client == nil {
		refuse("Client is a nil *sqs.Client; leave it out instead")
	}
	if w, ok := c.Processor.(driver.Windowed); ok && w.Window() < maxRetention && !slices.Contains(c.AcceptedRisks,
		awssqs.RiskShortWindow) {
		refuse("Processor forgets keys after %v, and a queue may keep messages for %v: a message that is delivered again after its key was forgotten would be parked as unprovable, or run again; "+
			"set consumer.Config.Window to that, or accept awssqs.RiskShortWindow (AcceptedRisks) where the queue's MessageRetentionPeriod is shorter", w.Window(), maxRetention)
	}
	if c.Margin < 0 {
		refuse("Margin is %v: want more than 0", c.Margin)
	}
	if c.MaxBatch < 0 {
		refuse("MaxBatch is %d: want 1 or more", c.MaxBatch)
	}
	if err := risks.Check(c.AcceptedRisks, awssqs.RiskShortWindow); err != nil {
		refuse("%w", err)
	}
	c.Margin = cmp.Or(c.Margin, 2*time.Second)
	c.MaxBatch = cmp.Or(c.MaxBatch, 100)
	c.Logger = usercode.Logger(c.Logger)
	return c, errors.Join(wrong...)
}
