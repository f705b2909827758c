package awssqs

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/lanes"
)

// answer is what SQS is to be told about a message.
type answer struct {
	*holding
	done  bool            // delete it
	after time.Duration   // otherwise: deliver it again, no sooner than this from now
	beat  <-chan struct{} // closed when no sign of life is on its way; nil: none is
}

// keep has deferrals that are nobody's fault wait here, with signs of life: given back to SQS each would count as a receive.
func (r *reception) keep(d *lanes.Delivery, retry *consumer.RetryError) bool {
	h := d.Raw.(*holding)
	return retry.Uncounted && retry.After <= keepAtMost && time.Now().Add(retry.After+r.queue.visibility).Before(h.end)
}

// settle takes the answer for a message. flush follows.
func (r *reception) settle(d *lanes.Delivery, err error) {
	h := d.Raw.(*holding)
	held, beat := r.holds.settle(h)
	a := answer{holding: h, done: err == nil, beat: beat}
	if err == nil {
		r.excused.forget(h.id)
	} else {
		retry, again := errors.AsType[*consumer.RetryError](err)
		if again {
			a.after = retry.After
		}
		if !again || retry.Uncounted { // a receive that was no attempt
			r.excused.add(h.id)
		}
	}
	if !held { // SQS has given it to others, or may have: it is not ours to delete or to change
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answers = append(r.answers, a)
}

// flush sends what was settled. It waits only while too much is on its way already, and no longer than until a stop: Run must end
// although SQS may not answer, and what has not been handled yet by then goes back in few groups.
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
	case <-r.lanes.Context().Done():
		r.workers.Go(func() { r.send(answers) })
	}
}

// send tells SQS. Deletions go side by side. Other changes keep their order, so that no message of a group is visible before one
// that it stands behind.
func (r *reception) send(answers []answer) {
	var done, again []answer
	for _, a := range answers {
		if a.done {
			done = append(done, a)
		} else {
			again = append(again, a)
		}
	}
	var deletions sync.WaitGroup
	for len(done) > 0 {
		n := min(len(done), maxBatch)
		chunk := done[:n]
		deletions.Go(func() { r.insist(chunk, &r.deletes, "sqs:DeleteMessage", r.delete) })
		done = done[n:]
	}
	for len(again) > 0 {
		n := min(len(again), maxBatch)
		for _, a := range again[:n] { // else a late one would hold the message longer than asked for
			if a.beat != nil {
				<-a.beat
			}
		}
		r.insist(again[:n], &r.changes, "sqs:ChangeMessageVisibility", r.change)
		again = again[n:]
	}
	deletions.Wait()
}

// insist repeats call with those that it returns for a further try, for as long as the messages are ours. After that SQS delivers
// them again, to somebody: handled ones are then duplicates, and deleted as such.
func (r *reception) insist(answers []answer, o *outage, action string, call func(context.Context, []answer) ([]answer, error)) {
	retry := consumer.FullJitter(consumer.DefaultBackoffBase, consumer.DefaultBackoffCap)
	for failures := 0; ; {
		ctx, cancel := context.WithTimeout(r.life, answerWithin)
		left, err := call(ctx, answers)
		cancel()
		if err != nil {
			r.refused(o, err, action)
		} else if len(left) < len(answers) {
			o.over()
		}
		now := time.Now()
		answers = nil
		for _, a := range left {
			if a.ours(now) {
				answers = append(answers, a)
			}
		}
		if late := len(left) - len(answers); late > 0 && r.life.Err() == nil {
			r.log.Warn("awssqs: SQS could not be told in time what became of messages; it delivers them again", "messages", late, "operation", o.op)
		}
		if len(answers) == 0 {
			return
		}
		failures++
		r.rest(r.life, retry(failures))
		if r.life.Err() != nil {
			r.log.Warn("awssqs: the end did not wait for SQS to be told what became of messages; it delivers them again", "messages", len(answers), "operation", o.op)
			return
		}
	}
}

// ours reports whether the visibility timeout is still running.
func (a answer) ours(now time.Time) bool { return now.Before(a.until) } // nobody writes until any more

// delete is one request. It returns what is worth another try; all of it beside an error.
func (r *reception) delete(ctx context.Context, answers []answer) ([]answer, error) {
	entries := make([]types.DeleteMessageBatchRequestEntry, len(answers))
	for i, a := range answers {
		id := strconv.Itoa(i)
		entries[i] = types.DeleteMessageBatchRequestEntry{Id: &id, ReceiptHandle: &a.receipt}
	}
	out, err := r.cfg.Client.DeleteMessageBatch(ctx, &sqs.DeleteMessageBatchInput{QueueUrl: &r.url, Entries: entries})
	if err != nil {
		return answers, err
	}
	return r.sort(answers, ids(out.Successful, func(e types.DeleteMessageBatchResultEntry) *string { return e.Id }), out.Failed, func(a answer) {
		if f := r.cfg.Trace.Deleted; f != nil {
			f(a.delivery.Message)
		}
	}), nil
}

// change is one request, as delete.
func (r *reception) change(ctx context.Context, answers []answer) ([]answer, error) {
	entries := make([]types.ChangeMessageVisibilityBatchRequestEntry, len(answers))
	for i, a := range answers {
		entries[i] = changeEntry(i, a.holding, wholeSeconds(a.after, time.Until(a.end)))
	}
	out, err := r.cfg.Client.ChangeMessageVisibilityBatch(ctx, &sqs.ChangeMessageVisibilityBatchInput{QueueUrl: &r.url, Entries: entries})
	if err != nil {
		return answers, err
	}
	return r.sort(answers, ids(out.Successful, func(e types.ChangeMessageVisibilityBatchResultEntry) *string { return e.Id }), out.Failed, func(a answer) {
		if f := r.cfg.Trace.Returned; f != nil {
			f(a.delivery.Message, a.after)
		}
	}), nil
}

// wholeSeconds is after, rounded up so that a delay is kept, within what SQS allows.
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

// sort tells what SQS confirmed, and returns what is worth another try: what failed by SQS's fault, and what it says nothing about.
// What it refuses for our fault is not ours any more, and will be delivered again.
func (r *reception) sort(answers []answer, successful []*string, failed []types.BatchResultErrorEntry, confirmed func(answer)) (left []answer) {
	over := make([]bool, len(answers))
	for _, id := range successful {
		if i := entryIndex(id, len(answers)); i >= 0 {
			over[i] = true
			confirmed(answers[i])
		}
	}
	for _, f := range failed {
		i := entryIndex(f.Id, len(answers))
		if i < 0 || over[i] || !f.SenderFault && !stale(f) {
			continue
		}
		over[i] = true
		r.log.Warn("awssqs: SQS refuses to be told what became of a message; it delivers it again", "position", answers[i].delivery.Message.Position,
			"handled", answers[i].done, "error", fmt.Sprintf("%s: %s", value(f.Code), value(f.Message)))
	}
	for i, a := range answers {
		if !over[i] {
			left = append(left, a)
		}
	}
	return left
}
