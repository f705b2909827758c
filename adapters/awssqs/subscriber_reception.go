package awssqs

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"runtime/debug"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/lanes"
)

const (
	answerWithin = 10 * time.Second // how long SQS may take to answer, beyond long polling
	underway     = 2 * time.Second  // how old a request for messages is, at the least, when a stop gives it up
	closing      = 10 * time.Second // how long deletions may take when all handlers have returned
	keepAtMost   = time.Minute      // longer deferrals are SQS's to wait out
)

// reception is one Run of a Subscriber.
type reception struct {
	*Subscriber
	queue
	lanes *lanes.Lanes
	holds holds

	life    context.Context // of what is sent to SQS; ends some time after the handlers
	die     context.CancelFunc
	workers sync.WaitGroup
	sending chan struct{} // holds one for each group of answers that is on its way

	receives, deletes, changes outage

	mu        sync.Mutex
	receivers int
	answers   []answer // settled, and not yet on their way
}

func newReception(ctx context.Context, s *Subscriber, q queue) *reception {
	r := &reception{Subscriber: s, queue: q, sending: make(chan struct{}, 2*s.cfg.Concurrency), receivers: 1}
	r.life, r.die = context.WithCancel(context.WithoutCancel(ctx))
	for op, o := range map[string]*outage{"receive": &r.receives, "delete": &r.deletes, "change visibility": &r.changes} {
		*o = outage{op: op, log: s.log}
	}
	r.lanes = lanes.New(ctx, lanes.Config{
		Processor:     s.cfg.Processor,
		Concurrency:   s.cfg.Concurrency,
		MaxBatch:      s.cfg.MaxBatch,
		MaxBatchBytes: s.cfg.MaxBatchBytes,
		Capacity:      s.cfg.MaxUnfinished,
		Grace:         s.cfg.Grace,
		Settle:        r.settle,
		Flush:         r.flush,
		Keep:          r.keep,
		Logger:        s.log,
	})
	return r
}

// run is a reception from the first request to the last.
func (r *reception) run() error {
	var holding sync.WaitGroup
	holding.Go(r.hold)
	r.workers.Go(r.receive)
	<-r.lanes.Context().Done()
	err := r.lanes.Drain()

	limit := time.AfterFunc(closing, r.die)
	r.workers.Wait()
	limit.Stop()
	r.die()
	holding.Wait()
	return err
}

// receive asks for messages until nothing more is to be taken in. While requests come back full, more of it run.
func (r *reception) receive() {
	retry := consumer.FullJitter(consumer.DefaultBackoffBase, consumer.DefaultBackoffCap)
	token, failures := rand.Text(), 0
	for {
		n := r.lanes.Reserve(maxBatch)
		if n == 0 {
			return
		}
		got, err := r.ask(n, token)
		r.take(got)
		r.lanes.Release(n)
		switch {
		case r.lanes.Context().Err() != nil:
			return
		case err != nil:
			failures++
			r.refused(&r.receives, err, "sqs:ReceiveMessage")
			if r.alone() {
				r.rest(r.lanes.Context(), retry(failures))
				continue
			}
			return
		}
		r.receives.over()
		token, failures = rand.Text(), 0
		switch {
		case len(got) == maxBatch:
			r.widen()
		case len(got) == 0 && !r.alone():
			return
		}
	}
}

// ask is one request for messages. token lets SQS answer a FIFO queue's request again whose answer was lost.
//
// A stop gives the request up, but not while it is young: where there are messages its answer is on its way, and what it brings
// would be received by nobody and held for a visibility timeout. It comes, and goes back at once.
func (r *reception) ask(n int, token string) ([]types.Message, error) {
	ctx, cancel := context.WithTimeout(r.life, r.cfg.WaitTime+answerWithin)
	defer cancel()
	asked := time.Now()
	defer context.AfterFunc(r.lanes.Context(), func() {
		r.rest(ctx, time.Until(asked.Add(underway)))
		cancel()
	})()
	in := &sqs.ReceiveMessageInput{
		QueueUrl:                    &r.url,
		MaxNumberOfMessages:         int32(n),
		VisibilityTimeout:           int32(r.queue.visibility / time.Second),
		WaitTimeSeconds:             int32(r.cfg.WaitTime / time.Second),
		MessageAttributeNames:       []string{"All"},
		MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll},
	}
	if r.fifo {
		in.ReceiveRequestAttemptId = &token
	}
	out, err := r.cfg.Client.ReceiveMessage(ctx, in)
	if err != nil {
		return nil, err
	}
	return out.Messages, nil
}

