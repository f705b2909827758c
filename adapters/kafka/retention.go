package kafka

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"

	"github.com/txonce/txonce/consumer/driver"
)

// forever is how long a topic keeps messages that it never deletes by age.
const forever = time.Duration(math.MaxInt64)

// checkTopics refuses topics that do not exist or may not be read, compacted topics, and topics that keep messages for
// longer than the Processor remembers keys.
func (s *Subscriber) checkTopics(client sarama.Client) error {
	for _, topic := range s.cfg.Topics {
		switch err := client.RefreshMetadata(topic); {
		case errors.Is(err, sarama.ErrUnknownTopicOrPartition), errors.Is(err, sarama.ErrInvalidTopic):
			return fmt.Errorf("kafka: topic %s does not exist; create it, with the number of partitions that it needs: %w", topic, err)
		case errors.Is(err, sarama.ErrTopicAuthorizationFailed):
			return fmt.Errorf("kafka: topic %s: %w; grant this user Read and Describe on it", topic, err)
		case err != nil:
			return fmt.Errorf("kafka: topic %s: %w", topic, err)
		}
	}
	windowed, ok := s.cfg.Processor.(driver.Windowed)
	for _, topic := range s.cfg.Topics {
		entries, err := settingsOf(client, topic)
		warnOfOneReplica(s.log, topic, entries, err)
		refused := s.unlessAccepted(RiskCompaction, checkCompaction(topic, entries, err),
			"kafka: messages may be deleted before they are handled")
		if refused == nil && ok {
			refused = s.unlessAccepted(RiskShortWindow, checkWindow(topic, windowed.Window(), entries, err),
				"kafka: keys may be forgotten before messages")
		}
		if refused != nil {
			return refused
		}
	}
	return nil
}

// unlessAccepted returns err, or logs it after warning if risk is accepted.
func (s *Subscriber) unlessAccepted(risk Risk, err error, warning string) error {
	switch {
	case err == nil:
		return nil
	case !slices.Contains(s.cfg.AcceptedRisks, risk):
		return fmt.Errorf("%w, or accept kafka.%s (AcceptedRisks)", err, risk)
	}
	s.log.Warn(warning, "error", err)
	return nil
}

// checkCompaction refuses a topic whose older messages of a key Kafka deletes at any time, also before the group has
// handled them. The gap in the offsets looks like that of a transaction's marker, so the loss could not be reported.
// err says why entries could not be read.
func checkCompaction(topic string, entries []sarama.ConfigEntry, err error) error {
	if err != nil {
		return fmt.Errorf("kafka: cannot read whether topic %s is compacted: %w; grant this user DescribeConfigs on it",
			topic, err)
	}
	if policy := setting(entries, "cleanup.policy"); strings.Contains(policy, "compact") {
		return fmt.Errorf("kafka: topic %s is compacted (cleanup.policy=%s): when a key gets another message, its older messages are deleted, also before "+
			"they are handled; set cleanup.policy=delete on the topic", topic, policy)
	}
	return nil
}

// checkWindow compares window with how long topic keeps messages. err says why entries could not be read.
func checkWindow(topic string, window time.Duration, entries []sarama.ConfigEntry, err error) error {
	if err != nil {
		return fmt.Errorf("kafka: cannot read how long topic %s keeps messages: %w; grant this user DescribeConfigs on it", topic, err)
	}
	keeps, why, err := retention(entries)
	switch {
	case err != nil:
		return fmt.Errorf("kafka: cannot read how long topic %s keeps messages: %w", topic, err)
	case keeps == forever:
		return fmt.Errorf("kafka: topic %s keeps messages for ever (%s), the Processor remembers keys for %v; set cleanup.policy=delete "+
			"and retention.ms on the topic", topic, why, window)
	case window < keeps:
		return fmt.Errorf("kafka: topic %s keeps messages for up to %v (%s), the Processor remembers keys for %v; set its Window to %v",
			topic, keeps, why, window, keeps)
	}
	return nil
}

// settingsOf reads the settings of topic that this package needs.
func settingsOf(client sarama.Client, topic string) ([]sarama.ConfigEntry, error) {
	admin, err := sarama.NewClusterAdminFromClient(client) // not closed: that would close the client
	if err != nil {
		return nil, err
	}
	results, err := admin.DescribeConfigs([]*sarama.ConfigResource{{
		Type: sarama.TopicResource, Name: topic, ConfigNames: []string{
			"cleanup.policy", "retention.ms", "segment.ms",
			minReplicas,
		},
	}}, sarama.DescribeConfigsOptions{})
	switch {
	case err != nil:
		return nil, err
	case len(results) != 1:
		return nil, sarama.ErrIncompleteResponse
	case results[0].ErrorCode != sarama.ErrNoError:
		return nil, results[0].ErrorCode
	}
	return results[0].Configs, nil
}

// retention returns how long a topic keeps a message at most. Kafka deletes a whole segment when its newest message is
// old enough, and closes an active segment after up to segment.ms.
func retention(entries []sarama.ConfigEntry) (keeps time.Duration, why string, err error) {
	if policy := setting(entries, "cleanup.policy"); policy != "" && !strings.Contains(policy, "delete") {
		return forever, "cleanup.policy=" + policy, nil
	}
	kept, err := strconv.ParseInt(setting(entries, "retention.ms"), 10, 64)
	if err != nil {
		return 0, "", fmt.Errorf("retention.ms: %w", err)
	}
	segment, err := strconv.ParseInt(setting(entries, "segment.ms"), 10, 64)
	if err != nil {
		return 0, "", fmt.Errorf("segment.ms: %w", err)
	}
	why = fmt.Sprintf("retention.ms=%d, segment.ms=%d", kept, segment)
	const most = int64(forever / time.Millisecond)
	if kept < 0 || kept > most || segment > most-kept {
		return forever, why, nil
	}
	return time.Duration(kept+segment) * time.Millisecond, why, nil
}

func setting(entries []sarama.ConfigEntry, name string) string {
	for _, e := range entries {
		if e.Name == name {
			return e.Value
		}
	}
	return ""
}

// CheckWindow is for programs that check a topic without receiving from it: like a Subscriber at its start, it refuses
// a topic that is compacted, or keeps messages for longer than window. window is how long the consumer remembers keys.
func CheckWindow(client sarama.Client, topic string, window time.Duration) error {
	if err := client.RefreshMetadata(topic); err != nil {
		return fmt.Errorf("kafka: topic %s: %w", topic, err)
	}
	entries, err := settingsOf(client, topic)
	if err := checkCompaction(topic, entries, err); err != nil {
		return err
	}
	return checkWindow(topic, window, entries, err)
}
