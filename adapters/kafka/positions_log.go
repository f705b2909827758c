package kafka

import (
	"errors"
	"fmt"

	"github.com/IBM/sarama"
)

// checkLogs looks whether a topic was deleted and created again. The group's offsets, and fetches that are under way,
// would then skip messages of the new one.
func (s *positions) checkLogs() error {
	if len(s.all()) == 0 {
		return nil
	}
	_, logs, err := s.logs(s.m.cfg.Topics...)
	if err != nil {
		return nil // sarama reports that the brokers are away
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for p, r := range s.reading {
		if now := logs[p.claim.Topic()]; r.log != "" && now != "" && now != r.log {
			return fmt.Errorf("%w: %s", errLog, p.claim.Topic())
		}
	}
	return nil
}

// logs returns the cluster's ID and the topic IDs. An ID is empty if the cluster has none.
func (s *positions) logs(topics ...string) (cluster string, ids map[string]string, err error) {
	client := s.m.client
	broker := client.LeastLoadedBroker()
	if broker == nil {
		return "", nil, sarama.ErrOutOfBrokers
	}
	if err := broker.Open(client.Config()); err != nil && !errors.Is(err, sarama.ErrAlreadyConnected) {
		return "", nil, err
	}
	answer, err := broker.GetMetadata(sarama.NewMetadataRequest(client.Config().Version, topics))
	if err != nil {
		return "", nil, err
	}
	if answer.ClusterID != nil {
		cluster = *answer.ClusterID
	}
	ids = map[string]string{}
	for _, topic := range answer.Topics {
		if topic.Err != sarama.ErrNoError {
			return "", nil, fmt.Errorf("topic %s: %w", topic.Name, topic.Err)
		}
		if topic.Uuid != (sarama.Uuid{}) {
			ids[topic.Name] = topic.Uuid.String()
		}
	}
	return cluster, ids, nil
}
