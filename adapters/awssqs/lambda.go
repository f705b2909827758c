package awssqs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/lanes"
	"github.com/txonce/txonce/outbox"
)

// LambdaHandler handles the messages that AWS Lambda takes from a queue:
//
//	lambda.Start(handler.Handle) // of github.com/aws/aws-lambda-go/lambda, which this package does not import
//
// The event source mapping MUST have ReportBatchItemFailures among its FunctionResponseTypes. Without it Lambda does not read the
// answer, and DELETES every message of a batch of which some have failed: they are lost.
//
// Lambda deletes what the answer does not name, so it names every message whose effects are not committed. The queue keeps those,
// and delivers them again; each delivery counts towards the maxReceiveCount of its redrive policy, whose fault it ever was, so
// give it MinReceives, and let the Processor park what it gives up on.
//
// On a FIFO queue what follows a failed message of its group is not tried, and is named too. Messages of other groups are
// handled: naming those that are done would only repeat them, and wear out their receive counts.
type LambdaHandler struct {
	cfg     LambdaConfig
	batches consumer.BatchProcessor // nil: Processor takes one at a time
	excused excused

	mu   sync.Mutex
	urls map[string]string // of queues, by ARN
}

// NewLambdaHandler checks cfg. It talks to nobody.
func NewLambdaHandler(cfg LambdaConfig) (*LambdaHandler, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	batches, _ := cfg.Processor.(consumer.BatchProcessor)
	return &LambdaHandler{cfg: cfg, batches: batches, urls: make(map[string]string)}, nil
}

// errUnfinished is why a message has no answer yet.
var errUnfinished = errors.New("the invocation ends before it was handled")

// Handle is one invocation. An error means that nothing can be said of single messages: Lambda keeps all of them, as it does when
// the function is killed at any point. What was committed by then is a duplicate when it comes again, and has no second effect.
func (h *LambdaHandler) Handle(ctx context.Context, event LambdaEvent) (LambdaResponse, error) {
	if err := checkEvent(event); err != nil {
		return LambdaResponse{}, err
	}
	limit, work := ctx, ctx
	if deadline, ok := ctx.Deadline(); ok {
		var cancelWork, cancelLimit context.CancelFunc
		work, cancelWork = context.WithDeadline(ctx, deadline.Add(-h.cfg.Margin))
		defer cancelWork()
		limit, cancelLimit = context.WithDeadline(ctx, deadline.Add(-h.cfg.Margin/2))
		defer cancelLimit()
	}
	for i := range event.Records {
		addSource(h.cfg.Processor, event.Records[i].EventSourceARN)
	}
	if starter, ok := h.cfg.Processor.(consumer.Starter); ok {
		if err := starter.Start(work); err != nil {
			return LambdaResponse{}, fmt.Errorf("awssqs: the messages stay in the queue: %w", err)
		}
	}
	items := h.items(event)
	h.process(work, limit, items)
	h.log(ctx, items)
	h.defers(limit, items)
	return response(items), nil
}

// checkEvent refuses an event whose messages cannot be named.
func checkEvent(event LambdaEvent) error {
	if len(event.Records) == 0 {
		return errors.New("awssqs: the event has no Records; is the function's event source a queue?")
	}
	for i, r := range event.Records {
		switch {
		case r.EventSource != "" && r.EventSource != "aws:sqs":
			return fmt.Errorf("awssqs: record %d comes from %s, not from a queue", i, r.EventSource)
		case r.MessageID == "":
			return fmt.Errorf("awssqs: record %d has no messageId, so the whole batch stays in the queue: %w", i, errors.Join(r.malformed, errUnfinished))
		}
	}
	return nil
}

// lambdaItem is one message of an event.
type lambdaItem struct {
	record *LambdaRecord
	msg    *consumer.Message
	fifo   bool
	group  string // of a FIFO queue; empty: it could not be read
	err    error  // nil: it is done
}

