package kafka_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/IBM/sarama"
	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/adapters/kafka"
	"github.com/txonce/txonce/consumer"
)

func (g *group) deleteRecords(t *testing.T, before int64) {
	t.Helper()
	admin, err := sarama.NewClusterAdminFromClient(g.client)
	if err != nil {
		t.Fatal(err)
	}
	if err := admin.DeleteRecords(g.topic, map[int32]int64{0: before}); err != nil {
		t.Fatal(err)
	}
}

// TestGap deletes messages that the group has not handled yet.
func TestGap(t *testing.T) {
	eachCluster(t, func(t *testing.T, c cluster) {
		eachProtocol(t, func(t *testing.T, strategy sarama.BalanceStrategy) {
			for _, tt := range []struct {
				name    string
				handled int // before the gap
			}{
				{"after some", 10},
				{"before the first", 0}, // the group had started, though
			} {
				t.Run(tt.name, func(t *testing.T) {
					g := c.group(t, 1)
					l := &ledger{}
					client := func() sarama.Client { return dial(t, c.brokers, testConfig(strategy)) }
					g.produce(t, text(0, numbers(tt.handled)...)...)
					m := g.join(t, kafka.SubscriberConfig{Client: client(), Processor: l})
					g.awaitConsumed(t)
					if err := m.stop(); err != nil {
						t.Fatal(err)
					}
					g.produce(t, text(0, numbers(100)...)...)
					g.deleteRecords(t, 50)
					for range 2 { // it does not heal by starting again
						g.refuses(t, kafka.SubscriberConfig{Client: client(), Processor: l}, g.topic+"/0", g.name,
							"begins at 50", "--bootstrap-server "+c.brokers[0], "--reset-offsets --to-earliest --dry-run")
					}
					if n := len(l.list()); n != tt.handled {
						t.Errorf("%d messages were handled beyond the gap", n-tt.handled)
					}
					cfg := testConfig(strategy)
					cfg.Consumer.Group.ResetInvalidOffsets = true
					m = g.join(t, kafka.SubscriberConfig{
						Client: dial(t, c.brokers, cfg), Processor: l,
						AcceptedRisks: []kafka.Risk{kafka.RiskResetInvalidOffsets},
					})
					g.awaitConsumed(t)
					if err := m.stop(); err != nil {
						t.Errorf("Run = %v where a reset is allowed", err)
					}
					want := slices.Concat(numbers(tt.handled), numbers(100)[50-tt.handled:])
					if diff := cmp.Diff(want, l.list()); diff != "" {
						t.Errorf("handled (-want +got):\n%s", diff)
					}
				})
			}
		})
	})
}

// TestGapWhileRunning deletes messages from under a member that lags behind.
func TestGapWhileRunning(t *testing.T) {
	eachCluster(t, func(t *testing.T, c cluster) {
		g := c.group(t, 1)
		for range 10 {
			g.produce(t, text(0, slices.Repeat([]string{strings.Repeat("x", 1000)}, 200)...)...)
		}
		cfg := testConfig(sarama.NewBalanceStrategyRange())
		cfg.Consumer.Fetch.Default, cfg.ChannelBufferSize = 10_000, 1
		running, finish := make(chan struct{}, 1), make(chan struct{})
		slow := processor(func(ctx context.Context, _ *consumer.Message) error {
			tell(running)
			select {
			case <-finish:
			case <-ctx.Done():
			}
			return ctx.Err()
		})
		m := g.join(t, kafka.SubscriberConfig{
			Client: dial(t, c.brokers, cfg), Processor: slow, MaxBatch: 1,
			MaxUnfinished: 1,
		})
		<-running
		g.deleteRecords(t, 1900)
		close(finish)
		if err := m.await(); err == nil || !strings.Contains(err.Error(), "begins at 1900") {
			t.Errorf("Run = %v; want it to say that messages were deleted unhandled", err)
		}
	})
}

// TestTopicMadeAnew finds a committed offset that the topic never reached.
func TestTopicMadeAnew(t *testing.T) {
	eachCluster(t, func(t *testing.T, c cluster) {
		g := c.group(t, 1)
		m := g.join(t, kafka.SubscriberConfig{Processor: &ledger{}})
		g.awaitConsumed(t)
		if err := m.stop(); err != nil {
			t.Fatal(err)
		}
		offsets, err := sarama.NewOffsetManagerFromClient(g.name, g.client)
		if err != nil {
			t.Fatal(err)
		}
		p, err := offsets.ManagePartition(g.topic, 0)
		if err != nil {
			t.Fatal(err)
		}
		p.MarkOffset(1000, "")
		offsets.Commit()
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		if err := offsets.Close(); err != nil {
			t.Fatal(err)
		}
		g.refuses(t, kafka.SubscriberConfig{Processor: &ledger{}}, g.topic+"/0 ends at 0", g.name, "1000",
			"--reset-offsets --to-earliest --dry-run")
	})
}
