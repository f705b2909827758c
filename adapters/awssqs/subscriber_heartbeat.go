package awssqs

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/internal/await"
	"github.com/txonce/txonce/internal/deliver"
)

// received is one delivery of a message. SQS delivers the message to no other receiver during its visibility timeout.
// Each heartbeat starts that timeout again.
type received struct {
	delivery *deliver.Delivery
	id       string
	receipt  string
	end      time.Time // SQS extends the visibility timeout no further

	// Under inFlight.mu.
	state receivedState
	// the known end of the visibility timeout: after it SQS may deliver the message to other receivers
	until     time.Time
	extended  time.Time     // when its last heartbeat was sent, or the message was received
	heartbeat chan struct{} // closed when the heartbeat that was sent is answered; nil: none is unanswered
}

type receivedState uint8

const (
	held    receivedState = iota
	settled               // gets no more heartbeats
	lost                  // SQS may have delivered it to others
)

// inFlight are the messages that were received and not settled.
type inFlight struct {
	mu        sync.Mutex
	held      map[*received]struct{} // those that get heartbeats
	unsettled map[string]int         // deliveries by message ID, also lost ones that a handler may still handle
}

func (f *inFlight) add(added []*received) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.held == nil {
		f.held, f.unsettled = map[*received]struct{}{}, map[string]int{}
	}
	for _, m := range added {
		f.held[m] = struct{}{}
		f.unsettled[m.id]++
	}
}

func (f *inFlight) isLost(m *received) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return m.state == lost
}

// settle ends the heartbeats of m. It reports whether m was held until now, and returns a channel that is closed when
// the last heartbeat is answered; nil: none is unanswered.
func (f *inFlight) settle(m *received) (wasHeld bool, heartbeat <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.held, m)
	if f.unsettled[m.id]--; f.unsettled[m.id] <= 0 {
		delete(f.unsettled, m.id)
	}
	if m.state != held {
		return false, nil
	}
	m.state = settled
	return true, m.heartbeat
}

// lose marks as lost those of all that were held until now, and returns them.
func (f *inFlight) lose(all []*received) (nowLost []*received) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range all {
		if m.state == held {
			nowLost = append(nowLost, m)
			f.markLost(m)
		}
	}
	return nowLost
}

// markLost marks m as lost. f.mu is held.
func (f *inFlight) markLost(m *received) {
	m.state = lost
	delete(f.held, m)
}

// has reports whether this process has an unsettled delivery of that message. SQS has given up on that delivery,
// because it delivered the message again. Its handler may not have noticed yet, or may go on although it is cancelled.
func (f *inFlight) has(id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.unsettled[id] > 0
}

// due returns the messages that need a heartbeat now, and marks them; and those whose visibility timeout has expired,
// which it marks as lost. wake is when to call it again.
func (f *inFlight) due(now time.Time, visibility time.Duration) (due, expired []*received, wake time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	wake = now.Add(visibility / 4)
	for m := range f.held {
		if !now.Before(m.until) {
			expired = append(expired, m)
			f.markLost(m)
			continue
		}
		if m.until.Before(wake) {
			wake = m.until
		}
		if m.heartbeat == nil && now.Sub(m.extended) >= visibility/4 &&
			now.Add(extension(m, now, visibility)).After(m.until) {
			m.heartbeat = make(chan struct{})
			due = append(due, m)
		}
	}
	return due, expired, wake
}

// extension is the visibility timeout that a heartbeat asks for, in whole seconds.
func extension(m *received, now time.Time, visibility time.Duration) time.Duration {
	return min(visibility, m.end.Sub(now)).Truncate(time.Second)
}

// answered ends a heartbeat that was sent at that time. extension is zero when it failed.
func (f *inFlight) answered(m *received, sent time.Time, extension time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(m.heartbeat)
	m.heartbeat = nil
	if extension > 0 && m.state == held {
		m.until, m.extended = sent.Add(extension), sent
	}
}

