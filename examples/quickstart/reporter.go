package main

import (
	"context"
	"encoding/json"
	"io"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/driver"
)

// reporter collects from the worker's hooks what the worker has finished, and reports it to the parent.
type reporter struct {
	mu         sync.Mutex
	out        *json.Encoder
	joined     bool
	generation int32
	ranges     [partitions]finished
	count      int64 // finished deliveries of a queue that are not yet reported
	again      int64
	passes     []pass // with -telemetry, those that are not yet reported
}

// finished is the progress in one partition since it was assigned.
type finished struct {
	begun bool
	from  int64 // the first delivery that is not yet reported
	to    int64 // the end of the finished deliveries
}

func newReporter(out io.Writer) *reporter { return &reporter{out: json.NewEncoder(out)} }

// trace records the first delivery that is handled in each partition.
func (r *reporter) trace() *consumer.Trace {
	return &consumer.Trace{Start: func(_ context.Context, d *consumer.Delivery) context.Context {
		for _, msg := range d.Messages {
			r.begin(msg)
		}
		return nil
	}}
}

func (r *reporter) begin(msg *consumer.Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	raw, ok := msg.Raw.(*sarama.ConsumerMessage)
	if !ok {
		r.joined = true
		return
	}
	if f := &r.ranges[raw.Partition]; !f.begun {
		*f = finished{begun: true, from: raw.Offset, to: raw.Offset}
	}
}

// sourceTrace records the progress in each partition of Kafka, and counts the deliveries of a queue.
func (r *reporter) sourceTrace() *driver.SourceTrace {
	return &driver.SourceTrace{
		Assigned: func(_ context.Context, e driver.SourceEvent) {
			r.mu.Lock()
			r.generation = e.Generation
			r.mu.Unlock()
			r.flush("")
			r.mu.Lock()
			r.ranges[e.Partition] = finished{}
			r.mu.Unlock()
		},
		Received: func(_ context.Context, e driver.SourceEvent) {
			if e.Message.Attempt > 1 {
				r.add(0, 1)
			}
		},
		Acked: func(_ context.Context, e driver.SourceEvent) {
			if e.Message != nil {
				r.add(1, 0)
				return
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			if f := &r.ranges[e.Partition]; f.begun {
				f.to = max(f.to, e.Offset+1)
			}
		},
		Lost: func(_ context.Context, e driver.SourceEvent) {
			if e.System == "rabbitmq" { // those of SQS are counted when they are received again
				r.add(0, e.Messages)
			}
		},
	}
}

func (r *reporter) add(finished, again int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count += int64(finished)
	r.again += int64(again)
}

// run reports regularly until ctx ends, and then once more.
func (r *reporter) run(ctx context.Context) {
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			r.flush("")
			return
		case <-tick.C:
			r.flush("")
		}
	}
}

// flush writes a report of everything since the last one. standing is the order whose handler this worker has stopped
// in, or empty.
func (r *reporter) flush(standing string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	say := report{
		Joined: r.joined, Generation: r.generation, Finished: r.count, Again: r.again, Standing: standing,
		Passes: r.passes,
	}
	r.joined, r.generation, r.count, r.again, r.passes = false, 0, 0, 0, nil
	for i := range r.ranges {
		if f := &r.ranges[i]; f.to > f.from {
			say.Spans = append(say.Spans, span{int32(i), f.from, f.to})
			f.from = f.to
		}
	}
	if say.Joined || say.Generation != 0 || say.Spans != nil || say.Finished != 0 || say.Again != 0 ||
		say.Passes != nil || standing != "" {
		_ = r.out.Encode(say) // fails only if the parent is gone, and then this process ends too
	}
}
