package telemetry

import (
	"context"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/txonce/txonce/observe"
)

// cell is one series of a counter. The SDK reads it when metrics are collected, so counting allocates nothing.
type cell struct {
	n       atomic.Int64
	born    bool // exported while it is 0
	options []metric.ObserveOption
}

func (c *cell) observe(o metric.Observer, counter metric.Int64Observable) {
	if n := c.n.Load(); n > 0 || c.born {
		o.ObserveInt64(counter, n, c.options...)
	}
}

// pair is an outcome with its cause.
type pair struct {
	outcome observe.Outcome
	cause   observe.Cause
}

// usualPairs are exported from the start, because increase() of a counter that is born at 1 is 0: no alert would fire
// for a first dead letter. Each outcome, and each cause that a consumer reports, occurs. Other pairs are exported when
// they first occur.
var usualPairs = func() map[pair]bool {
	pairs := map[pair]bool{
		{observe.Processed, ""}: true, {observe.Duplicate, ""}: true,
		{observe.Duplicate, observe.CauseMismatch}: true,
	}
	for outcome, causes := range map[observe.Outcome][]observe.Cause{
		observe.Parked:   givenUp,
		observe.Rejected: givenUp,
		observe.Retried:  {observe.CauseHandler, observe.CausePanic, observe.CauseDatabase, observe.CauseUnknown},
		observe.Held: {
			observe.CauseInFlight, observe.CauseDatabase, observe.CauseCancelled, observe.CauseBudget,
			observe.CauseHandler, observe.CauseBroker,
		},
	} {
		for _, cause := range causes {
			pairs[pair{outcome, cause}] = true
		}
	}
	return pairs
}()

var givenUp = []observe.Cause{
	observe.CausePermanent, observe.CauseExhausted, observe.CausePanic, observe.CauseMismatch, observe.CauseUnprovable,
	observe.CauseNoKey,
	observe.CauseUndecodable, observe.CauseKnownContent, observe.CauseCrashed, observe.CauseUnknown,
}

// index has the place of each word of a closed list, so that a cell is found without hashing attributes.
type index[W comparable] struct {
	words  []W
	places map[W]int
}

func newIndex[W comparable](words []W) index[W] {
	ix := index[W]{words: words, places: make(map[W]int, len(words))}
	for i, w := range words {
		ix.places[w] = i
	}
	return ix
}

// of returns the place of w; -1: it is no word of the list.
func (ix index[W]) of(w W) int {
	if i, ok := ix.places[w]; ok {
		return i
	}
	return -1
}

var (
	outcomeIndex = newIndex(observe.Outcomes())
	causeIndex   = newIndex(append([]observe.Cause{""}, observe.Causes()...)) // place 0: no cause
	resultIndex  = newIndex(observe.Results())
)

// topicCells are the series of one topic of one consumer.
type topicCells struct {
	deliveries [][]cell // by outcome and cause
	durations  []atomic.Pointer[[]metric.RecordOption]
	attrs      []attribute.KeyValue // of durations, without error.type
}

func newTopicCells(c *ConsumerConfig, topic string, born bool) *topicCells {
	t := &topicCells{
		deliveries: make([][]cell, len(outcomeIndex.words)),
		durations:  make([]atomic.Pointer[[]metric.RecordOption], len(causeIndex.words)),
		attrs:      c.attributes(attrOperation.String("process")),
	}
	if topic != mixedTopics {
		t.attrs = append(t.attrs, attrDestination.String(topic))
	}
	for i, outcome := range outcomeIndex.words {
		t.deliveries[i] = make([]cell, len(causeIndex.words))
		for j, cause := range causeIndex.words {
			t.deliveries[i][j].born = born && usualPairs[pair{outcome, cause}]
			t.deliveries[i][j].options = []metric.ObserveOption{metric.WithAttributeSet(attribute.NewSet(
				attrConsumer.String(c.Name), attrTopic.String(topic), attrOutcome.String(string(outcome)),
				attrCause.String(string(cause)),
			))}
		}
	}
	return t
}

// count counts one message.
func (t *topicCells) count(outcome observe.Outcome, cause observe.Cause) {
	if i, j := outcomeIndex.of(outcome), causeIndex.of(cause); i >= 0 && j >= 0 {
		t.deliveries[i][j].n.Add(1)
	}
}

// duration records one pass, which failed because of cause or, if that is empty, did not fail.
func (t *topicCells) duration(ctx context.Context, h metric.Float64Histogram, cause observe.Cause, seconds float64) {
	j := causeIndex.of(cause)
	if j < 0 {
		return
	}
	options := t.durations[j].Load()
	if options == nil {
		attrs := t.attrs[:len(t.attrs):len(t.attrs)]
		if cause != "" {
			attrs = append(attrs, attrErrorType.String(string(cause)))
		}
		options = &[]metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(attrs...))}
		t.durations[j].Store(options)
	}
	h.Record(ctx, seconds, *options...)
}

// Limits of attributes whose values the environment chooses.
const (
	maxTopics   = 200 // topics of one consumer or relay with a value of their own
	bornTopics  = 8   // topics of ConsumerConfig.Topics whose usual series are exported from the start
	mixedTopics = ""  // the messages of a batch have several topics
)

// limited maps topics to values of V, at most maxTopics and one for all others. It is safe for concurrent use; reading
// takes no lock.
type limited[V any] struct {
	make  func(topic string) V
	known atomic.Pointer[map[string]V]
	mu    sync.Mutex
}

func newLimited[V any](make func(topic string) V) *limited[V] {
	l := &limited[V]{make: make}
	l.known.Store(&map[string]V{})
	return l
}

func (l *limited[V]) of(topic string) V {
	known := *l.known.Load()
	if v, ok := known[topic]; ok {
		return v
	}
	if len(known) > maxTopics { // with otherTopic
		return known[otherTopic]
	}
	return l.add(topic)
}

func (l *limited[V]) add(topic string) V {
	l.mu.Lock()
	defer l.mu.Unlock()
	known := *l.known.Load()
	if len(known) >= maxTopics && topic != otherTopic {
		topic = otherTopic
	}
	if v, ok := known[topic]; ok {
		return v
	}
	more := make(map[string]V, len(known)+1)
	for t, v := range known {
		more[t] = v
	}
	more[topic] = l.make(topic)
	l.known.Store(&more)
	return more[topic]
}

func (l *limited[V]) all() map[string]V { return *l.known.Load() }