// take holds what was received, and hands it on. What this process has already is not for it: kept here it would wait for the other
// delivery, for as long as that takes, and no other process could do better. It goes back, each time for longer, and so does
// what stands behind it in its group.
func (r *reception) take(got []types.Message) {
	if len(got) == 0 {
		return
	}
	now := time.Now()
	var taken []*holding
	var ds []*lanes.Delivery
	again := map[string]*consumer.RetryError{}
	for _, raw := range got {
		h := &holding{receipt: value(raw.ReceiptHandle), id: value(raw.MessageId), until: now.Add(r.queue.visibility), beaten: now}
		h.end = now.Add(maxInFlight - r.cfg.WaitTime - answerWithin) // SQS counts from its own receive, at the earliest when we asked
		msg := ToMessage(r.name, raw)
		msg.Attempt = max(msg.Attempt-r.excused.of(h.id), 1)
		h.delivery = &lanes.Delivery{Message: msg, Size: sizeOf(raw), Raw: h}
		if msg.Malformed != nil {
			r.log.Warn("awssqs: a message cannot be read; the Processor gets it as it is", "position", msg.Position, "error", msg.Malformed)
		}
		switch {
		case r.fifo:
			h.delivery.Key = group(raw)
		case r.cfg.OrderBy != nil:
			key, err := r.orderBy(msg)
			if err != nil {
				r.lanes.Fail(err) // and what is added now is given back
			}
			msg.Key, h.delivery.Key = key, key
		}
		behind := again[h.delivery.Key]
		if twice := r.holds.has(h.id); twice || r.fifo && behind != nil {
			if behind == nil {
				behind = &consumer.RetryError{Err: errTwice, After: r.putBack(h.id), Uncounted: true}
			}
			if r.fifo {
				again[h.delivery.Key] = behind
			}
			if twice {
				r.log.Warn("awssqs: SQS delivers a message again that this process is still busy with; it goes back", "position", msg.Position, "for", behind.After)
			}
			r.holds.add([]*holding{h})
			r.settle(h.delivery, behind)
			continue
		}
		if f := r.cfg.Trace.Received; f != nil {
			f(msg)
		}
		taken, ds = append(taken, h), append(ds, h.delivery)
	}
	r.flush()
	r.holds.add(taken)
	r.lanes.Add(ds...)
	for _, h := range taken {
		if r.holds.isLost(h) { // before it was added
			r.lanes.Lose(h.delivery)
		}
	}
}

// putBack is for how long a message goes back that this process is busy with: longer each time, since SQS counts its receives,
// and not quite regularly, since of processes that ask in step the same one would get it each time.
func (r *reception) putBack(id string) time.Duration {
	mean := time.Duration(r.excused.of(id)+1) * r.queue.visibility / 2
	return mean*3/4 + mrand.N(mean/2+1)
}

var errTwice = errors.New("this process is still busy with an earlier delivery of the message")

// orderBy is the user's function, which may panic.
func (r *reception) orderBy(msg *consumer.Message) (key string, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("SubscriberConfig.OrderBy panicked on message %s: %w", msg.Position, &consumer.PanicError{Value: v, Stack: debug.Stack()})
		}
	}()
	return r.cfg.OrderBy(msg), nil
}

// widen starts one more receiver, if there is place for it.
func (r *reception) widen() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.receivers < r.cfg.Receivers {
		r.receivers++
		r.workers.Go(r.receive)
	}
}

// alone reports whether the caller is the only receiver. If not, it is to end.
func (r *reception) alone() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.receivers == 1 {
		return true
	}
	r.receivers--
	return false
}

// refused takes note of an error of SQS, and ends the reception where it is final and does not pass.
func (r *reception) refused(o *outage, err error, action string) {
	if errors.Is(err, context.Canceled) && r.life.Err() != nil {
		return
	}
	if o.begin(err) {
		r.lanes.Fail(explain(err, action))
	}
}

// rest waits.
func (r *reception) rest(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
