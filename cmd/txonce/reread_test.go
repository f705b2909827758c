package main

import (
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/IBM/sarama/mocks"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/ops/audit"
)

// The auditor does not call a topic compared that it could not read to its end.
func TestRereadOfASilentBroker(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		offsets []int64 // that the broker returns, of three
		deleted bool    // the broker ends the answer, because it has deleted messages
		note    string
	}{
		{offsets: []int64{0, 1, 2}},
		{offsets: []int64{0, 1}, note: "after offset 1, and up to offset 2 nothing was compared"},
		{note: "after offset -1, and up to offset 2 nothing was compared"},
		{offsets: []int64{0}, deleted: true},
	} {
		broker := mocks.NewConsumer(t, nil)
		partition := broker.ExpectConsumePartition("orders", 0, 0)
		for _, at := range tc.offsets {
			partition.YieldMessage(&sarama.ConsumerMessage{Offset: at})
		}
		if tc.deleted {
			partition.AsyncClose()
		}
		s := &reread{
			consumer: broker, topic: "orders", partitions: []span{{0, 0, 3}}, all: true,
			silent: 50 * time.Millisecond, left: map[int32]string{},
		}
		r, err := audit.Messages(t.Context(), audit.Config{DB: new(sql.DB), Dialect: "sqlite", Consumer: "billing"}, audit.MessagesConfig{
			Source: s, Key: func(*consumer.Message) (string, error) { return "", errors.New("all are skipped") },
		})
		notes := strings.Join(r.Notes, "; ")
		if (err != nil) != tc.deleted || r.Whole != (tc.note == "" && !tc.deleted) ||
			!strings.Contains(notes, tc.note) || (notes != "") != (tc.note != "") {
			t.Errorf("%+v: %+v, %v", tc, r, err)
		}
	}
}
