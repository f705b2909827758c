package kafka

import (
	"slices"
	"time"

	"github.com/IBM/sarama"
)

// markersEvery is how often a partition without unfinished messages compares its position with the end of the log.
const markersEvery = time.Second

// markers moves the group's offset over records that Kafka keeps between messages and never delivers: the markers that
// end transactions, and the messages of aborted transactions. sarama passes over them silently, so the offset after the
// last message would stay before them. Once retention has deleted them, that offset looks as if messages had been
// deleted unhandled, see member.offsetGap.
type markers struct {
	next      int64 // the offset after the last message that was delivered; negative: unknown
	before    int64 // next at the last tick; while it moves nothing is searched
	searched  int64 // the end of the log at the last search that found nothing to pass over
	searching bool
	found     chan undeliveredRange // buffered for one result: a search ends even if its result is not received
}

// undeliveredRange says that no message between from and to will be delivered. to equals from where a message follows
// at once.
type undeliveredRange struct {
	from, to, end int64
	err           error
}

// findMarkers begins a search for markers after the last message when the partition is idle and its log has more
// records.
func (p *partition) findMarkers() {
	m := &p.markers
	unfinished, _, _ := p.unfinished()
	idle := m.next == m.before && unfinished == 0
	m.before = m.next
	from, end := m.next, p.claim.HighWaterMarkOffset()
	if !idle || m.searching || from < 0 || end <= from || end == m.searched {
		return
	}
	m.searching = true
	client := p.member.client
	p.member.searches.Go(func() {
		r := undeliveredRange{from: from, to: from, end: end}
		r.to, r.err = undelivered(client, p.claim.Topic(), p.claim.Partition(), from)
		m.found <- r
	})
}

// passMarkers marks the end of the range that a search found, unless a message arrived meanwhile. A failed search is
// repeated; sarama reports that the brokers are away.
func (p *partition) passMarkers(r undeliveredRange) {
	m := &p.markers
	m.searching = false
	switch {
	case r.err != nil || r.from != m.next:
	case r.to == r.from:
		m.searched = r.end
	default: // All messages before from are finished: there were no unfinished ones when the search began.
		m.next = r.to
		p.finishedUpTo(r.to)
	}
}

// undelivered returns the offset of the first message, from or later, that a reader with the client's configuration may
// get.
func undelivered(client sarama.Client, topic string, partition int32, from int64) (int64, error) {
	leader, err := client.Leader(topic, partition)
	if err != nil {
		return from, err
	}
	cfg := client.Config()
	const version = 11 // of Kafka 2.3; minVersion is later
	in := &sarama.FetchRequest{
		Version: version, MinBytes: 1, MaxBytes: cfg.Consumer.Fetch.Default,
		Isolation: cfg.Consumer.IsolationLevel, SessionEpoch: -1,
	}
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

// passOver returns the offset after the leading batches of block that hold nothing to deliver.
func passOver(block *sarama.FetchResponseBlock, from int64) int64 {
	aborted := slices.Clone(block.AbortedTransactions)
	for _, records := range block.RecordsSet {
		b := records.RecordBatch
		if b == nil || b.PartialTrailingRecord { // the log's format has no transactions, or the batch is cut off
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

// aborts reports whether a control batch aborts its transaction. The key of its record is a version and a type, 16 bits
// each.
func aborts(b *sarama.RecordBatch) bool {
	return slices.ContainsFunc(b.Records, func(r *sarama.Record) bool {
		return len(r.Key) >= 4 && r.Key[2] == 0 && r.Key[3] == byte(sarama.ControlRecordAbort)
	})
}