// heartbeats sends heartbeats for all held messages, also for those that wait, until r.requests ends. When SQS has
// delivered a message to others, or may have, the message is lost and its handler is cancelled.
func (r *reception) heartbeats() {
	var sending sync.WaitGroup
	defer sending.Wait()
	for {
		due, expired, wake := r.inFlight.due(time.Now(), r.queue.visibility)
		if len(expired) > 0 {
			sending.Go(func() {
				r.reportLost(expired, "their visibility timeout expired before SQS could extend it, or SQS extends it no further")
			})
		}
		for len(due) > 0 {
			n := min(len(due), maxBatch)
			chunk := due[:n]
			sending.Go(func() { r.heartbeat(chunk) })
			due = due[n:]
		}
		if await.Sleep(r.requests, time.Until(wake)) != nil {
			return
		}
	}
}

// heartbeat is one request for up to ten messages.
func (r *reception) heartbeat(all []*received) {
	sent := time.Now()
	ctx, cancel := context.WithTimeout(r.requests, min(answerWithin, max(r.queue.visibility/2, time.Second)))
	defer cancel()
	entries := make([]types.ChangeMessageVisibilityBatchRequestEntry, len(all))
	extensions := make([]time.Duration, len(all))
	for i, m := range all {
		extensions[i] = extension(m, sent, r.queue.visibility)
		entries[i] = changeEntry(i, m, extensions[i])
	}
	out, err := r.cfg.Client.ChangeMessageVisibilityBatch(ctx,
		&sqs.ChangeMessageVisibilityBatchInput{QueueUrl: &r.queue.url, Entries: entries})
	if err != nil {
		clear(extensions)
		r.failed(&r.changes, err, "sqs:ChangeMessageVisibility")
	} else {
		r.changes.succeeded(r.requests)
	}
	var gone []*received
	why := ""
	if err == nil {
		for _, f := range out.Failed {
			i := entryIndex(f.Id, len(all))
			if i < 0 {
				continue
			}
			extensions[i] = 0
			if f.SenderFault || stale(f) {
				gone, why = append(gone, all[i]), aws.ToString(f.Code)+": "+aws.ToString(f.Message)
			}
		}
	}
	for i, m := range all {
		r.inFlight.answered(m, sent, extensions[i])
	}
	r.reportLost(r.inFlight.lose(gone), why)
}

// stale reports whether f says that the receipt handle is not valid any more.
func stale(f types.BatchResultErrorEntry) bool {
	switch plainCode(aws.ToString(f.Code)) {
	case "ReceiptHandleIsInvalid", "MessageNotInflight", "InvalidParameterValue", "InvalidIdFormat":
		return true
	}
	return false
}

// reportLost cancels the handlers of lost messages.
func (r *reception) reportLost(gone []*received, why string) {
	if len(gone) == 0 {
		return
	}
	r.log.Warn("awssqs: messages are lost to this process and will be delivered again; their handlers are cancelled",
		"messages", len(gone), "first", gone[0].delivery.Message.Position, "why", why)
	for _, m := range gone {
		r.events.Lost(r.requests, driver.SourceEvent{Message: m.delivery.Message, Messages: 1, Err: errors.New(why)})
		r.deliverer.Lose(m.delivery)
	}
}

func changeEntry(i int, m *received, visibility time.Duration) types.ChangeMessageVisibilityBatchRequestEntry {
	id := strconv.Itoa(i)
	return types.ChangeMessageVisibilityBatchRequestEntry{
		Id: &id, ReceiptHandle: &m.receipt,
		VisibilityTimeout: int32(visibility / time.Second),
	}
}

// entryIndex is the index of the entry with that id among n entries; -1: there is none.
func entryIndex(id *string, n int) int {
	i, err := strconv.Atoi(aws.ToString(id))
	if err != nil || i < 0 || i >= n {
		return -1
	}
	return i
}
