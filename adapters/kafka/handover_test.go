package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/txonce/txonce/adapters/kafka"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/driver"
)

// TestStaticMemberDiesInAHandOver: a cooperative rebalance takes a partition from its owner in one generation and
// assigns it in the next, which the owner begins after it gave the partition up. When the owner is a static member that
// dies in between, the broker accepts it again without a rebalance. Then no member owns the partition until a member
// begins the next generation.
func TestStaticMemberDiesInAHandOver(t *testing.T) {
	eachCluster(t, func(t *testing.T, c cluster) {
		g := c.group(t, 4)
		for p := range int32(4) {
			g.produce(t, text(p, "a")...)
		}
		config := func(id string, trace *driver.SourceTrace) kafka.SubscriberConfig {
			cfg := testConfig(sarama.NewBalanceStrategyCooperativeSticky())
			cfg.Consumer.Group.InstanceId = id
			cfg.Consumer.Group.Rebalance.Timeout = time.Hour
			return kafka.SubscriberConfig{
				Client: dial(t, c.brokers, cfg), Processor: &ledger{}, Trace: trace,
				Grace: time.Hour,
			}
		}

		// The first owner is as good as dead: its handlers keep it from letting go.
		running, finish := make(chan struct{}, 4), make(chan struct{})
		stuck := config("one", nil)
		stuck.Processor = processor(func(context.Context, *consumer.Message) error {
			tell(running)
			<-finish
			return nil
		})
		first := g.join(t, stuck)
		for range 4 {
			<-running
		}
		var other, again assignments
		g.join(t, config("", other.trace()))
		eventually(t, func() error {
			switch members, assigned, err := g.stable(); {
			case err != nil:
				return err
			case members != 2 || assigned == 0 || assigned == 4:
				return fmt.Errorf("%d members have %d partitions of 4; want some withheld from the second", members,
					assigned)
			}
			return nil
		})
		g.join(t, config("one", again.trace()))
		eventually(t, func() error {
			if a, b := again.held(), other.held(); len(a)+len(b) != 4 {
				return fmt.Errorf("the members have partitions %v and %v; the rest belongs to nobody", a, b)
			}
			return nil
		})
		close(finish)
		_ = first.await() // another member has taken its place, which it may notice
	})
}

// stable says how many members the group has and how many partitions are assigned to them, or that it is in a
// rebalance.
func (g *group) stable() (members, assigned int, err error) {
	admin, err := sarama.NewClusterAdminFromClient(g.client)
	if err != nil {
		return 0, 0, err
	}
	found, err := admin.DescribeConsumerGroups([]string{g.name})
	if err != nil {
		return 0, 0, err
	}
	if len(found) != 1 || found[0].State != "Stable" {
		return 0, 0, errors.New("the group is in a rebalance")
	}
	for _, m := range found[0].Members {
		assignment, err := m.GetMemberAssignment()
		if err != nil {
			return 0, 0, err
		}
		if assignment != nil {
			assigned += len(assignment.Topics[g.topic])
		}
	}
	return len(found[0].Members), assigned, nil
}
