package awssqs

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/txonce/txonce/internal/deliver"
)

// holding is our hold of one message: SQS delivers it to nobody else while its visibility timeout runs, and each sign of life starts
// that anew.
type holding struct {
	delivery *deliver.Delivery
	id       string
	receipt  string
	end      time.Time // SQS lets nobody hold it longer

	// Under holds.mu.
	state  holdState
	until  time.Time     // SQS may give it to others from here on, as far as we know
	beaten time.Time     // when its last sign of life, or the receive, was answered
	beat   chan struct{} // closed when the one that is on its way is answered; nil: none is
}

type holdState uint8

const (
	held    holdState = iota
	settled           // nothing is done any more to keep it
	lost              // not ours
)

// holds are the messages that are held.
type holds struct {
	mu      sync.Mutex
	all     map[*holding]struct{}
	unended map[string]int // by message: taken and not settled, also what is lost and still being handled
}

func (hs *holds) add(added []*holding) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if hs.all == nil {
		hs.all, hs.unended = map[*holding]struct{}{}, map[string]int{}
	}
	for _, h := range added {
		hs.all[h] = struct{}{}
		hs.unended[h.id]++
	}
}

func (hs *holds) isLost(h *holding) bool {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	return h.state == lost
}

// settle ends the signs of life of h. It reports whether h was held until now, and returns what is closed when no sign of life is
// on its way any more.
func (hs *holds) settle(h *holding) (was bool, beat <-chan struct{}) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	delete(hs.all, h)
	if hs.unended[h.id]--; hs.unended[h.id] <= 0 {
		delete(hs.unended, h.id)
	}
	if h.state != held {
		return false, nil
	}
	h.state = settled
	return true, h.beat
}

// lose gives up those of hs that were held until now, and returns them.
func (hs *holds) lose(all []*holding) (gone []*holding) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	for _, h := range all {
		if h.state == held {
			gone = append(gone, h)
			hs.gone(h)
		}
	}
	return gone
}

func (hs *holds) gone(h *holding) {
	h.state = lost
	delete(hs.all, h)
}

// has reports whether this process has a delivery of that message already. SQS has given up on that one, or else it would not have
// delivered the message again: whoever handles it may not have noticed yet, or may go on although it is cancelled.
func (hs *holds) has(id string) bool {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	return hs.unended[id] > 0
}

// due returns what needs a sign of life now, and marks it; and gives up what was held too long already. wake is when to look again.
func (hs *holds) due(now time.Time, visibility time.Duration) (due, lapsed []*holding, wake time.Time) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	wake = now.Add(visibility / 4)
	for h := range hs.all {
		if !now.Before(h.until) {
			lapsed = append(lapsed, h)
			hs.gone(h)
			continue
		}
		if h.until.Before(wake) {
			wake = h.until
		}
		if h.beat == nil && now.Sub(h.beaten) >= visibility/4 && now.Add(extension(h, now, visibility)).After(h.until) {
			h.beat = make(chan struct{})
			due = append(due, h)
		}
	}
	return due, lapsed, wake
}

// extension is for how long h may be held yet, in whole seconds.
func extension(h *holding, now time.Time, visibility time.Duration) time.Duration {
	return min(visibility, h.end.Sub(now)).Truncate(time.Second)
}

// answered ends a sign of life that was sent at that time. extended is zero where it failed.
func (hs *holds) answered(h *holding, sent time.Time, extended time.Duration) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	close(h.beat)
	h.beat = nil
	if extended > 0 && h.state == held {
		h.until, h.beaten = sent.Add(extended), sent
	}
}

// hold gives signs of life for what is held, queued messages too, until life ends. What SQS has given to others, or may
// have, is lost: its handler is cancelled.
func (r *reception) hold() {
	var beats sync.WaitGroup
	defer beats.Wait()
	for {
		now := time.Now()
		due, lapsed, wake := r.holds.due(now, r.queue.visibility)
		if len(lapsed) > 0 {
			beats.Go(func() {
				r.report(lapsed, "SQS could not be told in time that they are held, or lets nobody hold them longer")
			})
		}
		for len(due) > 0 {
			n := min(len(due), maxBatch)
			chunk := due[:n]
			beats.Go(func() { r.beat(chunk) })
			due = due[n:]
		}
		r.rest(r.life, time.Until(wake))
		if r.life.Err() != nil {
			return
		}
	}
}

// beat is one sign of life for up to ten messages.
func (r *reception) beat(hs []*holding) {
	sent := time.Now()
	ctx, cancel := context.WithTimeout(r.life, min(answerWithin, max(r.queue.visibility/2, time.Second)))
	defer cancel()
	entries := make([]types.ChangeMessageVisibilityBatchRequestEntry, len(hs))
	extended := make([]time.Duration, len(hs))
	for i, h := range hs {
		extended[i] = extension(h, sent, r.queue.visibility)
		entries[i] = changeEntry(i, h, extended[i])
	}
	out, err := r.cfg.Client.ChangeMessageVisibilityBatch(ctx, &sqs.ChangeMessageVisibilityBatchInput{QueueUrl: &r.url, Entries: entries})
	if err != nil {
		clear(extended)
		r.refused(&r.changes, err, "sqs:ChangeMessageVisibility")
	} else {
		r.changes.over()
	}
	var gone []*holding
	why := ""
	if err == nil {
		for _, f := range out.Failed {
			i := entryIndex(f.Id, len(hs))
			if i < 0 {
				continue
			}
			extended[i] = 0
			if f.SenderFault || stale(f) {
				gone, why = append(gone, hs[i]), value(f.Code)+": "+value(f.Message)
			}
		}
	}
	for i, h := range hs {
		r.holds.answered(h, sent, extended[i])
	}
	r.report(r.holds.lose(gone), why)
}

// stale reports whether f says that the receipt handle is worth nothing any more.
func stale(f types.BatchResultErrorEntry) bool {
	switch plainCode(value(f.Code)) {
	case "ReceiptHandleIsInvalid", "MessageNotInflight", "InvalidParameterValue", "InvalidIdFormat":
		return true
	}
	return false
}

// report cancels the handlers of what was lost.
func (r *reception) report(gone []*holding, why string) {
	if len(gone) == 0 {
		return
	}
	r.log.Warn("awssqs: messages are lost to this process and will be delivered again; their handlers are cancelled",
		"messages", len(gone), "first", gone[0].delivery.Message.Position, "why", why)
	for _, h := range gone {
		if f := r.cfg.Trace.Lost; f != nil {
			f(h.delivery.Message)
		}
		r.deliverer.Lose(h.delivery)
	}
}

func changeEntry(i int, h *holding, visibility time.Duration) types.ChangeMessageVisibilityBatchRequestEntry {
	id := strconv.Itoa(i)
	return types.ChangeMessageVisibilityBatchRequestEntry{Id: &id, ReceiptHandle: &h.receipt, VisibilityTimeout: int32(visibility / time.Second)}
}

// entryIndex is which of n entries id stands for; -1: none.
func entryIndex(id *string, n int) int {
	i, err := strconv.Atoi(value(id))
	if err != nil || i < 0 || i >= n {
		return -1
	}
	return i
}
