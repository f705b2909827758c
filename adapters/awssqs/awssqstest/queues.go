package awssqstest

import (
	"container/list"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// CreateQueue is like [sqs.Client.CreateQueue]. A name that ends in .fifo requires the attribute FifoQueue with the
// value "true". Repeating a call returns the existing queue; with other attributes it fails with QueueNameExists.
func (s *Server) CreateQueue(ctx context.Context, in *sqs.CreateQueueInput,
	_ ...func(*sqs.Options),
) (out *sqs.CreateQueueOutput, err error) {
	const op = "CreateQueue"
	if in.QueueName == nil {
		return nil, required(op, "QueueName")
	}
	f, err := s.enter(ctx, op, nil, in)
	if err == nil {
		s.mu.Lock()
		out, err = s.createQueue(*in.QueueName, in.Attributes)
		s.mu.Unlock()
		err = f.leave(op, err)
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (s *Server) createQueue(name string, attributes map[string]string) (*sqs.CreateQueueOutput, error) {
	base, fifo := strings.CutSuffix(name, ".fifo")
	switch {
	case !queueName.MatchString(base) || len(name) > 80:
		return nil, invalid("Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length")
	case fifo && attributes["FifoQueue"] != "true":
		return nil, invalid("The name of a FIFO queue can only include alphanumeric characters, hyphens, or underscores, must end with .fifo suffix and be 1 to 80 in length, and its attribute FifoQueue be true.")
	case !fifo && attributes["FifoQueue"] == "true":
		return nil, invalid("The name of a FIFO queue must end with .fifo suffix.")
	}
	out := &sqs.CreateQueueOutput{QueueUrl: ptr(urlPrefix + name)}
	set, err := s.newSettings(name, nil, attributes)
	if err != nil {
		return nil, err
	}
	if q := s.queues[name]; q != nil {
		for attribute, value := range attributes {
			if q.given[attribute] != value {
				return nil, &types.QueueNameExists{Message: ptr("A queue already exists with the same name and a different value for attribute " + attribute)}
			}
		}
		return out, nil
	}
	s.serial++
	now := time.Now()
	s.queues[name] = &queue{
		settings: set, name: name, serial: s.serial, created: now, modified: now, messages: list.New(),
		byNumber: make(map[int64]*list.Element), sent: make(map[string]sending), attempts: make(map[string]attempt),
	}
	return out, nil
}

// DeleteQueue is like [sqs.Client.DeleteQueue]. It takes effect at once, and the name can be used again at once.
func (s *Server) DeleteQueue(ctx context.Context, in *sqs.DeleteQueueInput,
	_ ...func(*sqs.Options),
) (*sqs.DeleteQueueOutput, error) {
	err := s.onQueue(ctx, "DeleteQueue", in.QueueUrl, in, func(q *queue) error {
		delete(s.queues, q.name)
		q.wake()
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &sqs.DeleteQueueOutput{}, nil
}

// PurgeQueue is like [sqs.Client.PurgeQueue]. It takes effect at once, and may be repeated at any time.
func (s *Server) PurgeQueue(ctx context.Context, in *sqs.PurgeQueueInput,
	_ ...func(*sqs.Options),
) (*sqs.PurgeQueueOutput, error) {
	err := s.onQueue(ctx, "PurgeQueue", in.QueueUrl, in, func(q *queue) error {
		for m := range q.all() {
			q.remove(m)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &sqs.PurgeQueueOutput{}, nil
}

// GetQueueUrl is like [sqs.Client.GetQueueUrl].
func (s *Server) GetQueueUrl(ctx context.Context, in *sqs.GetQueueUrlInput,
	_ ...func(*sqs.Options),
) (*sqs.GetQueueUrlOutput, error) {
	const op = "GetQueueUrl"
	if in.QueueName == nil {
		return nil, required(op, "QueueName")
	}
	url := urlPrefix + *in.QueueName
	if err := s.onQueue(ctx, op, &url, in, func(*queue) error { return nil }); err != nil {
		return nil, err
	}
	return &sqs.GetQueueUrlOutput{QueueUrl: &url}, nil
}

// GetQueueAttributes is like [sqs.Client.GetQueueAttributes]. The counts are exact.
func (s *Server) GetQueueAttributes(ctx context.Context, in *sqs.GetQueueAttributesInput,
	_ ...func(*sqs.Options),
) (*sqs.GetQueueAttributesOutput, error) {
	out := &sqs.GetQueueAttributesOutput{Attributes: make(map[string]string)}
	err := s.onQueue(ctx, "GetQueueAttributes", in.QueueUrl, in, func(q *queue) error {
		now := time.Now()
		q.expire(now)
		all := maps.Clone(q.given)
		waiting, inFlight, delayed := 0, 0, 0
		for m := range q.all() {
			switch {
			case m.inFlight(now):
				inFlight++
			case m.visible.After(now):
				delayed++
			default:
				waiting++
			}
		}
		all["ApproximateNumberOfMessages"] = strconv.Itoa(waiting)
		all["ApproximateNumberOfMessagesNotVisible"] = strconv.Itoa(inFlight)
		all["ApproximateNumberOfMessagesDelayed"] = strconv.Itoa(delayed)
		all["QueueArn"] = arnPrefix + q.name
		all["CreatedTimestamp"] = strconv.FormatInt(q.created.Unix(), 10)
		all["LastModifiedTimestamp"] = strconv.FormatInt(q.modified.Unix(), 10)
		for _, name := range in.AttributeNames {
			if name == types.QueueAttributeNameAll {
				maps.Copy(out.Attributes, all)
				continue
			}
			if !slices.Contains(name.Values(), name) {
				return &types.InvalidAttributeName{Message: ptr("Unknown Attribute " + string(name) + ".")}
			}
			if value, ok := all[string(name)]; ok {
				out.Attributes[string(name)] = value
			}
		}
		for _, absent := range s.cfg.Absent {
			delete(out.Attributes, string(absent))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// SetQueueAttributes is like [sqs.Client.SetQueueAttributes]. It takes effect at once.
func (s *Server) SetQueueAttributes(ctx context.Context, in *sqs.SetQueueAttributesInput,
	_ ...func(*sqs.Options),
) (*sqs.SetQueueAttributesOutput, error) {
	err := s.onQueue(ctx, "SetQueueAttributes", in.QueueUrl, in, func(q *queue) error {
		set, err := s.newSettings(q.name, q.given, in.Attributes)
		if err != nil {
			return err
		}
		q.settings, q.modified = set, time.Now()
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &sqs.SetQueueAttributesOutput{}, nil
}

// onQueue runs a call on one queue.
func (s *Server) onQueue(ctx context.Context, op string, url *string, in any, do func(*queue) error) error {
	if url == nil {
		return required(op, "QueueUrl")
	}
	f, err := s.enter(ctx, op, url, in)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	q, err := s.queue(*url)
	if err == nil {
		err = do(q)
	}
	return f.leave(op, err)
}

// queue returns the queue with this URL. s.mu must be held.
func (s *Server) queue(url string) (*queue, error) {
	name, ours := strings.CutPrefix(url, urlPrefix)
	q := s.queues[name]
	if !ours || q == nil {
		return nil, noQueue()
	}
	return q, nil
}
