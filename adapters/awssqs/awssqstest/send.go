package awssqstest

import (
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// SendMessage is like [sqs.Client.SendMessage].
func (s *Server) SendMessage(ctx context.Context, in *sqs.SendMessageInput,
	_ ...func(*sqs.Options),
) (*sqs.SendMessageOutput, error) {
	const op = "SendMessage"
	if in.MessageBody == nil {
		return nil, required(op, "MessageBody")
	}
	out := &sqs.SendMessageOutput{}
	err := s.onQueue(ctx, op, in.QueueUrl, in, func(q *queue) error {
		e := types.SendMessageBatchRequestEntry{
			MessageBody: in.MessageBody, DelaySeconds: in.DelaySeconds, MessageAttributes: in.MessageAttributes,
			MessageDeduplicationId: in.MessageDeduplicationId, MessageGroupId: in.MessageGroupId,
			MessageSystemAttributes: in.MessageSystemAttributes,
		}
		sent, err := s.send(q, &e)
		if err != nil {
			return err
		}
		out.MessageId, out.SequenceNumber, out.MD5OfMessageBody = &sent.id, optional(sent.sequence),
			ptr(sum(*in.MessageBody))
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// SendMessageBatch is like [sqs.Client.SendMessageBatch]. It refuses entries individually. It refuses the whole batch
// if it exceeds 1 MiB, has more than ten entries, or has invalid ids.
func (s *Server) SendMessageBatch(ctx context.Context, in *sqs.SendMessageBatchInput,
	_ ...func(*sqs.Options),
) (*sqs.SendMessageBatchOutput, error) {
	const op = "SendMessageBatch"
	ids, total := make([]*string, len(in.Entries)), 0
	for i, e := range in.Entries {
		if e.Id == nil || e.MessageBody == nil {
			return nil, required(op, fmt.Sprintf("Entries[%d].Id and MessageBody", i))
		}
		ids[i] = e.Id
		size, _ := checkAttributes(e.MessageAttributes)
		total += size + len(*e.MessageBody)
	}
	out := &sqs.SendMessageBatchOutput{}
	err := s.onBatch(ctx, op, in.QueueUrl, in, ids, func(q *queue, f Fault) error {
		if total > maxBytes {
			return &types.BatchRequestTooLong{Message: ptr(fmt.Sprintf("Batch requests cannot be longer than %d bytes. You have sent %d bytes.", maxBytes, total))}
		}
		for i := range in.Entries {
			e := &in.Entries[i]
			sent := sending{id: uuid()}
			if failed := f.entry(i, e.Id, func() (err error) { sent, err = s.send(q, e); return err }); failed != nil {
				out.Failed = append(out.Failed, *failed)
				continue
			}
			out.Successful = append(out.Successful, types.SendMessageBatchResultEntry{
				Id: e.Id, MessageId: &sent.id, SequenceNumber: optional(sent.sequence),
				MD5OfMessageBody: ptr(sum(*e.MessageBody)),
			})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// onBatch runs a batch call on one queue. ids are the Ids of its entries.
func (s *Server) onBatch(ctx context.Context, op string, url *string, in any, ids []*string,
	do func(*queue, Fault) error,
) error {
	if url == nil {
		return required(op, "QueueUrl")
	}
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = *id
	}
	f, err := s.enter(ctx, op, url, in, names...)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	q, err := s.queue(*url)
	if err == nil {
		err = batch(ids)
	}
	if err == nil {
		err = do(q, f)
	}
	return f.leave(op, err)
}

// send adds one message to q, unless the same one was sent within the deduplication window. s.mu must be held.
func (s *Server) send(q *queue, e *types.SendMessageBatchRequestEntry) (sending, error) {
	now := time.Now()
	q.expire(now)
	if err := q.check(e); err != nil {
		return sending{}, err
	}
	m := &message{
		id: uuid(), body: *e.MessageBody, attributes: cloneAttributes(e.MessageAttributes),
		sent: now, since: now, visible: now.Add(q.delay),
	}
	if e.MessageGroupId != nil {
		m.group = *e.MessageGroupId
	}
	if trace, ok := e.MessageSystemAttributes["AWSTraceHeader"]; ok && trace.StringValue != nil {
		m.trace = *trace.StringValue
	}
	if e.DelaySeconds > 0 {
		m.visible = now.Add(time.Duration(e.DelaySeconds) * time.Second)
	}
	s.serial++
	m.number = s.serial
	sent := sending{id: m.id}
	if q.fifo {
		m.dedup = sha(m.body)
		if e.MessageDeduplicationId != nil {
			m.dedup = *e.MessageDeduplicationId
		}
		m.sequence = fmt.Sprintf("%020d", s.serial)
		token := m.dedup
		if q.perGroup {
			token = m.group + "\x00" + token
		}
		if before, twice := q.sent[token]; twice {
			return before, nil
		}
		sent.sequence, sent.until = m.sequence, now.Add(dedupWindow)
		q.sent[token] = sent
		q.tokens = append(q.tokens, token)
	}
	q.add(m)
	return sent, nil
}

// check returns SQS's error if it would refuse the message.
func (q *queue) check(e *types.SendMessageBatchRequestEntry) error {
	size, err := checkAttributes(e.MessageAttributes)
	size += len(*e.MessageBody)
	switch {
	case err != nil:
		return err
	case *e.MessageBody == "":
		return missing("MessageBody")
	case !legal(*e.MessageBody):
		return &types.InvalidMessageContents{Message: ptr("Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF")}
	case size > q.maxSize:
		return invalid(fmt.Sprintf("One or more parameters are invalid. Reason: Message must be shorter than %d bytes.",
			q.maxSize))
	case e.DelaySeconds < 0 || e.DelaySeconds > 900:
		return invalid(fmt.Sprintf("Value %d for parameter DelaySeconds is invalid. Reason: DelaySeconds must be >= 0 and <= 900.", e.DelaySeconds))
	case e.MessageGroupId != nil && !token.MatchString(*e.MessageGroupId):
		return invalid("Value for parameter MessageGroupId is invalid. Reason: MessageGroupId can only include alphanumeric and punctuation characters. 1 to 128 in length.")
	case e.MessageDeduplicationId != nil && !token.MatchString(*e.MessageDeduplicationId):
		return invalid("Value for parameter MessageDeduplicationId is invalid. Reason: MessageDeduplicationId can only include alphanumeric and punctuation characters. 1 to 128 in length.")
	case !q.fifo && e.MessageDeduplicationId != nil:
		return invalid("The request include parameter that is not valid for this queue type: MessageDeduplicationId")
	case q.fifo && e.DelaySeconds != 0:
		return invalid(fmt.Sprintf("Value %d for parameter DelaySeconds is invalid. Reason: The request include parameter that is not valid for this queue type.", e.DelaySeconds))
	case q.fifo && e.MessageGroupId == nil:
		return missing("MessageGroupId")
	case q.fifo && e.MessageDeduplicationId == nil && !q.byContent:
		return invalid("The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided explicitly")
	}
	return nil
}

func cloneAttributes(attributes map[string]types.MessageAttributeValue) map[string]types.MessageAttributeValue {
	clone := maps.Clone(attributes)
	for name, v := range clone {
		v.BinaryValue = slices.Clone(v.BinaryValue)
		clone[name] = v
	}
	return clone
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// sum is SQS's checksum of bodies.
func sum(body string) string {
	md := md5.Sum([]byte(body))
	return hex.EncodeToString(md[:])
}

func sha(body string) string {
	h := sha256.Sum256([]byte(body))
	return hex.EncodeToString(h[:])
}
