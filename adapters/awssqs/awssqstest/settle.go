package awssqstest

import (
	"context"
	"encoding/base64"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// DeleteMessage is like [sqs.Client.DeleteMessage].
func (s *Server) DeleteMessage(ctx context.Context, in *sqs.DeleteMessageInput,
	_ ...func(*sqs.Options),
) (*sqs.DeleteMessageOutput, error) {
	err := s.onQueue(ctx, "DeleteMessage", in.QueueUrl, in, func(q *queue) error { return q.delete(in.ReceiptHandle) })
	if err != nil {
		return nil, err
	}
	return &sqs.DeleteMessageOutput{}, nil
}

// DeleteMessageBatch is like [sqs.Client.DeleteMessageBatch].
func (s *Server) DeleteMessageBatch(ctx context.Context, in *sqs.DeleteMessageBatchInput,
	_ ...func(*sqs.Options),
) (*sqs.DeleteMessageBatchOutput, error) {
	const op = "DeleteMessageBatch"
	ids := make([]*string, len(in.Entries))
	for i, e := range in.Entries {
		if e.Id == nil || e.ReceiptHandle == nil {
			return nil, required(op, fmt.Sprintf("Entries[%d].Id and ReceiptHandle", i))
		}
		ids[i] = e.Id
	}
	out := &sqs.DeleteMessageBatchOutput{}
	err := s.onBatch(ctx, op, in.QueueUrl, in, ids, func(q *queue, f Fault) error {
		for i, e := range in.Entries {
			if failed := f.entry(i, e.Id, func() error { return q.delete(e.ReceiptHandle) }); failed != nil {
				out.Failed = append(out.Failed, *failed)
			} else {
				out.Successful = append(out.Successful, types.DeleteMessageBatchResultEntry{Id: e.Id})
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// ChangeMessageVisibility is like [sqs.Client.ChangeMessageVisibility].
func (s *Server) ChangeMessageVisibility(ctx context.Context, in *sqs.ChangeMessageVisibilityInput,
	_ ...func(*sqs.Options),
) (*sqs.ChangeMessageVisibilityOutput, error) {
	err := s.onQueue(ctx, "ChangeMessageVisibility", in.QueueUrl, in,
		func(q *queue) error { return q.change(in.ReceiptHandle, in.VisibilityTimeout) })
	if err != nil {
		return nil, err
	}
	return &sqs.ChangeMessageVisibilityOutput{}, nil
}

// ChangeMessageVisibilityBatch is like [sqs.Client.ChangeMessageVisibilityBatch].
func (s *Server) ChangeMessageVisibilityBatch(ctx context.Context, in *sqs.ChangeMessageVisibilityBatchInput,
	_ ...func(*sqs.Options),
) (*sqs.ChangeMessageVisibilityBatchOutput, error) {
	const op = "ChangeMessageVisibilityBatch"
	ids := make([]*string, len(in.Entries))
	for i, e := range in.Entries {
		if e.Id == nil || e.ReceiptHandle == nil {
			return nil, required(op, fmt.Sprintf("Entries[%d].Id and ReceiptHandle", i))
		}
		ids[i] = e.Id
	}
	out := &sqs.ChangeMessageVisibilityBatchOutput{}
	err := s.onBatch(ctx, op, in.QueueUrl, in, ids, func(q *queue, f Fault) error {
		for i, e := range in.Entries {
			if failed := f.entry(i, e.Id, func() error { return q.change(e.ReceiptHandle, e.VisibilityTimeout) }); failed != nil {
				out.Failed = append(out.Failed, *failed)
			} else {
				out.Successful = append(out.Successful, types.ChangeMessageVisibilityBatchResultEntry{Id: e.Id})
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// find returns the message of a receipt handle, and whether the handle is its newest. nil: it is gone.
func (q *queue) find(handle *string) (m *message, newest bool, err error) {
	var serial, number int64
	var receive int
	refused := &types.ReceiptHandleIsInvalid{Message: ptr("The input receipt handle is invalid.")}
	if handle == nil {
		return nil, false, refused
	}
	raw, err := base64.URLEncoding.DecodeString(*handle)
	if err != nil {
		return nil, false, refused
	}
	if n, err := fmt.Sscanf(string(raw), "%d %d %d", &serial, &number, &receive); n != 3 || err != nil ||
		serial != q.serial {
		return nil, false, refused
	}
	e := q.byNumber[number]
	if e == nil {
		return nil, false, nil
	}
	m = e.Value.(*message)
	return m, m.here == receive, nil
}

func (q *queue) delete(handle *string) error {
	now := time.Now()
	q.expire(now)
	m, newest, err := q.find(handle)
	switch {
	case err != nil || m == nil: // a message that is gone counts as deleted
		return err
	case q.fifo && (!newest || !m.inFlight(now)):
		return invalid("Value " + *handle + " for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired.")
	case newest:
		q.remove(m)
	}
	return nil
}

func (q *queue) change(handle *string, seconds int32) error {
	now := time.Now()
	q.expire(now)
	m, newest, err := q.find(handle)
	switch {
	case err != nil:
		return err
	case seconds < 0 || seconds > 43200:
		return invalid(fmt.Sprintf("Value %d for parameter VisibilityTimeout is invalid. Reason: VisibilityTimeout must be between 0 and 43200.", seconds))
	case m == nil || !newest || !m.inFlight(now):
		return &types.MessageNotInflight{Message: ptr("Value " + *handle + " for parameter ReceiptHandle is invalid. Reason: Message does not exist or is not available for visibility timeout change.")}
	}
	visible := now.Add(time.Duration(seconds) * time.Second)
	if visible.Sub(m.last) > maxVisibility {
		return invalid(fmt.Sprintf("Value %d for parameter VisibilityTimeout is invalid. Reason: Total VisibilityTimeout for the message is beyond the limit [43200 seconds].", seconds))
	}
	m.visible = visible
	q.wake()
	return nil
}
