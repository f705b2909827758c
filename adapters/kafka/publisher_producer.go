package kafka

import (
	"context"
	"time"

	"github.com/IBM/sarama"

	"github.com/txonce/txonce/internal/publishing"
)

// producer is a sarama producer with connections of its own, so that they can be cut: sarama's producers take no
// contexts, and go on sending their messages for as long as their retries and timeouts last.
type producer struct {
	async  sarama.AsyncProducer
	client sarama.Client
	life   context.Context
	cancel context.CancelFunc
	topics *topics
}

// A call that needs more time than this fails, and the relay tries again. Close waits until an attempt to connect has
// ended.
const (
	maxMetadataRetries   = 3
	maxProducerIDRetries = 5
	maxDialTimeout       = 5 * time.Second // of one broker; there may be others
)

// connect makes a producer with the settings of conf.
func (p *Publisher) connect(life context.Context, conf *sarama.Config) (*producer, error) {
	own := *conf
	own.Metadata.Retry.Max = min(own.Metadata.Retry.Max, maxMetadataRetries)
	own.Producer.Transaction.Retry.Max = min(own.Producer.Transaction.Retry.Max, maxProducerIDRetries)
	own.Net.DialTimeout = min(own.Net.DialTimeout, maxDialTimeout)
	own.Producer.Partitioner = marked(own.Producer.Partitioner)
	life, cancel := context.WithCancel(life)
	dialInto(life, &own)
	client, err := sarama.NewClient(p.addrs(), &own)
	if err != nil {
		cancel()
		return nil, err
	}
	async, err := sarama.NewAsyncProducerFromClient(client)
	if err != nil {
		cancel()
		_ = client.Close()
		return nil, err
	}
	producer := &producer{async: async, client: client, life: life, cancel: cancel, topics: newTopics(client, p.pool.Go,
		p.replicas.check)}
	p.pool.Go(producer.collect)
	return producer, nil
}

// collect passes sarama's answers on until the producer has ended. When life ends, the connections are cut. A message
// that fails because of that is not answered here: the end of its call answers it.
func (p *producer) collect() {
	successes, failures := p.async.Successes(), p.async.Errors()
	for successes != nil || failures != nil {
		select {
		case m, ok := <-successes:
			if !ok {
				successes = nil
				continue
			}
			r := m.Metadata.(*record)
			r.call.Answer(r.index, nil)
		case e, ok := <-failures:
			if !ok {
				failures = nil
				continue
			}
			if p.life.Err() != nil && connectionLost(e.Err) {
				continue
			}
			r := e.Msg.Metadata.(*record)
			r.call.Answer(r.index, p.topics.refused(r.Topic, e.Err))
		}
	}
}

// send returns when every record has its answer, or ctx or the producer's life has ended. stuck: some record has no
// answer.
func (p *producer) send(ctx context.Context, c *publishing.Call, records []*record) (stuck bool) {
	unknown := make(map[string][]*record) // by topics that this producer has not found yet
	for _, r := range records {
		if !p.topics.known(r.Topic) {
			unknown[r.Topic] = append(unknown[r.Topic], r)
			continue
		}
		if !p.feed(ctx, r) {
			return true
		}
	}
	lookups := make(map[string]*lookup, len(unknown))
	for topic := range unknown {
		lookups[topic] = p.topics.lookUp(topic)
	}
	for topic, l := range lookups {
		if !l.wait(ctx, p.life) {
			return true
		}
		err := l.err
		for _, r := range unknown[topic] {
			if err != nil {
				c.Answer(r.index, err)
			} else if !p.feed(ctx, r) {
				return true
			}
		}
	}
	select {
	case <-c.Done():
		return false
	case <-ctx.Done():
	case <-p.life.Done():
	}
	return true
}

func (p *producer) feed(ctx context.Context, r *record) bool {
	select {
	case p.async.Input() <- &r.ProducerMessage:
		return true
	case <-ctx.Done():
	case <-p.life.Done():
	}
	return false
}

// cut ends a producer that no call uses. Without connections and metadata all its messages fail.
func (p *producer) cut() {
	p.cancel()
	_ = p.client.Close()
	p.async.AsyncClose()
}
