package awssqstest

import (
	"context"
	"encoding/base64"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// ReceiveMessage is like [sqs.Client.ReceiveMessage]. It waits for WaitTimeSeconds, or for the queue's default if that
// is 0, and returns as soon as there is a message.
func (s *Server) ReceiveMessage(ctx context.Context, in *sqs.ReceiveMessageInput,
	_ ...func(*sqs.Options),
) (*sqs.ReceiveMessageOutput, error) {
	const op = "ReceiveMessage"
	if in.QueueUrl == nil {
		return nil, required(op, "QueueUrl")
	}
	f, err := s.enter(ctx, op, in.QueueUrl, in)
	if err != nil {
		return nil, err
	}
	out := &sqs.ReceiveMessageOutput{}
	if out.Messages, err = s.receive(ctx, op, in); err != nil || f.After != nil {
		return nil, f.leave(op, err)
	}
	return out, nil
}

func (s *Server) receive(ctx context.Context, op string, in *sqs.ReceiveMessageInput) ([]types.Message, error) {
	switch {
	case in.MaxNumberOfMessages < 0 || in.MaxNumberOfMessages > maxEntries:
		return nil, invalid(fmt.Sprintf("Value %d for parameter MaxNumberOfMessages is invalid. Reason: Must be between 1 and 10, if provided.", in.MaxNumberOfMessages))
	case in.WaitTimeSeconds < 0 || in.WaitTimeSeconds > 20:
		return nil, invalid(fmt.Sprintf("Value %d for parameter WaitTimeSeconds is invalid. Reason: Must be >= 0 and <= 20, if provided.", in.WaitTimeSeconds))
	case in.VisibilityTimeout < 0 || in.VisibilityTimeout > 43200:
		return nil, invalid(fmt.Sprintf("Value %d for parameter VisibilityTimeout is invalid. Reason: Must be >= 0 and <= 43200, if provided.", in.VisibilityTimeout))
	}
	var end time.Time
	for {
		s.mu.Lock()
		q, err := s.queue(*in.QueueUrl)
		if err != nil {
			s.mu.Unlock()
			return nil, err
		}
		now := time.Now()
		if end.IsZero() {
			end = now.Add(q.patience(in))
		}
		if got := s.take(q, in, now); len(got) > 0 || !now.Before(end) {
			s.mu.Unlock()
			return got, nil
		}
		until := end
		if next := q.next(now); !next.IsZero() && next.Before(until) {
			until = next
		}
		changed, cut := q.wait(), s.cut
		s.mu.Unlock()

		timer := time.NewTimer(until.Sub(now))
		select {
		case <-timer.C:
		case <-changed:
		case <-cut:
			timer.Stop()
			return nil, operation(op, ErrConnection)
		case <-ctx.Done():
			timer.Stop()
			return nil, canceled(op, ctx.Err())
		}
		timer.Stop()
	}
}

// patience returns how long a receive waits for a message.
func (q *queue) patience(in *sqs.ReceiveMessageInput) time.Duration {
	if in.WaitTimeSeconds > 0 { // the SDK does not send 0
		return time.Duration(in.WaitTimeSeconds) * time.Second
	}
	return q.poll
}

// take receives visible messages. s.mu must be held.
func (s *Server) take(q *queue, in *sqs.ReceiveMessageInput, now time.Time) (got []types.Message) {
	q.expire(now)
	visibility := q.visibility
	if in.VisibilityTimeout > 0 {
		visibility = time.Duration(in.VisibilityTimeout) * time.Second
	}
	if again := q.again(in, now); len(again) > 0 {
		for _, m := range again {
			m.visible = now.Add(visibility)
			got = append(got, q.delivery(m, in))
		}
		return got
	}
	defer func() { q.remember(in, now, got) }()
	for m := range q.visibles(now, s.cfg.Shuffle) {
		if q.target != "" && m.received >= q.maxReceives {
			if dead := s.queues[q.target]; dead != nil {
				s.bury(q, dead, m, now)
				continue
			}
		}
		m.received++
		m.here++
		m.last, m.visible = now, now.Add(visibility)
		if m.first.IsZero() {
			m.first = now
		}
		got = append(got, q.delivery(m, in))
		if len(got) == max(int(in.MaxNumberOfMessages), 1) {
			break
		}
	}
	return got
}

// again returns the messages of an earlier receive with the same ReceiveRequestAttemptId, if they are unchanged since
// then.
func (q *queue) again(in *sqs.ReceiveMessageInput, now time.Time) (msgs []*message) {
	if !q.fifo || in.ReceiveRequestAttemptId == nil {
		return nil
	}
	before := q.attempts[*in.ReceiveRequestAttemptId]
	for _, t := range before.took {
		e := q.byNumber[t.number]
		if e == nil || !before.until.After(now) {
			return nil
		}
		m := e.Value.(*message)
		if m.here != t.here || !m.inFlight(now) {
			return nil
		}
		msgs = append(msgs, m)
	}
	return msgs
}

// remember stores the result of a receive for again.
func (q *queue) remember(in *sqs.ReceiveMessageInput, now time.Time, got []types.Message) {
	maps.DeleteFunc(q.attempts, func(_ string, a attempt) bool { return !a.until.After(now) })
	if !q.fifo || in.ReceiveRequestAttemptId == nil || len(got) == 0 {
		return
	}
	a := attempt{until: now.Add(dedupWindow)}
	for _, d := range got {
		m, _, _ := q.find(d.ReceiptHandle)
		a.took = append(a.took, took{m.number, m.here})
	}
	q.attempts[*in.ReceiveRequestAttemptId] = a
}

// visibles yields the messages that may be received now, in order. In a FIFO queue a message that is in flight or
// delayed blocks its group. The yielded message may be removed.
func (q *queue) visibles(now time.Time, shuffle bool) iter.Seq[*message] {
	if shuffle && !q.fifo {
		shuffled := slices.Collect(q.visibles(now, false))
		rand.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		return slices.Values(shuffled)
	}
	held := make(map[string]bool)
	if q.fifo {
		for m := range q.all() {
			if m.inFlight(now) {
				held[m.group] = true
			}
		}
	}
	return func(yield func(*message) bool) {
		for m := range q.all() {
			switch {
			case q.fifo && held[m.group]:
			case m.visible.After(now):
				held[m.group] = true
			case !yield(m):
				return
			}
		}
	}
}

// bury moves m to a dead-letter queue.
func (s *Server) bury(q, dead *queue, m *message, now time.Time) {
	q.remove(m)
	m.source, m.visible, m.here = arnPrefix+q.name, now, 0
	if dead.fifo {
		m.since = now
	}
	s.serial++
	m.number = s.serial
	dead.mixed = true
	dead.add(m)
}

// delivery returns m with the attributes that the receive requested.
func (q *queue) delivery(m *message, in *sqs.ReceiveMessageInput) types.Message {
	d := types.Message{
		Body: ptr(m.body), MD5OfBody: ptr(sum(m.body)), MessageId: ptr(m.id),
		ReceiptHandle: ptr(base64.URLEncoding.EncodeToString(fmt.Appendf(nil, "%d %d %d", q.serial, m.number, m.here))),
	}
	millis := func(t time.Time) string { return strconv.FormatInt(t.UnixMilli(), 10) }
	for name, value := range map[types.MessageSystemAttributeName]string{
		types.MessageSystemAttributeNameSenderId:                         "AIDATEST",
		types.MessageSystemAttributeNameSentTimestamp:                    millis(m.sent),
		types.MessageSystemAttributeNameApproximateReceiveCount:          strconv.Itoa(m.received),
		types.MessageSystemAttributeNameApproximateFirstReceiveTimestamp: millis(m.first),
		types.MessageSystemAttributeNameMessageGroupId:                   m.group,
		types.MessageSystemAttributeNameMessageDeduplicationId:           m.dedup,
		types.MessageSystemAttributeNameSequenceNumber:                   m.sequence,
		types.MessageSystemAttributeNameAWSTraceHeader:                   m.trace,
		types.MessageSystemAttributeNameDeadLetterQueueSourceArn:         m.source,
	} {
		asked := slices.Contains(in.MessageSystemAttributeNames, name) ||
			slices.Contains(in.MessageSystemAttributeNames, types.MessageSystemAttributeNameAll)
		if old := in.AttributeNames; !asked { //nolint:staticcheck // deprecated, and SQS still takes it
			asked = slices.Contains(old, types.QueueAttributeName(name)) ||
				slices.Contains(old, types.QueueAttributeNameAll)
		}
		if asked && value != "" {
			if d.Attributes == nil {
				d.Attributes = make(map[string]string)
			}
			d.Attributes[string(name)] = value
		}
	}
	for name, value := range cloneAttributes(m.attributes) {
		asked := slices.ContainsFunc(in.MessageAttributeNames, func(want string) bool {
			prefix, wild := strings.CutSuffix(want, ".*")
			return want == "All" || want == name || wild && strings.HasPrefix(name, prefix)
		})
		if asked {
			if d.MessageAttributes == nil {
				d.MessageAttributes = make(map[string]types.MessageAttributeValue)
			}
			d.MessageAttributes[name] = value
		}
	}
	return d
}
