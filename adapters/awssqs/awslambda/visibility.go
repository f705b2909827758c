package awslambda

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/txonce/txonce/consumer"
)

const (
	maxEntries    = 10             // in a request
	maxVisibility = 11 * time.Hour // SQS allows 12 from the receive on
)

// changeVisibility makes failed messages visible when the Processor asks for it, if there is a Client. Without a
// Client, or when a request fails, they come back after the queue's visibility timeout.
func (h *Handler) changeVisibility(ctx context.Context, items []*item) {
	if h.cfg.Client == nil {
		return
	}
	for arn, entries := range visibilities(items) {
		url, err := h.url(ctx, arn)
		for len(entries) > 0 && err == nil {
			n := min(len(entries), maxEntries)
			var out *sqs.ChangeMessageVisibilityBatchOutput
			out, err = h.cfg.Client.ChangeMessageVisibilityBatch(ctx,
				&sqs.ChangeMessageVisibilityBatchInput{QueueUrl: &url, Entries: entries[:n]})
			entries = entries[n:]
			if err == nil && len(out.Failed) > 0 {
				err = fmt.Errorf("%d of %d, the first: %s: %s", len(out.Failed), n, aws.ToString(out.Failed[0].Code),
					aws.ToString(out.Failed[0].Message))
			}
		}
		if err != nil {
			h.cfg.Logger.WarnContext(ctx, "awslambda: failed messages come back after the queue's visibility timeout, not after the delay that the Processor asked for",
				"queue", arn, "error", err)
		}
	}
}

// visibilities returns the changes of visibility that the Processor's answers ask for, by ARN of the queue. All
// messages of a FIFO queue's group get that of the first one, because a message that is invisible for longer would keep
// the others waiting.
func visibilities(items []*item) map[string][]types.ChangeMessageVisibilityBatchRequestEntry {
	byQueue := make(map[string][]types.ChangeMessageVisibilityBatchRequestEntry)
	// the answer for the first message of a group; nil: it asks for no change
	groups := make(map[string]*consumer.RetryError)
	for i, it := range items {
		if it.err == nil || it.record.ReceiptHandle == "" {
			continue
		}
		retry, asks := errors.AsType[*consumer.RetryError](it.err)
		if it.group != "" {
			if first, follows := groups[it.group]; follows {
				retry, asks = first, first != nil
			} else {
				groups[it.group] = retry
			}
		}
		if !asks {
			continue
		}
		id := strconv.Itoa(i)
		byQueue[it.record.EventSourceARN] = append(byQueue[it.record.EventSourceARN], types.ChangeMessageVisibilityBatchRequestEntry{
			Id: &id, ReceiptHandle: &it.record.ReceiptHandle, VisibilityTimeout: wholeSeconds(retry.After),
		})
	}
	return byQueue
}

// wholeSeconds rounds up, so that a delay is never too short, within what SQS allows.
func wholeSeconds(after time.Duration) int32 {
	after = min(max(after, 0), maxVisibility)
	return int32((after + time.Second - 1) / time.Second)
}

// url returns the URL of the queue with that ARN: arn:aws:sqs:region:account:name.
func (h *Handler) url(ctx context.Context, arn string) (string, error) {
	h.mu.Lock()
	known := h.urls[arn]
	h.mu.Unlock()
	if known != "" {
		return known, nil
	}
	parts := strings.Split(arn, ":")
	if len(parts) != 6 {
		return "", fmt.Errorf("%q is no ARN of a queue", arn)
	}
	in := &sqs.GetQueueUrlInput{QueueName: &parts[5]}
	if parts[4] != "" {
		in.QueueOwnerAWSAccountId = &parts[4]
	}
	out, err := h.cfg.Client.GetQueueUrl(ctx, in)
	if err != nil {
		return "", err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.urls[arn] = aws.ToString(out.QueueUrl)
	return h.urls[arn], nil
}