func (h *LambdaHandler) items(event LambdaEvent) []*lambdaItem {
	items := make([]*lambdaItem, len(event.Records))
	for i := range event.Records {
		r := &event.Records[i]
		it := &lambdaItem{record: r, err: errUnfinished, fifo: strings.HasSuffix(r.EventSourceARN, fifoSuffix)}
		items[i] = it
		if it.fifo { // else it is a tenant of a fair queue
			it.group = r.Attributes["MessageGroupId"]
		}
		if r.malformed != nil {
			it.err = r.malformed
			continue
		}
		it.msg = ToMessage(r.EventSourceARN[strings.LastIndexByte(r.EventSourceARN, ':')+1:], r.message())
		it.msg.Raw = r
		it.msg.Attempt = max(it.msg.Attempt-h.excused.of(r.MessageID), 1)
		if it.group != "" && it.msg.Key != "" && groupID(&outbox.Message{Key: it.msg.Key}) != it.group {
			it.msg.Key = it.group // the order is that of the group, whatever an attribute says
		}
	}
	return items
}

// process handles all in order, in batches. After limit nobody waits for what a handler that ignores its context may still do: of
// it and a later delivery exactly one commits.
func (h *LambdaHandler) process(work, limit context.Context, items []*lambdaItem) {
	var held heldGroups
	for start := 0; start < len(items); {
		var batch []*lambdaItem
		for ; start < len(items) && len(batch) < h.most(); start++ {
			switch it := items[start]; {
			case held.has(it):
				it.err = &consumer.RetryError{Err: errHeld, Uncounted: true}
			case it.msg == nil:
				held.add(it)
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
		case <-limit.Done():
		}
		for _, it := range batch {
			held.add(it)
		}
	}
}

var errHeld = errors.New("it stands behind a message of its group that failed")

// heldGroups are those of a FIFO queue of which a message failed.
type heldGroups struct {
	groups map[string]bool
	all    bool // it could not be read of which one it was
}

func (g *heldGroups) has(it *lambdaItem) bool { return it.fifo && (g.all || g.groups[it.group]) }

func (g *heldGroups) add(it *lambdaItem) {
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

func (h *LambdaHandler) most() int {
	if h.batches == nil {
		return 1
	}
	return h.cfg.MaxBatch
}

func (h *LambdaHandler) call(ctx context.Context, batch []*lambdaItem) []error {
	msgs := make([]*consumer.Message, len(batch))
	for i, it := range batch {
		msgs[i] = it.msg
	}
	return lanes.Call(ctx, h.cfg.Processor, msgs)
}

// response names what is not done.
func response(items []*lambdaItem) LambdaResponse {
	r := LambdaResponse{BatchItemFailures: []LambdaFailure{}} // an empty list, where null might be taken for a failure of all
	named := make(map[string]bool)
	for _, it := range items {
		if id := it.record.MessageID; it.err != nil && !named[id] {
			named[id] = true
			r.BatchItemFailures = append(r.BatchItemFailures, LambdaFailure{ItemIdentifier: id})
		}
	}
	return r
}

// log tells of an invocation in which something failed, and counts what was no attempt.
func (h *LambdaHandler) log(ctx context.Context, items []*lambdaItem) {
	var first *lambdaItem
	failed := 0
	for _, it := range items {
		retry, again := errors.AsType[*consumer.RetryError](it.err)
		switch {
		case it.err == nil:
			h.excused.forget(it.record.MessageID)
			continue
		case again && retry.Uncounted, errors.Is(it.err, errUnfinished):
			h.excused.add(it.record.MessageID)
		}
		if failed++; first == nil {
			first = it
		}
	}
	if first != nil {
		h.cfg.Logger.WarnContext(ctx, "awssqs: messages stay in the queue", "queue", first.record.EventSourceARN, "failed", failed, "of", len(items),
			"first", first.record.MessageID, "error", first.err)
	}
}
