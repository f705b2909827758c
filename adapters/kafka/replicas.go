package kafka

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/IBM/sarama"
)

// minReplicas is the setting that says how many replicas of a partition must have a message before it is confirmed.
const minReplicas = "min.insync.replicas"

// warnOfOneReplica warns when the death of one broker may lose confirmed messages of topic. It returns true when the
// setting is known, or will never be known. err says why entries could not be read.
func warnOfOneReplica(log *slog.Logger, topic string, entries []sarama.ConfigEntry, err error) (known bool) {
	switch {
	case errors.Is(err, sarama.ErrTopicAuthorizationFailed), errors.Is(err, sarama.ErrClusterAuthorizationFailed):
		log.Info("kafka: cannot read whether the topic confirms messages that only one broker has; grant this user DescribeConfigs on it",
			"topic", topic, "error", err)
		return true
	case err != nil:
		return false
	case confirmedByOne(entries):
		log.Warn("kafka: "+oneReplica, "topic", topic, minReplicas, 1)
	}
	return true
}

const oneReplica = "messages of the topic are confirmed when only one broker has them: if that broker dies, they may be lost, and later messages may " +
	"get their offsets; a group that had passed these offsets skips those messages; set min.insync.replicas to 2 on the topic, and give it 3 replicas"

func confirmedByOne(entries []sarama.ConfigEntry) bool { return setting(entries, minReplicas) == "1" }

// CheckReplicas is for programs that check a topic without using it. It returns an error if topic confirms messages
// that only one broker has (min.insync.replicas is 1), about which a Subscriber and a Publisher log a warning, or if
// the setting cannot be read.
func CheckReplicas(client sarama.Client, topic string) error {
	entries, err := settingsOf(client, topic)
	switch {
	case err != nil:
		return fmt.Errorf("kafka: cannot read min.insync.replicas of topic %s: %w; grant this user DescribeConfigs on it", topic, err)
	case confirmedByOne(entries):
		return fmt.Errorf("kafka: topic %s: %s", topic, oneReplica)
	}
	return nil
}

// replicas warns of each topic once, when it is found for the first time.
type replicas struct {
	log    *slog.Logger
	topics sync.Map // those that were checked
}

// check reads the settings of topic, unless it has done so before. After an error that may be temporary, the next call
// tries again.
func (r *replicas) check(client sarama.Client, topic string) {
	if _, before := r.topics.LoadOrStore(topic, true); before {
		return
	}
	entries, err := settingsOf(client, topic)
	if !warnOfOneReplica(r.log, topic, entries, err) {
		r.topics.Delete(topic)
	}
}
