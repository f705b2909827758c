package kafka

import (
	"errors"

	"github.com/IBM/sarama"
)

// errHandOver ends a session so that the next one begins a rebalance.
var errHandOver = errors.New("kafka: partitions of the topics belong to no member of the group")

// finishHandOver sees to it that a static member's death leaves no partition to nobody. In a cooperative rebalance a
// partition is taken from its owner in one generation and given away in the next, which the owner begins. Where it dies in
// between, a dynamic member is missed, and that begins a generation; a static one that comes back gets what is left to it
// in the old generation, and nobody knows what was left undone. So a static member looks, once, when it comes. Joining
// again under the member id that it has by then makes the broker rebalance, as what it says of itself has changed.
func (m *member) finishHandOver() error {
	if m.looked || m.client.Config().Consumer.Group.InstanceId == "" {
		return nil
	}
	m.looked = true
	complete, err := m.allAssigned()
	if err != nil {
		m.log.Warn("kafka: whether all partitions are assigned could not be read; grant this user Describe on the group", "error", err)
		return nil
	}
	if complete {
		return nil
	}
	m.log.Info("kafka: partitions belong to nobody, as after a crash during a rebalance; beginning another")
	return errHandOver
}

// allAssigned is true also while a rebalance is running, which will assign what there is.
func (m *member) allAssigned() (bool, error) {
	admin, err := sarama.NewClusterAdminFromClient(m.client) // not closed: that would close the client
	if err != nil {
		return false, err
	}
	groups, err := admin.DescribeConsumerGroups([]string{m.cfg.Group})
	if err != nil {
		return false, err
	}
	assigned := map[string]int{}
	for _, g := range groups {
		if g.Err != sarama.ErrNoError {
			return false, g.Err
		}
		if g.State != "Stable" {
			return true, nil
		}
		for _, other := range g.Members {
			a, err := other.GetMemberAssignment()
			if err != nil {
				return false, err
			}
			if a == nil {
				continue
			}
			for topic, partitions := range a.Topics {
				assigned[topic] += len(partitions)
			}
		}
	}
	for _, topic := range m.cfg.Topics {
		partitions, err := m.client.Partitions(topic)
		if err != nil {
			return false, err
		}
		if assigned[topic] < len(partitions) {
			return false, nil
		}
	}
	return true, nil
}
