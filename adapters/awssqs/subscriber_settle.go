package awssqs

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/internal/await"
	"github.com/txonce/txonce/internal/backoff"
	"github.com/txonce/txonce/internal/deliver"
)

// answer is the request that a settled message needs.
type answer struct {
	message   *received
	handled   bool            // delete it
	after     time.Duration   // otherwise: make it visible after that time
	heartbeat <-chan struct{} // closed when its last heartbeat is answered; nil: none is unanswered
}

// keep is the Deliverer's Keep. Messages that wait through no fault of their own wait in memory, with heartbeats,
// because SQS would count a receive each time that they are given back.
func (r *reception) keep(d *deliver.Delivery, retry *consumer.RetryError) bool {
	m := d.Raw.(*received)
	return retry.Held && retry.After <= keepAtMost && time.Now().Add(retry.After+r.queue.visibility).Before(m.end)
}

// settle is the Deliverer's Settle. flush follows.
func (r *reception) settle(d *deliver.Delivery, err error) {
	m := d.Raw.(*received)
	held, heartbeat := r.inFlight.settle(m)
	a := answer{message: m, handled: err == nil, heartbeat: heartbeat}
	if err == nil {
		r.uncounted.Forget(m.id)
	} else {
		retry, again := errors.AsType[*consumer.RetryError](err)
		if again {
			a.after = retry.After
		}
		if !again || retry.Held { // a receive that was no attempt
			r.uncounted.Add(m.id)
		}
	}
	if !held { // SQS has delivered it to others, or may have: this process must neither delete nor change it
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answers = append(r.answers, a)
}

// flush sends the answers. It waits while too many groups of answers are being sent, but not after a stop: Run must end
// although SQS may not answer, and the messages that are given back then make only a few groups.
func (r *reception) flush() {
	r.mu.Lock()
	answers := r.answers
	r.answers = nil
	r.mu.Unlock()
	if len(answers) == 0 {
		return
	}
	select {
	case r.sending <- struct{}{}:
		r.workers.Go(func() {
			defer func() { <-r.sending }()
			r.send(answers)
		})
	case <-r.deliverer.Context().Done():
		r.workers.Go(func() { r.send(answers) })
	}
}

// send sends answers. Deletions run in parallel. Changes of visibility keep their order, so that no message of a group
// becomes visible before an earlier one.
func (r *reception) send(answers []answer) {
	var handled, again []answer
	for _, a := range answers {
		if a.handled {
			handled = append(handled, a)
		} else {
			again = append(again, a)
		}
	}
	var deletions sync.WaitGroup
	for len(handled) > 0 {
		n := min(len(handled), maxBatch)
		chunk := handled[:n]
		deletions.Go(func() { r.sendUntilDone(chunk, &r.deletes, "sqs:DeleteMessage", r.delete) })
		handled = handled[n:]
	}
	for len(again) > 0 {
		n := min(len(again), maxBatch)
		for _, a := range again[:n] { // else a late heartbeat would keep the message invisible for longer
			if a.heartbeat != nil {
				<-a.heartbeat
			}
		}
		r.sendUntilDone(again[:n], &r.changes, "sqs:ChangeMessageVisibility", r.change)
		again = again[n:]
	}
	deletions.Wait()
}

// sendUntilDone repeats call with the answers that it returns, until their visibility timeout expires. Then SQS
// delivers those messages again: handled ones are duplicates then, and are deleted.
func (r *reception) sendUntilDone(answers []answer, o *outage, action string,
	call func(context.Context, []answer) ([]answer, error),
) {
	delay := backoff.FullJitter(backoff.Base, backoff.Cap)
	for failures := 0; ; {
		ctx, cancel := context.WithTimeout(r.requests, answerWithin)
		left, err := call(ctx, answers)
		cancel()
		if err != nil {
			r.failed(o, err, action)
		} else if len(left) < len(answers) {
			o.succeeded(r.requests)
		}
		now := time.Now()
		answers = nil
		for _, a := range left {
			if now.Before(a.message.until) { // no heartbeat changes the field until any more
				answers = append(answers, a)
			}
		}
		if late := len(left) - len(answers); late > 0 && r.requests.Err() == nil {
			r.log.Warn("awssqs: the results of messages could not be sent to SQS in time; SQS delivers them again",
				"messages", late, "operation", o.op)
		}
		if len(answers) == 0 {
			return
		}
		failures++
		if await.Sleep(r.requests, delay(failures)) != nil {
			r.log.Warn("awssqs: Run ended before the results of messages could be sent to SQS; SQS delivers them again",
				"messages", len(answers), "operation", o.op)
			return
		}
	}
}

// delete sends one request. It returns the answers to send again: all of them if it also returns an error.
func (r *reception) delete(ctx context.Context, answers []answer) ([]answer, error) {
	entries := make([]types.DeleteMessageBatchRequestEntry, len(answers))
	for i, a := range answers {
		id := strconv.Itoa(i)
		entries[i] = types.DeleteMessageBatchRequestEntry{Id: &id, ReceiptHandle: &a.message.receipt}
	}
	began := time.Now()
	out, err := r.cfg.Client.DeleteMessageBatch(ctx,
		&sqs.DeleteMessageBatchInput{QueueUrl: &r.queue.url, Entries: entries})
	if err != nil {
		return answers, err
	}
	return r.unconfirmed(answers, ids(out.Successful, func(e types.DeleteMessageBatchResultEntry) *string { return e.Id }), out.Failed, func(a answer) {
		r.events.Acked(ctx, driver.SourceEvent{Message: a.message.delivery.Message, Began: began})
	}), nil
}

// change sends one request, as delete does.
func (r *reception) change(ctx context.Context, answers []answer) ([]answer, error) {
	entries := make([]types.ChangeMessageVisibilityBatchRequestEntry, len(answers))
	for i, a := range answers {
		entries[i] = changeEntry(i, a.message, wholeSeconds(a.after, time.Until(a.message.end)))
	}
	out, err := r.cfg.Client.ChangeMessageVisibilityBatch(ctx,
		&sqs.ChangeMessageVisibilityBatchInput{QueueUrl: &r.queue.url, Entries: entries})
	if err != nil {
		return answers, err
	}
	return r.unconfirmed(answers, ids(out.Successful, func(e types.ChangeMessageVisibilityBatchResultEntry) *string { return e.Id }), out.Failed, func(a answer) {
		r.events.Returned(ctx, driver.SourceEvent{Message: a.message.delivery.Message, After: a.after})
	}), nil
}

// wholeSeconds rounds after up, so that a delay is never too short, within what SQS allows.
func wholeSeconds(after, most time.Duration) time.Duration {
	most = max(most.Truncate(time.Second), 0)
	if after >= most {
		return most
	}
	return max(after+time.Second-1, 0).Truncate(time.Second)
}

func ids[E any](entries []E, id func(E) *string) []*string {
	all := make([]*string, len(entries))
	for i, e := range entries {
		all[i] = id(e)
	}
	return all
}

// unconfirmed calls confirmed for the successful answers, and returns those to send again: SQS did not mention them, or
// the failure is SQS's fault. An answer that SQS refused as wrong is not repeated: SQS has delivered its message to
// another receiver, or will.
func (r *reception) unconfirmed(answers []answer, successful []*string, failed []types.BatchResultErrorEntry,
	confirmed func(answer),
) (again []answer) {
	done := make([]bool, len(answers))
	for _, id := range successful {
		if i := entryIndex(id, len(answers)); i >= 0 {
			done[i] = true
			confirmed(answers[i])
		}
	}
	for _, f := range failed {
		i := entryIndex(f.Id, len(answers))
		if i < 0 || done[i] || !f.SenderFault && !stale(f) {
			continue
		}
		done[i] = true
		r.log.Warn("awssqs: SQS refuses the result of a message; it delivers the message again", "position",
			answers[i].message.delivery.Message.Position,
			"handled", answers[i].handled, "error", fmt.Sprintf("%s: %s", aws.ToString(f.Code),
				aws.ToString(f.Message)))
	}
	for i, a := range answers {
		if !done[i] {
			again = append(again, a)
		}
	}
	return again
}
