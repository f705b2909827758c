package kafka

import (
	"errors"

	"github.com/IBM/sarama"
)

// errHandOver ends a session. The next session begins with a rebalance.
var errHandOver = errors.New("kafka: partitions of the topics belong to no member of the group")

// finishHandOver makes sure that the crash of a static member leaves no partition unassigned. In a cooperative
// rebalance the owner gives a partition up in one generation, and then begins a second generation, which assigns the
// partition to another member. The owner may crash between the two. When a dynamic member crashes, the group notices
// and begins a generation. A static member that comes back gets its assignment of the old generation, and the second
// generation never begins. So a static member checks this once, when it joins. If a partition is unassigned, it joins
// again with the member ID that it now has: the broker then rebalances, because the subscription has changed.
func (m *member) finishHandOver() error {
	if m.checkedHandOver || m.client.Config().Consumer.Group.InstanceId == "" {
		return nil
	}
	m.checkedHandOver = true
	complete, err := m.allAssigned()
	if err != nil {
		m.log.Warn("kafka: cannot read whether all partitions are assigned; grant this user Describe on the group",
			"error", err)
		return nil
	}
	if complete {
		return nil
	}
	m.log.Info("kafka: some partitions are unassigned, as after a crash during a rebalance; beginning another rebalance")
	return errHandOver
}

// allAssigned reports whether each partition of the topics has an owner. It is also true during a rebalance, which will
// assign them.
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
