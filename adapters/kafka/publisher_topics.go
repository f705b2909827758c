package kafka

import (
	"context"
	"errors"
	"sync"

	"github.com/IBM/sarama"
)

// topics remembers which topics a producer has found. It looks up new ones before sarama does, because sarama answers
// "circuit breaker is open" after it has failed three times to find a topic, and that looks like an outage.
type topics struct {
	client sarama.Client
	run    func(func())                // in a goroutine
	seen   func(sarama.Client, string) // is called when a topic was found

	mu     sync.Mutex
	found  map[string]bool
	lookup map[string]*lookup // lookups under way
	fenced bool               // the brokers refuse the producer's epoch or sequence numbers
	lost   bool               // a message failed because there was no connection
}

// lookup asks the cluster for one topic, for all calls that wait for it.
type lookup struct {
	done chan struct{}
	err  error
}

func newTopics(client sarama.Client, run func(func()), seen func(sarama.Client, string)) *topics {
	return &topics{client: client, run: run, seen: seen, found: make(map[string]bool), lookup: make(map[string]*lookup)}
}

func (t *topics) known(topic string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.found[topic]
}

// lookUp begins to look topic up, unless that is under way.
func (t *topics) lookUp(topic string) *lookup {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.lookup[topic]; l != nil {
		return l
	}
	l := &lookup{done: make(chan struct{})}
	t.lookup[topic] = l
	t.run(func() {
		_, err := t.client.Partitions(topic)
		t.mu.Lock()
		t.found[topic] = err == nil
		delete(t.lookup, topic)
		if err != nil {
			l.err = classify(topic, err)
		}
		close(l.done)
		t.mu.Unlock()
		if err == nil {
			t.seen(t.client, topic)
		}
	})
	return l
}

// wait reports whether err is known before ctx or life ends.
func (l *lookup) wait(ctx, life context.Context) bool {
	select {
	case <-l.done:
		return life.Err() == nil // else err may come from connections that were cut when life ended
	case <-ctx.Done():
	case <-life.Done():
	}
	return false
}

// refused returns err, the error of a message to topic, in the form that the outbox needs. It remembers what err shows
// about the topic and the producer.
func (t *topics) refused(topic string, err error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
		t.found[topic] = false
	}
	t.fenced = t.fenced || sequenceRefused(err)
	t.lost = t.lost || connectionLost(err)
	return classify(topic, err)
}

// broken reports whether the producer must be replaced after a call. confirmed says that a message of the call was
// confirmed. Then only some brokers are away: a new producer would not help, and might take long to connect.
func (t *topics) broken(confirmed bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.fenced || t.lost && !confirmed
}
