package kafka

import (
	"slices"
	"time"

	"github.com/IBM/sarama"
)

// lookEvery is how often a partition that has nothing unfinished compares its position with the end of the log.
const lookEvery = time.Second

// markers moves the group's offset over what Kafka keeps between messages and never delivers: the markers that end transactions,
// and the messages of aborted transactions. sarama passes over them without a word, so the offset behind the last message would stay
// in front of them. Once retention has deleted them, that offset looks as if messages had been deleted unhandled, see member.gap.
type markers struct {
	next    int64 // the offset behind the last message that was delivered; negative: unknown
	before  int64 // next, at the last tick: a busy partition does not look
	looked  int64 // the end of the log at the last look that found nothing to pass over
	looking bool
	found   chan span // has room for one, so that a look nobody waits for any more can leave
}

// span says that from up to to no message is left to be delivered. to is from where there is one at once.
type span struct {
	from, to, end int64
	err           error
}

// look begins to look for markers behind the last message, once the partition has been idle for a while and its log goes on.
func (p *partition) look() {
	m := &p.markers
	idle := m.next == m.before && len(p.queue.waiting) == 0
	m.before = m.next
	from, end := m.next, p.claim.HighWaterMarkOffset()
	if !idle || m.looking || from < 0 || end <= from || end == m.looked {
		return
	}
	m.looking = true
	p.looks.Go(func() {
		s := span{from: from, to: from, end: end}
		s.to, s.err = undelivered(p.client, p.claim.Topic(), p.claim.Partition(), from)
		m.found <- s
	})
}

// pass marks what a look has found, unless a message came meanwhile. A look that failed is repeated: the brokers are away, which
// sarama reports by itself.
func (p *partition) pass(s span) {
	m := &p.markers
	m.looking = false
	switch {
	case s.err != nil || s.from != m.next:
	case s.to == s.from:
		m.looked = s.end
	default: // all before from is finished: the queue was empty
		m.next = s.to
		p.session.MarkOffset(p.claim.Topic(), p.claim.Partition(), s.to, "")
	}
}

// undelivered returns the first offset at or behind from of which a reader of this configuration may get a message.
func undelivered(client sarama.Client, topic string, partition int32, from int64) (int64, error) {
	leader, err := client.Leader(topic, partition)
	if err != nil {
		return from, err
	}
	cfg := client.Config()
	const version = 11 // of Kafka 2.3; minVersion is later
	in := &sarama.FetchRequest{Version: version, MinBytes: 1, MaxBytes: cfg.Consumer.Fetch.Default, Isolation: cfg.Consumer.IsolationLevel, SessionEpoch: -1}
	in.AddBlock(topic, partition, from, cfg.Consumer.Fetch.Default, -1)
	out, err := leader.Fetch(in)
	if err != nil {
		return from, err
	}
	block := out.GetBlock(topic, partition)
	switch {
	case block == nil:
		return from, sarama.ErrIncompleteResponse
	case block.Err != sarama.ErrNoError:
		return from, block.Err
	}
	return passOver(block, from), nil
}

// passOver walks over the batches of block for as long as they hold nothing to be delivered.
func passOver(block *sarama.FetchResponseBlock, from int64) int64 {
	aborted := slices.Clone(block.AbortedTransactions)
	for _, records := range block.RecordsSet {
		b := records.RecordBatch
		if b == nil || b.PartialTrailingRecord { // of a log that knows no transactions, or cut off
			return from
		}
		open := slices.IndexFunc(aborted, func(t *sarama.AbortedTransaction) bool {
			return t.ProducerID == b.ProducerID && t.FirstOffset <= b.LastOffset()
		})
		switch {
		case b.Control:
			if open >= 0 && aborts(b) {
				aborted = slices.Delete(aborted, open, open+1)
			}
		case b.IsTransactional && open >= 0:
		case slices.ContainsFunc(b.Records, func(r *sarama.Record) bool { return b.FirstOffset+r.OffsetDelta >= from }):
			return from
		}
		from = max(from, b.LastOffset()+1)
	}
	return from
}

// aborts reports whether a control batch ends its transaction by undoing it. The key of its record is a version and a type, 16 bits each.
func aborts(b *sarama.RecordBatch) bool {
	return slices.ContainsFunc(b.Records, func(r *sarama.Record) bool {
		return len(r.Key) >= 4 && r.Key[2] == 0 && r.Key[3] == byte(sarama.ControlRecordAbort)
	})
}
