package kafka

import (
	"fmt"
	"slices"

	"github.com/IBM/sarama"
)

// offsetGap is called when a broker does not have the offset that this member asked for. It returns an error that says
// which messages are gone, or nil when none are. Markers of transactions are not messages: a running member moves the
// group's offset over them, see markers. When no member ran between the last message and the deletion, it is unknown
// whether a message or a marker was deleted, so a person must decide.
func (m *member) offsetGap(topic string, partition int32) error {
	if slices.Contains(m.cfg.AcceptedRisks, RiskResetInvalidOffsets) {
		return nil
	}
	o, err := m.offsets(topic, partition)
	committed, oldest, newest := o.committed, o.oldest, o.newest
	switch {
	case err != nil: // the broker repeats its answer when it is asked again
		m.log.Warn("kafka: an offset is out of range, and the cause is unknown, because the offsets could not be read; trying again", "topic", topic, "partition", partition, "error", err)
		return nil
	case committed < 0 || oldest <= committed && committed <= newest:
		return nil
	case committed > newest:
		return fmt.Errorf("kafka: %s/%d ends at %d, but group %s has handled it up to %d: the topic was created again or has "+
			"lost messages. %s", topic, partition, newest, m.cfg.Group, committed, m.reset(topic, partition))
	}
	return fmt.Errorf("kafka: %s/%d begins at %d, but group %s has handled it only up to %d: the records between were "+
		"deleted unhandled (messages, or markers of transactions that no member passed in time). %s", topic, partition,
		oldest, m.cfg.Group, committed, m.reset(topic, partition))
}

func (m *member) reset(topic string, partition int32) string {
	return fmt.Sprintf("To go on without it: kafka-consumer-groups --group %s --topic %s:%d --reset-offsets --to-earliest --execute",
		m.cfg.Group, topic, partition)
}

// offsets are the group's offset of a partition, with its metadata, and the ends of the partition.
type offsets struct {
	committed, oldest, newest int64 // committed is negative if the group has none
	metadata                  string
}

func (m *member) offsets(topic string, partition int32) (o offsets, err error) {
	admin, err := sarama.NewClusterAdminFromClient(m.client) // not closed: that would close the client
	if err != nil {
		return o, err
	}
	answer, err := admin.ListConsumerGroupOffsets(m.cfg.Group, map[string][]int32{topic: {partition}})
	if err != nil {
		return o, err
	}
	block := answer.GetBlock(topic, partition)
	if block == nil {
		return o, sarama.ErrIncompleteResponse
	}
	if block.Err != sarama.ErrNoError {
		return o, block.Err
	}
	o.committed, o.metadata = block.Offset, block.Metadata
	if o.oldest, err = m.client.GetOffset(topic, partition, sarama.OffsetOldest); err != nil {
		return o, err
	}
	o.newest, err = m.client.GetOffset(topic, partition, sarama.OffsetNewest)
	return o, err
}
