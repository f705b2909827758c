package awssqs

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/txonce/txonce/internal/await"
	"github.com/txonce/txonce/internal/backoff"
	"github.com/txonce/txonce/internal/counts"
	"github.com/txonce/txonce/internal/deliver"
)

const (
	answerWithin = 10 * time.Second // how long SQS may take to answer, beyond long polling
	minRequest   = 2 * time.Second  // after a stop, a request for messages may still last until it is this old
	settleWithin = 10 * time.Second // how long deletions may take after all handlers have returned
	keepAtMost   = time.Minute      // longer delays are left to SQS
)

// reception is one Run of a Subscriber.
type reception struct {
	cfg       *SubscriberConfig
	log       *slog.Logger
	queue     queue
	deliverer *deliver.Deliverer
	inFlight  inFlight
	uncounted *counts.Counter // see Subscriber.uncountedReceives

	requests context.Context // of all requests to SQS; ends some time after the handlers
	cancel   context.CancelFunc
	workers  sync.WaitGroup
	sending  chan struct{} // holds one for each group of answers that is being sent

	receives, deletes, changes outage
	events                     *deliver.Observer

	mu        sync.Mutex
	receivers int
	answers   []answer // of settled messages; not being sent yet
}

func newReception(ctx context.Context, s *Subscriber, q queue) *reception {
	r := &reception{
		cfg: &s.cfg, log: s.log, queue: q, uncounted: &s.uncountedReceives,
		sending: make(chan struct{}, 2*s.cfg.Concurrency), receivers: 1,
	}
	r.requests, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	r.events = deliver.NewObserver("awssqs", "aws_sqs", q.name, "SQS", s.cfg.Trace, s.log)
	r.receives = outage{op: "receive", report: r.events.Broker}
	r.deletes = outage{op: "delete", report: r.events.NewPause("SQS")}
	r.changes = outage{op: "change visibility", report: r.events.NewPause("SQS")}
	r.deliverer = deliver.New(ctx, deliver.Config{
		Processor:     s.cfg.Processor,
		Concurrency:   s.cfg.Concurrency,
		MaxBatch:      s.cfg.MaxBatch,
		MaxBatchBytes: s.cfg.MaxBatchBytes,
		Capacity:      s.cfg.MaxUnfinished,
		Settle:        r.settle,
		Flush:         r.flush,
		Keep:          r.keep,
		Logger:        s.log,
	})
	return r
}

// run receives until Run's context ends or the Deliverer fails.
func (r *reception) run() error {
	r.events.Subscribed(r.requests)
	var beating sync.WaitGroup
	beating.Go(r.heartbeats)
	r.workers.Go(r.receive)
	<-r.deliverer.Context().Done()
	err := r.deliverer.Drain(r.cfg.Grace, deliver.HandlerExit)

	limit := time.AfterFunc(settleWithin, r.cancel)
	r.workers.Wait()
	limit.Stop()
	r.cancel()
	beating.Wait()
	r.events.Unsubscribed(context.WithoutCancel(r.requests), err)
	return err
}

// receive is one receiver: it requests messages until the Deliverer's Context ends. While requests return as many
// messages as they can, further receivers are started. A receiver that gets nothing ends, unless it is the last one.
func (r *reception) receive() {
	delay := backoff.FullJitter(backoff.Base, backoff.Cap)
	token, failures := rand.Text(), 0
	for {
		n := r.deliverer.Reserve(maxBatch)
		if n == 0 {
			return
		}
		got, err := r.request(n, token)
		r.take(got)
		r.deliverer.Release(n)
		switch {
		case r.deliverer.Context().Err() != nil:
			return
		case err != nil:
			failures++
			r.failed(&r.receives, err, "sqs:ReceiveMessage")
			if r.endReceiver() {
				return
			}
			_ = await.Sleep(r.deliverer.Context(), delay(failures))
			continue
		}
		r.receives.succeeded(r.requests)
		token, failures = rand.Text(), 0
		switch {
		case len(got) == maxBatch:
			r.startReceiver()
		case len(got) == 0 && r.endReceiver():
			return
		}
	}
}

// request is one request for messages. When the answer of a request to a FIFO queue was lost, SQS repeats it for the
// same token.
//
// A stop cancels the request, but not in its first moments. When the queue has messages, the answer is then on its way:
// if the request were cancelled, its messages would be delivered only after their visibility timeout. So request waits
// for the answer, and its messages are given back at once.
func (r *reception) request(n int, token string) ([]types.Message, error) {
	ctx, cancel := context.WithTimeout(r.requests, r.cfg.WaitTime+answerWithin)
	defer cancel()
	began := time.Now()
	defer context.AfterFunc(r.deliverer.Context(), func() {
		_ = await.Sleep(ctx, time.Until(began.Add(minRequest)))
		cancel()
	})()
	in := &sqs.ReceiveMessageInput{
		QueueUrl:                    &r.queue.url,
		MaxNumberOfMessages:         int32(n),
		VisibilityTimeout:           int32(r.queue.visibility / time.Second),
		WaitTimeSeconds:             int32(r.cfg.WaitTime / time.Second),
		MessageAttributeNames:       []string{"All"},
		MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll},
	}
	if r.queue.fifo {
		in.ReceiveRequestAttemptId = &token
	}
	out, err := r.cfg.Client.ReceiveMessage(ctx, in)
	if err != nil {
		return nil, err
	}
	return out.Messages, nil
}

// startReceiver starts one more receiver, unless there are enough.
func (r *reception) startReceiver() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.receivers < r.cfg.Receivers {
		r.receivers++
		r.workers.Go(r.receive)
	}
}

// endReceiver reports whether the calling receiver must end. The last one must not.
func (r *reception) endReceiver() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.receivers == 1 {
		return false
	}
	r.receivers--
	return true
}

// failed records an error of SQS, and ends the reception when the error is fatal and persists. action is the permission
// that may be missing.
func (r *reception) failed(o *outage, err error, action string) {
	if errors.Is(err, context.Canceled) && r.requests.Err() != nil {
		return
	}
	if o.failed(r.requests, err) {
		r.deliverer.Fail(explain(err, action))
	}
}
