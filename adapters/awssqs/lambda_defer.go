package awssqs

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/txonce/txonce/consumer"
)

// defers has messages come back when the Processor asks for it, if there is a Client. Where that fails they come back after the
// queue's visibility timeout.
func (h *LambdaHandler) defers(ctx context.Context, items []*lambdaItem) {
	if h.cfg.Client == nil {
		return
	}
	for arn, entries := range deferrals(items) {
		url, err := h.url(ctx, arn)
		for len(entries) > 0 && err == nil {
			n := min(len(entries), maxBatch)
			var out *sqs.ChangeMessageVisibilityBatchOutput
			out, err = h.cfg.Client.ChangeMessageVisibilityBatch(ctx, &sqs.ChangeMessageVisibilityBatchInput{QueueUrl: &url, Entries: entries[:n]})
			entries = entries[n:]
			if err == nil && len(out.Failed) > 0 {
				err = fmt.Errorf("%d of %d, the first: %s: %s", len(out.Failed), n, value(out.Failed[0].Code), value(out.Failed[0].Message))
			}
		}
		if err != nil {
			h.cfg.Logger.WarnContext(ctx, "awssqs: messages that failed come back after the queue's visibility timeout, not when they should", "queue", arn, "error", err)
		}
	}
}

// deferrals are the changes of visibility that the answers ask for, by queue. Of a FIFO queue's group all get that of the first: one
// that is in flight for longer would keep the others waiting.
func deferrals(items []*lambdaItem) map[string][]types.ChangeMessageVisibilityBatchRequestEntry {
	byQueue := make(map[string][]types.ChangeMessageVisibilityBatchRequestEntry)
	groups := make(map[string]*consumer.RetryError) // nil: the first did not ask
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
			Id: &id, ReceiptHandle: &it.record.ReceiptHandle, VisibilityTimeout: int32(wholeSeconds(retry.After, maxInFlight-time.Hour) / time.Second),
		})
	}
	return byQueue
}

// url finds the queue of an ARN: arn:aws:sqs:region:account:name.
func (h *LambdaHandler) url(ctx context.Context, arn string) (string, error) {
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
	h.urls[arn] = value(out.QueueUrl)
	return value(out.QueueUrl), nil
}
