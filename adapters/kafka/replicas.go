package kafka

import (
	"errors"
	"log/slog"
	"sync"

	"github.com/IBM/sarama"
)

// minReplicas is the setting that says how many replicas of a partition must have a message before it is confirmed.
const minReplicas = "min.insync.replicas"

// warnOfOneReplica says that a broker's death may take messages of topic with it that were confirmed. It reports whether the setting
// is known now, or never will be. err is why entries could not be read.
func warnOfOneReplica(log *slog.Logger, topic string, entries []sarama.ConfigEntry, err error) (known bool) {
	switch {
	case errors.Is(err, sarama.ErrTopicAuthorizationFailed), errors.Is(err, sarama.ErrClusterAuthorizationFailed):
		log.Info("kafka: whether the topic confirms messages that only one broker has could not be read; grant this user DescribeConfigs on it",
			"topic", topic, "error", err)
		return true
	case err != nil:
		return false
	case setting(entries, minReplicas) == "1":
		log.Warn("kafka: the topic confirms messages that only one broker has: if that broker dies, they may be lost, and their offsets be given to "+
			"others, which a group that was further passes over; set min.insync.replicas to 2 on the topic, and give it 3 replicas",
			"topic", topic, minReplicas, 1)
	}
	return true
}

// replicas warns of each topic once, when it is found for the first time.
type replicas struct {
	log    *slog.Logger
	topics sync.Map // those that were looked at
}

// check reads the settings of topic, unless it was looked at before. An error that may pass is left to the next time.
func (r *replicas) check(client sarama.Client, topic string) {
	if _, before := r.topics.LoadOrStore(topic, true); before {
		return
	}
	entries, err := settingsOf(client, topic)
	if !warnOfOneReplica(r.log, topic, entries, err) {
		r.topics.Delete(topic)
	}
}
