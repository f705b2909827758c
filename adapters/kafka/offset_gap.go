package kafka

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

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
			"lost messages. %s", topic, partition, newest, m.cfg.Group, committed, m.reset(topic, partition, "--to-earliest"))
	}
	return fmt.Errorf("kafka: %s/%d begins at %d, but group %s has handled it only up to %d: the records between were "+
		"deleted unhandled (messages, or markers of transactions that no member passed in time). %s", topic, partition,
		oldest, m.cfg.Group, committed, m.reset(topic, partition, "--to-earliest"))
}

// reset returns the command that moves the group's offset, in the form that only shows what it would do.
func (m *member) reset(topic string, partition int32, to string) string {
	address := "HOST:9092"
	if all := m.client.Brokers(); len(all) > 0 {
		address = slices.MinFunc(all, func(a, b *sarama.Broker) int { return cmp.Compare(a.ID(), b.ID()) }).Addr()
	}
	return fmt.Sprintf("To go on, stop all members of the group, and move its offset. This command shows what it would do, and does it with --execute in place of --dry-run: "+
		"kafka-consumer-groups.sh --bootstrap-server %s --group %s --topic %s:%d --reset-offsets %s --dry-run",
		address, shellWord(m.cfg.Group), topic, partition, to)
}

// shellWord quotes text where a shell would not take it as it is.
func shellWord(text string) string {
	plain := func(r rune) bool {
		return r == '.' || r == '_' || r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
	}
	if strings.TrimFunc(text, plain) == "" {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
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
