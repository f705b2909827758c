package kafka

import (
	"fmt"
	"time"

	"github.com/IBM/sarama"
)

// CheckWindow is for checks from outside: it refuses a topic that keeps messages for longer than window, as a Subscriber does at start.
// window is how long the consumer remembers keys.
func CheckWindow(client sarama.Client, topic string, window time.Duration) error {
	if err := client.RefreshMetadata(topic); err != nil {
		return fmt.Errorf("kafka: topic %s: %w", topic, err)
	}
	entries, err := settingsOf(client, topic)
	return checkWindow(topic, window, entries, err)
}
