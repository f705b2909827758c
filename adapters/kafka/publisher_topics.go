package kafka

import (
	"context"
	"errors"
	"sync"

	"github.com/IBM/sarama"
)

// topics is what a producer has learned about topics. It looks up new ones before sarama does, because sarama answers for
// a topic that it failed to find three times with "circuit breaker is open", which nobody could tell from an outage.
type topics struct {
	client sarama.Client
	owner  *sync.WaitGroup
	seen   func(sarama.Client, string) // is called when a topic was found

	mu     sync.Mutex
	found  map[string]bool
	lookup map[string]*lookup // that are under way
	fenced bool               // the brokers refuse the producer's numbers
	worn   bool               // it had no connection
}

// lookup asks the cluster for one topic, on behalf of all calls that want to know.
type lookup struct {
	done chan struct{}
	err  error
}

func newTopics(client sarama.Client, owner *sync.WaitGroup, seen func(sarama.Client, string)) *topics {
	return &topics{client: client, owner: owner, seen: seen, found: make(map[string]bool), lookup: make(map[string]*lookup)}
}

func (t *topics) known(topic string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.found[topic]
}

// look begins to look topic up, unless that is under way.
func (t *topics) look(topic string) *lookup {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.lookup[topic]; l != nil {
		return l
	}
	l := &lookup{done: make(chan struct{})}
	t.lookup[topic] = l
	t.owner.Go(func() {
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

// wait says whether err is known before ctx or life ends.
func (l *lookup) wait(ctx, life context.Context) bool {
	select {
	case <-l.done:
		return life.Err() == nil // else err may be of the connections that life's end has cut
	case <-ctx.Done():
	case <-life.Done():
	}
	return false
}

// refused returns the error of a message to topic as the outbox wants it, and learns from it.
func (t *topics) refused(topic string, err error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
		t.found[topic] = false
	}
	t.fenced = t.fenced || fencing(err)
	t.worn = t.worn || wears(err)
	return classify(topic, err)
}

// broken says whether a new producer will do better, after a call of which something was confirmed or nothing. As long as something
// is, one broker of several is away; to connect anew might take long, and would not help.
func (t *topics) broken(confirmed bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.fenced || t.worn && !confirmed
}
