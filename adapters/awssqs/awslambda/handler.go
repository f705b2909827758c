package awslambda

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/txonce/txonce/adapters/awssqs"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/internal/counts"
	"github.com/txonce/txonce/internal/deliver"
)

// Handler handles the messages that AWS Lambda takes from a queue. It is safe for concurrent use.
type Handler struct {
	cfg      Config
	maxBatch int // messages per call of the Processor

	uncountedReceives counts.Counter // by message: receives by this process that were no attempts

	mu   sync.Mutex
	urls map[string]string // of queues, by ARN
}

// New returns a Handler, or an error that names all fields of cfg that are at fault. It does not talk to AWS.
func New(cfg Config) (*Handler, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	h := &Handler{cfg: cfg, maxBatch: 1, urls: make(map[string]string)}
	if _, batches := cfg.Processor.(driver.BatchProcessor); batches {
		h.maxBatch = cfg.MaxBatch
	}
	return h, nil
}

var (
	errUnfinished = errors.New("the invocation ends before it was handled")
	errHeldBack   = errors.New("it is behind a message of its group that failed")
)

// Handle is one invocation. An error means that nothing is known about single messages: Lambda keeps all of them, as it
// does when the function is killed. Messages that were committed before are duplicates when they are delivered again,
// and have no second effect.
func (h *Handler) Handle(ctx context.Context, event Event) (Response, error) {
	if err := checkEvent(event); err != nil {
		return Response{}, err
	}
	exit, work := ctx, ctx
	if deadline, ok := ctx.Deadline(); ok {
		var cancelWork, cancelExit context.CancelFunc
		work, cancelWork = context.WithDeadline(ctx, deadline.Add(-h.cfg.Margin))
		defer cancelWork()
		exit, cancelExit = context.WithDeadline(ctx, deadline.Add(-h.cfg.Margin/2))
		defer cancelExit()
	}
	if sourced, ok := h.cfg.Processor.(driver.Sourced); ok {
		for i := range event.Records {
			if name := event.Records[i].queue(); name != "" {
				sourced.AddSource("sqs queue " + name)
			}
		}
	}
	if starter, ok := h.cfg.Processor.(driver.Starter); ok {
		if err := starter.Start(work); err != nil {
			return Response{}, fmt.Errorf("awslambda: the messages stay in the queue: %w", err)
		}
	}
	items := h.items(event)
	h.process(work, exit, items)
	h.log(ctx, items)
	h.changeVisibility(exit, items)
	return response(items), nil
}

// checkEvent refuses an event with a message that the answer could not name.
func checkEvent(event Event) error {
	if len(event.Records) == 0 {
		return errors.New("awslambda: the event has no Records; is the function's event source a queue?")
	}
	for i, r := range event.Records {
		switch {
		case r.EventSource != "" && r.EventSource != "aws:sqs":
			return fmt.Errorf("awslambda: record %d comes from %s, not from a queue", i, r.EventSource)
		case r.MessageID == "":
			return fmt.Errorf("awslambda: record %d has no messageId, so the whole batch stays in the queue: %w", i,
				errors.Join(r.malformed, errUnfinished))
		}
	}
	return nil
}

// item is one message of an event.
type item struct {
	record *Record
	msg    *consumer.Message // nil: the record cannot be read
	fifo   bool
	group  string // on a FIFO queue; empty: it could not be read
	err    error  // nil: it is handled
}

func (h *Handler) items(event Event) []*item {
	items := make([]*item, len(event.Records))
	for i := range event.Records {
		r := &event.Records[i]
		it := &item{record: r, err: errUnfinished, fifo: strings.HasSuffix(r.EventSourceARN, ".fifo")}
		items[i] = it
		if it.fifo { // on a standard queue the group is a tenant of a fair queue
			it.group = r.Attributes["MessageGroupId"]
		}
		if r.malformed != nil {
			it.err = r.malformed
			continue
		}
		it.msg = awssqs.ToMessage(r.queue(), r.message())
		it.msg.Raw = r
		it.msg.Attempt = max(it.msg.Attempt-h.uncountedReceives.Of(r.MessageID), 1)
	}
	return items
}

// process handles all items in order, in batches. After exit it does not wait for a handler that ignores its context:
// only one of the two commits, that handler or that of a later delivery.
func (h *Handler) process(work, exit context.Context, items []*item) {
	var failed failedGroups
	for start := 0; start < len(items); {
		var batch []*item
		for ; start < len(items) && len(batch) < h.maxBatch; start++ {
			switch it := items[start]; {
			case failed.has(it):
				it.err = &consumer.RetryError{Err: errHeldBack, Held: true}
			case it.msg == nil:
				failed.add(it)
			default:
				batch = append(batch, it)
			}
		}
		if len(batch) == 0 || work.Err() != nil {
			continue // the others keep errUnfinished
		}
		answered := make(chan []error, 1)
		go func() { answered <- h.call(work, batch) }()
		select {
		case errs := <-answered:
			for i, it := range batch {
				it.err = errs[i]
			}
		case <-exit.Done():
		}
		for _, it := range batch {
			failed.add(it)
		}
	}
}

func (h *Handler) call(ctx context.Context, batch []*item) []error {
	msgs := make([]*consumer.Message, len(batch))
	for i, it := range batch {
		msgs[i] = it.msg
	}
	return deliver.Call(ctx, h.cfg.Processor, msgs)
}

// failedGroups are the groups of a FIFO queue that have a failed message.
type failedGroups struct {
	groups map[string]bool
	all    bool // a message failed whose group could not be read
}

func (g *failedGroups) has(it *item) bool { return it.fifo && (g.all || g.groups[it.group]) }

// add adds the group of it, if it failed.
func (g *failedGroups) add(it *item) {
	switch {
	case it.err == nil || !it.fifo:
	case it.group == "":
		g.all = true
	case g.groups == nil:
		g.groups = map[string]bool{it.group: true}
	default:
		g.groups[it.group] = true
	}
}

// response names the messages that are not handled.
func response(items []*item) Response {
	r := Response{BatchItemFailures: []Failure{}} // an empty list, because null might be read as a failure of all
	named := make(map[string]bool)
	for _, it := range items {
		if id := it.record.MessageID; it.err != nil && !named[id] {
			named[id] = true
			r.BatchItemFailures = append(r.BatchItemFailures, Failure{ItemIdentifier: id})
		}
	}
	return r
}

// log logs an invocation with failed messages. The line has the number of receives that were no attempts.
func (h *Handler) log(ctx context.Context, items []*item) {
	var first *item
	failed := 0
	for _, it := range items {
		retry, again := errors.AsType[*consumer.RetryError](it.err)
		switch {
		case it.err == nil:
			h.uncountedReceives.Forget(it.record.MessageID)
			continue
		case again && retry.Held, errors.Is(it.err, errUnfinished):
			h.uncountedReceives.Add(it.record.MessageID)
		}
		if failed++; first == nil {
			first = it
		}
	}
	if first != nil {
		h.cfg.Logger.WarnContext(ctx, "awslambda: messages stay in the queue", "queue", first.record.EventSourceARN,
			"failed", failed, "of", len(items),
			"first", first.record.MessageID, "error", first.err)
	}
}
