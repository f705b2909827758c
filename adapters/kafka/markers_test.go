package kafka_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/adapters/kafka"
)

// transact sends each text in a transaction of its own, and aborts every other one: 1, 3, 5 of six.
func (g *group) transact(t *testing.T, texts ...string) {
	t.Helper()
	cfg := testConfig(sarama.NewBalanceStrategyRange())
	cfg.Producer.Transaction.ID, cfg.Producer.Idempotent, cfg.Net.MaxOpenRequests = g.name, true, 1
	cfg.Producer.RequiredAcks, cfg.Producer.Return.Successes = sarama.WaitForAll, true
	// The next transaction is refused until the coordinator has written the markers of the one before, which may be a
	// while.
	cfg.Producer.Transaction.Retry.Backoff = 20 * time.Millisecond
	cfg.Producer.Transaction.Retry.Max = int(patience / cfg.Producer.Transaction.Retry.Backoff)
	end := sooner(t, func() (int64, error) { return g.client.GetOffset(g.topic, 0, sarama.OffsetNewest) })
	producer, err := sarama.NewSyncProducerFromClient(dial(t, g.brokers, cfg))
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close()
	for i, text := range texts {
		finish := producer.CommitTxn
		if i%2 == 1 {
			finish = producer.AbortTxn
		}
		if err := producer.BeginTxn(); err != nil {
			t.Fatal(err)
		}
		if _, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: g.topic, Value: sarama.StringEncoder(text)}); err != nil {
			t.Fatal(err)
		}
		if err := finish(); err != nil {
			t.Fatal(err)
		}
	}
	end += 2 * int64(len(texts))
	eventually(t, func() error { // the coordinator answers before it has written its markers
		if now, err := g.client.GetOffset(g.topic, 0, sarama.OffsetNewest); err != nil || now != end {
			return fmt.Errorf("the topic ends at %d (%v), want %d: a marker behind each of %d messages", now, err, end,
				len(texts))
		}
		return nil
	})
}

// TestRetentionDeletesMarkers: markers that end transactions are never delivered, and their deletion is no loss of
// messages.
func TestRetentionDeletesMarkers(t *testing.T) {
	eachCluster(t, func(t *testing.T, c cluster) {
		eachProtocol(t, func(t *testing.T, strategy sarama.BalanceStrategy) {
			g := c.group(t, 1)
			l := &ledger{}
			join := func() *member {
				return g.join(t, kafka.SubscriberConfig{Client: dial(t, c.brokers, testConfig(strategy)), Processor: l})
			}
			g.transact(t, "a", "aborted", "b", "aborted", "c", "aborted")
			m := join()
			g.awaitConsumed(t) // with the aborted message at the end and its marker
			g.transact(t, "d") // and now of a member that is idle
			g.awaitConsumed(t)
			if err := m.stop(); err != nil {
				t.Fatal(err)
			}
			g.deleteRecords(t, 14)
			m = join()
			g.transact(t, "e")
			g.awaitConsumed(t)
			if err := m.stop(); err != nil {
				t.Errorf("Run = %v; only markers and aborted messages were deleted behind the last message", err)
			}
			if diff := cmp.Diff([]string{"a", "b", "c", "d", "e"}, l.list()); diff != "" {
				t.Errorf("handled (-want +got):\n%s", diff)
			}
		})
	})
}

// TestPassOver is about markers and aborted messages behind the last delivered message.
func TestPassOver(t *testing.T) {
	batch := func(first int64, records int, set func(*sarama.RecordBatch)) *sarama.Records {
		b := &sarama.RecordBatch{FirstOffset: first, LastOffsetDelta: int32(records - 1), ProducerID: 7}
		for i := range records {
			b.Records = append(b.Records, &sarama.Record{OffsetDelta: int64(i), Key: []byte{0, 0, 0, byte(sarama.ControlRecordCommit)}})
		}
		if set != nil {
			set(b)
		}
		return &sarama.Records{RecordBatch: b}
	}
	transactional := func(b *sarama.RecordBatch) { b.IsTransactional = true }
	others := func(b *sarama.RecordBatch) { b.IsTransactional, b.ProducerID = true, 8 }
	commit := func(b *sarama.RecordBatch) { b.Control, b.IsTransactional = true, true }
	abort := func(b *sarama.RecordBatch) {
		commit(b)
		b.Records[0].Key[3] = byte(sarama.ControlRecordAbort)
	}
	empty := func(b *sarama.RecordBatch) { b.Records = nil }
	cut := func(b *sarama.RecordBatch) { b.PartialTrailingRecord = true }
	aborted := func(from ...int64) (all []*sarama.AbortedTransaction) {
		for _, first := range from {
			all = append(all, &sarama.AbortedTransaction{ProducerID: 7, FirstOffset: first})
		}
		return all
	}
	for _, tt := range []struct {
		name    string
		records []*sarama.Records
		aborted []*sarama.AbortedTransaction
		want    int64
	}{
		{"nothing", nil, nil, 10},
		{"a message", []*sarama.Records{batch(10, 1, nil)}, nil, 10},
		{"a marker", []*sarama.Records{batch(10, 1, commit)}, nil, 11},
		{"a marker before a message", []*sarama.Records{batch(10, 1, commit), batch(11, 1, transactional), batch(12, 1, commit)}, nil, 11},
		{
			"what was delivered, and a marker",
			[]*sarama.Records{batch(8, 2, transactional), batch(10, 1, commit)},
			nil, 11,
		},
		{"a message in the middle of its batch", []*sarama.Records{batch(8, 3, nil)}, nil, 10},
		{
			"an aborted transaction",
			[]*sarama.Records{batch(10, 2, transactional), batch(12, 1, abort)},
			aborted(10), 13,
		},
		{"one that is aborted after another", []*sarama.Records{
			batch(10, 2, transactional), batch(12, 1, abort), batch(13, 1, transactional), batch(14, 1, abort),
		}, aborted(13, 10), 15},
		{"one that is committed after that", []*sarama.Records{batch(10, 2, transactional), batch(12, 1, abort), batch(13, 1, transactional)}, aborted(10), 13},
		{"one that is committed before that", []*sarama.Records{batch(10, 1, transactional), batch(11, 1, commit), batch(12, 1, transactional)}, aborted(12), 10},
		{
			"the committed one of another producer",
			[]*sarama.Records{batch(10, 1, others), batch(11, 1, abort)},
			aborted(9), 10,
		},
		{"a message without a transaction", []*sarama.Records{batch(10, 1, nil)}, aborted(9), 10},
		{"a batch that compaction has emptied", []*sarama.Records{batch(10, 3, empty), batch(13, 1, commit)}, nil, 14},
		{"a batch that is cut off", []*sarama.Records{batch(10, 1, commit), batch(11, 3, cut)}, nil, 11},
		{"a log of old", []*sarama.Records{{MsgSet: &sarama.MessageSet{}}}, nil, 10},
	} {
		t.Run(tt.name, func(t *testing.T) {
			block := &sarama.FetchResponseBlock{RecordsSet: tt.records, AbortedTransactions: tt.aborted}
			if got := kafka.PassOver(block, 10); got != tt.want {
				t.Errorf("from 10 the next message is at %d; want %d", got, tt.want)
			}
		})
	}
}
