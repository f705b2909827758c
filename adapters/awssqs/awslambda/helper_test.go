package awslambda_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/txonce/txonce/adapters/awssqs/awslambda"
	"github.com/txonce/txonce/consumer"
)

// record returns a record as Lambda passes it.
func record(id, body, queue, group, attributes string) string {
	system := `"ApproximateReceiveCount":"1","SentTimestamp":"1545082649183","SenderId":"AIDAIENQZJOLO23YVJ4VO","ApproximateFirstReceiveTimestamp":"1545082649185"`
	if group != "" {
		system += fmt.Sprintf(`,"MessageGroupId":%q,"MessageDeduplicationId":%q,"SequenceNumber":"18849496460467696128"`, group, id)
	}
	return fmt.Sprintf(`{"messageId":%q,"receiptHandle":"AQEBwJnKyrHigUMZj6rYigCgxlaS3SLy0a...","body":%q,"attributes":{%s},"messageAttributes":{%s},`+
		`"md5OfBody":"e4e68fb7bd0e697a0ae8f1bb342846b3","eventSource":"aws:sqs","eventSourceARN":"arn:aws:sqs:us-east-2:123456789012:%s","awsRegion":"us-east-2"}`,
		id, body, system, attributes, queue)
}

func eventOf(records ...string) string { return `{"Records":[` + strings.Join(records, ",") + `]}` }

// invoke does what lambda.Start does, between JSON and JSON.
func invoke(ctx context.Context, t *testing.T, cfg awslambda.Config, event string) (answer string, err error) {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	h, err := awslambda.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return invokeHandler(ctx, t, h, event)
}

func invokeHandler(ctx context.Context, t *testing.T, h *awslambda.Handler, event string) (answer string, err error) {
	t.Helper()
	var e awslambda.Event
	if err := json.Unmarshal([]byte(event), &e); err != nil {
		return "", err
	}
	response, err := h.Handle(ctx, e)
	if err != nil {
		return "", err
	}
	encoded, err := json.Marshal(response)
	if err != nil {
		t.Fatal(err)
	}
	return string(encoded), nil
}

func failures(ids ...string) string {
	all := make([]string, len(ids))
	for i, id := range ids {
		all[i] = fmt.Sprintf(`{"itemIdentifier":%q}`, id)
	}
	return `{"batchItemFailures":[` + strings.Join(all, ",") + `]}`
}

// processor is a Processor of single messages, and batches a BatchProcessor that holds nothing back.
type processor func(ctx context.Context, m *consumer.Message) error

func (p processor) Process(ctx context.Context, m *consumer.Message) error { return p(ctx, m) }

type batches struct{ processor }

func (b batches) ProcessBatch(ctx context.Context, msgs []*consumer.Message) (errs []error) {
	for _, m := range msgs {
		errs = append(errs, b.processor(ctx, m))
	}
	return errs
}
