package kafka

import (
	"context"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

// producer is a sarama producer with connections of its own, so that they can be cut: sarama's producers know no
// contexts, and go on with what they were given for as long as their retries and timeouts last.
type producer struct {
	async  sarama.AsyncProducer
	client sarama.Client
	life   context.Context
	die    context.CancelFunc
	topics *topics

	calls   int  // running; guarded by Publisher.mu
	retired bool // takes no more calls; likewise
	cut     sync.Once
}

// opening is a producer that is being connected. Nobody need wait for it to the end.
type opening struct {
	done chan struct{}

	mu       sync.Mutex
	producer *producer // once done, until somebody takes it
	err      error
	left     bool // nobody will take it
}

// take returns the producer if it is ready; the caller is its owner then. If it is not, or was taken, nil.
func (o *opening) take() (*producer, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	producer := o.producer
	o.producer, o.left = nil, true
	return producer, o.err
}

// open connects a producer in the background, where it may take as long as sarama's timeouts. p.mu is held, p not closed.
func (p *Publisher) open(conf *sarama.Config) *opening {
	o := &opening{done: make(chan struct{})}
	p.owns.Go(func() {
		defer close(o.done)
		producer, err := p.connect(conf)
		o.mu.Lock()
		defer o.mu.Unlock()
		switch {
		case err != nil:
			o.err = err
		case o.left:
			p.cut(producer)
		default:
			o.producer = producer
		}
	})
	return o
}

// What takes longer is the relay's affair: it tries again anyway. While these last, Close waits.
const (
	maxMetadataRetries   = 3
	maxProducerIDRetries = 5
	maxDialTimeout       = 5 * time.Second // of one broker; there may be others
)

// connect makes a producer with the settings of conf.
func (p *Publisher) connect(conf *sarama.Config) (*producer, error) {
	own := *conf
	own.Metadata.Retry.Max = min(own.Metadata.Retry.Max, maxMetadataRetries)
	own.Producer.Transaction.Retry.Max = min(own.Producer.Transaction.Retry.Max, maxProducerIDRetries)
	own.Net.DialTimeout = min(own.Net.DialTimeout, maxDialTimeout)
	own.Producer.Partitioner = marked(own.Producer.Partitioner)
	life, die := context.WithCancel(p.life)
	dialInto(life, &own)
	client, err := sarama.NewClient(p.addrs(), &own)
	if err != nil {
		die()
		return nil, err
	}
	async, err := sarama.NewAsyncProducerFromClient(client)
	if err != nil {
		die()
		_ = client.Close()
		return nil, err
	}
	producer := &producer{async: async, client: client, life: life, die: die, topics: newTopics(client, &p.owns, p.replicas.check)}
	p.owns.Go(producer.collect)
	return producer, nil
}

// collect hands on the answers until the producer has ended. Once its life is over, its connections are cut: what fails for want of
// them is left to the end of its call, which knows why.
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
			r.call.answer(r.index, nil)
		case e, ok := <-failures:
			if !ok {
				failures = nil
				continue
			}
			if p.life.Err() != nil && wears(e.Err) {
				continue
			}
			r := e.Msg.Metadata.(*record)
			r.call.answer(r.index, p.topics.refused(r.Topic, e.Err))
		}
	}
}

// send returns when every record of c has its answer or none will come in time, and says whether any is stuck here.
func (p *producer) send(ctx context.Context, c *call, records []*record) (stuck bool) {
	missing := make(map[string][]*record) // by topics of which we do not know whether they exist
	for _, r := range records {
		if !p.topics.known(r.Topic) {
			missing[r.Topic] = append(missing[r.Topic], r)
			continue
		}
		if !p.feed(ctx, r) {
			return true
		}
	}
	lookups := make(map[string]*lookup, len(missing))
	for topic := range missing {
		lookups[topic] = p.topics.look(topic)
	}
	for topic, l := range lookups {
		if !l.wait(ctx, p.life) {
			return true
		}
		err := l.err
		for _, r := range missing[topic] {
			if err != nil {
				c.answer(r.index, err)
			} else if !p.feed(ctx, r) {
				return true
			}
		}
	}
	select {
	case <-c.done:
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

// acquire returns the current producer, and connects one if there is none. It must be released.
func (p *Publisher) acquire(ctx context.Context) (*producer, error) {
	for {
		p.mu.Lock()
		if p.closed {
			p.mu.Unlock()
			return nil, errClosed()
		}
		if p.current != nil {
			p.current.calls++
			defer p.mu.Unlock()
			return p.current, nil
		}
		o := p.opening
		if o == nil {
			o = p.open(p.conf)
			p.opening = o
		}
		p.mu.Unlock()

		select {
		case <-o.done:
		case <-ctx.Done():
			return nil, p.unopened(ctx, nil)
		case <-p.life.Done():
			return nil, errClosed()
		}

		p.mu.Lock()
		producer, err := o.take()
		if p.opening == o {
			p.opening = nil
		}
		if producer != nil {
			p.current = producer // not closed: Close would have taken it
		}
		p.mu.Unlock()
		if err != nil {
			return nil, p.unopened(ctx, err)
		}
	}
}

// release ends c's use of producer; stuck: with messages that it has not answered.
func (p *Publisher) release(producer *producer, c *call, stuck bool) {
	broken := stuck || producer.topics.broken(c.confirmed())
	p.mu.Lock()
	producer.calls--
	if broken {
		producer.retired = true
		if p.current == producer {
			p.current = nil
		}
	}
	unused := producer.retired && producer.calls == 0
	p.mu.Unlock()
	if unused {
		p.cut(producer)
	}
}

// cut ends a producer that takes no more calls, and what it still has. Without connections and metadata all of it fails.
func (p *Publisher) cut(producer *producer) {
	producer.cut.Do(func() {
		producer.die()
		p.owns.Go(func() {
			_ = producer.client.Close()
			producer.async.AsyncClose()
		})
	})
}
