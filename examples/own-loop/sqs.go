// Package ownloop shows how a loop that receives messages by itself hands them to a consumer. docs/getting-started.md shows this code.
// A new program uses the Subscribers of package awssqs and rabbitmq instead: they also extend visibility timeouts, delay retries
// and reconnect.
package ownloop

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/txonce/txonce/adapters/awssqs"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/driver"
)

// receiveSQS handles messages until ctx ends or SQS answers with an error. name is the queue's name, which is a part of the position
// that dead letters show.
func receiveSQS(ctx context.Context, client *sqs.Client, name, queueURL string, orders driver.BatchProcessor) error {
	const visible = 60 // seconds for which SQS hides what it delivered
	for ctx.Err() == nil {
		got, err := client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
			QueueUrl: &queueURL, MaxNumberOfMessages: 10, WaitTimeSeconds: 20, VisibilityTimeout: visible,
			// ToMessage reads the number of deliveries, the time of sending and the group from the one, and headers from the other.
			MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll},
			MessageAttributeNames:       []string{"All"},
		})
		if err != nil {
			return err
		}
		msgs := make([]*consumer.Message, len(got.Messages))
		for i, raw := range got.Messages {
			msgs[i] = awssqs.ToMessage(name, raw)
		}
		// Handlers that still run when SQS delivers a message again are rolled back in time. On SIGTERM the batch is finished.
		handling, cancel := context.WithTimeout(context.WithoutCancel(ctx), (visible-10)*time.Second)
		errs := orders.ProcessBatch(handling, msgs)
		cancel()
		for i, err := range errs {
			if err != nil {
				continue // do not delete it: SQS delivers it again after the visibility timeout
			}
			// nil: committed now or before, or parked in dead_letters. Duplicates must be deleted too.
			_, err := client.DeleteMessage(context.WithoutCancel(ctx), &sqs.DeleteMessageInput{
				QueueUrl: &queueURL, ReceiptHandle: got.Messages[i].ReceiptHandle,
			})
			if err != nil {
				return err // delivered again: a duplicate
			}
		}
	}
	return nil
}
