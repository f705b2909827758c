package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/txonce/txonce/adapters/kafka"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/internal/test/testlog"
)

// starting is a Processor with all optional interfaces.
type starting struct {
	ledger
	start   error
	window  time.Duration
	started atomic.Bool // Start was called

	mu      sync.Mutex
	sources []string
}

func (s *starting) Start(context.Context) error {
	s.started.Store(true)
	return s.start
}

func (s *starting) AddSource(source string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sources = append(s.sources, source)
}

func (s *starting) Window() time.Duration { return s.window }

// refuses runs a Subscriber that is expected to stop at once, and checks that its error says all of these.
func (g *group) refuses(t *testing.T, cfg kafka.SubscriberConfig, says ...string) {
	t.Helper()
	err := g.join(t, cfg).await()
	if err == nil {
		t.Fatalf("Run = nil; want an error that says %q", says)
	}
	for _, s := range says {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("Run = %v; want it to say %q", err, s)
		}
	}
}

func TestProcessorThatCannotStart(t *testing.T) {
	t.Parallel()
	g := startKfake(t).group(t, 1)
	p := &starting{start: errors.New("table processed_messages is missing"), window: dedup.DefaultWindow}
	g.refuses(t, kafka.SubscriberConfig{Processor: p}, g.name, "table processed_messages is missing")
	if len(p.list()) > 0 {
		t.Error("it was given messages")
	}
}

func TestSubscriberNamesItsSources(t *testing.T) {
	t.Parallel()
	g := startKfake(t).group(t, 1)
	p := &starting{start: errors.New("refused"), window: dedup.DefaultWindow}
	g.refuses(t, kafka.SubscriberConfig{Processor: p}, "refused")
	if want := []string{"kafka group " + g.name + ", topic " + g.topic}; !slices.Equal(p.sources, want) {
		t.Errorf("AddSource was called with %q, want %q", p.sources, want)
	}
}

// A database that is away while a worker starts, as in a rolling restart, must not end the worker.
func TestDatabaseAwayAtStart(t *testing.T) {
	eachCluster(t, func(t *testing.T, c cluster) {
		g := c.group(t, 1)
		g.produce(t, text(0, numbers(10)...)...)
		store, effects := consumertest.NewStore(), &testlog.Log{}
		store.Database().Stop()
		billing, err := consumer.New(consumer.Config[*deduptest.Tx]{
			Name: "billing", Store: store, Logger: slog.New(slog.NewTextHandler(effects, nil)),
			Key: func(m *consumer.Message) (string, error) { return string(m.Payload), nil },
			Handle: func(_ context.Context, tx *deduptest.Tx,
				m *consumer.Message,
			) error {
				return tx.Add(string(m.Payload))
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		m := g.join(t, kafka.SubscriberConfig{Processor: billing, AcceptedRisks: []kafka.Risk{kafka.RiskShortWindow}})
		eventually(t, func() error {
			if !strings.Contains(effects.String(), "does not start yet") {
				return errors.New("the consumer does not say that it waits")
			}
			return nil
		})
		elapse(300 * time.Millisecond) // several attempts
		store.Database().Start()
		g.awaitConsumed(t)
		if err := m.stop(); err != nil {
			t.Errorf("Run = %v", err)
		}
		for _, n := range numbers(10) {
			if got := store.Database().Count(n); got != 1 {
				t.Errorf("%d effects of %s, want 1", got, n)
			}
		}
	})
}

// A worker that is stopped while it waits for its database ends without an error.
func TestStopWhileTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	g := startKfake(t).group(t, 1)
	store, log := consumertest.NewStore(), &testlog.Log{}
	store.Database().Stop()
	billing, err := consumer.New(consumer.Config[*deduptest.Tx]{
		Name: "billing", Store: store, Logger: log.Logger(), Key: consumer.MessageID,
		Handle: func(context.Context, *deduptest.Tx, *consumer.Message) error { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	m := g.join(t, kafka.SubscriberConfig{Processor: billing})
	eventually(t, func() error {
		if !strings.Contains(log.String(), "does not start yet") {
			return errors.New("the consumer does not say that it waits")
		}
		return nil
	})
	if err := m.stop(); err != nil {
		t.Errorf("Run = %v, want nil", err)
	}
}

func TestMissingTopic(t *testing.T) {
	eachCluster(t, func(t *testing.T, c cluster) {
		g := *c.group(t, 1)
		g.topic += "-misspelt"
		g.refuses(t, kafka.SubscriberConfig{Processor: &ledger{}}, g.topic, "does not exist")
		if topics, err := g.client.Topics(); err != nil || slices.Contains(topics, g.topic) {
			t.Errorf("topics %v, %v; the missing topic was created", topics, err)
		}
	})
}

func TestMissingTopicIsNotCreated(t *testing.T) {
	t.Parallel()
	g := *startKfake(t, kfake.AllowAutoTopicCreation()).group(t, 1)
	g.topic += "-misspelt"
	g.refuses(t, kafka.SubscriberConfig{Processor: &ledger{}}, g.topic, "does not exist")
}

func TestUnreachableBroker(t *testing.T) {
	t.Parallel()
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	cfg := testConfig(sarama.NewBalanceStrategyRange())
	cfg.Metadata.Retry.Max = 1
	addr := c.ListenAddrs()[0]
	brokers := through(cfg)
	client := dial(t, []string{addr}, cfg)
	brokers.close() // not the broker itself: another test's could get its port
	sub, err := kafka.NewSubscriber(kafka.SubscriberConfig{
		Client: client, Group: "g", Topics: []string{"orders"},
		Processor: &ledger{},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := sub.Run(t.Context()); err == nil || !strings.Contains(err.Error(), addr) {
		t.Errorf("Run = %v; want an error that names %s", err, addr)
	}
}

func TestWindowAndRetention(t *testing.T) {
	day := 24 * time.Hour
	eachCluster(t, func(t *testing.T, c cluster) {
		for _, tt := range []struct {
			name    string
			configs map[string]string
			window  time.Duration
			says    []string // nil: accepted
		}{
			{"defaults, 7 days and a segment of 7", nil, 15 * day, nil},
			{"just as long", nil, 14 * day, nil},
			{"a second less", nil, 14*day - time.Second, []string{"336h0m0s", "retention.ms=604800000", "Window"}},
			{"retention alone", nil, 7 * day, []string{"segment.ms=604800000"}},
			{
				"long retention",
				map[string]string{"retention.ms": "2592000000"},
				15 * day,
				[]string{"retention.ms=2592000000"},
			},
			{"short", map[string]string{"retention.ms": "3600000", "segment.ms": "3600000"}, 2 * time.Hour, nil},
			{
				"no retention",
				map[string]string{"retention.ms": "-1"},
				10000 * day,
				[]string{"for ever", "retention.ms=-1"},
			},
		} {
			t.Run(tt.name, func(t *testing.T) {
				t.Parallel()
				g := c.group(t, 1)
				g.alter(t, tt.configs)
				p := &starting{window: tt.window}
				cfg := kafka.SubscriberConfig{Processor: p}
				if tt.says != nil {
					g.refuses(t, cfg, append(tt.says, g.topic, string(kafka.RiskShortWindow))...)
					if p.started.Load() {
						t.Error("the Processor was started, which registers a window that is too short")
					}
					cfg.AcceptedRisks = []kafka.Risk{kafka.RiskShortWindow}
				}
				m := g.join(t, cfg)
				g.awaitConsumed(t) // of an empty topic: the member is at work
				if err := m.stop(); err != nil {
					t.Errorf("Run = %v; want it accepted", err)
				}
				if warned := strings.Contains(m.log.String(), g.topic+" keeps"); warned != (tt.says != nil) {
					t.Errorf("warned: %v; want a warning when it is too short and allowed, only then. Log:\n%s",
						warned, m.log)
				}
			})
		}
	})
}

// Compaction deletes messages that the group has not handled, and nothing reports it.
func TestCompactedTopic(t *testing.T) {
	window := 15 * 24 * time.Hour
	eachCluster(t, func(t *testing.T, c cluster) {
		for policy, risks := range map[string][]kafka.Risk{
			"compact":        {kafka.RiskCompaction, kafka.RiskShortWindow}, // it keeps messages for ever
			"compact,delete": {kafka.RiskCompaction},
		} {
			t.Run(policy, func(t *testing.T) {
				t.Parallel()
				g := c.group(t, 1)
				g.alter(t, map[string]string{"cleanup.policy": policy})
				// also without a window
				g.refuses(t, kafka.SubscriberConfig{Processor: &ledger{}}, string(kafka.RiskCompaction))
				cfg := kafka.SubscriberConfig{Processor: &starting{window: window}}
				for i, risk := range risks {
					cfg.AcceptedRisks = risks[:i]
					g.refuses(t, cfg, g.topic, "cleanup.policy="+policy, string(risk))
				}
				if err := kafka.CheckWindow(g.client, g.topic, window); err == nil || !strings.Contains(err.Error(),
					"is compacted (cleanup.policy="+policy) {
					t.Errorf("CheckWindow = %v; want it to name the policy", err)
				}
				cfg.AcceptedRisks = risks
				m := g.join(t, cfg)
				g.awaitConsumed(t) // of an empty topic: the member is at work
				if err := m.stop(); err != nil {
					t.Errorf("Run = %v; want it accepted", err)
				}
				if !strings.Contains(m.log.String(), g.topic+" is compacted") {
					t.Errorf("no warning of the compaction. Log:\n%s", m.log)
				}
			})
		}
	})
}

func (g *group) alter(t *testing.T, configs map[string]string) {
	t.Helper()
	if len(configs) == 0 {
		return
	}
	admin, err := sarama.NewClusterAdminFromClient(g.client)
	if err != nil {
		t.Fatal(err)
	}
	entries := map[string]*string{}
	for k, v := range configs {
		entries[k] = &v
	}
	if err := admin.AlterConfig(sarama.TopicResource, g.topic, entries, false); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error { // the controller has it; the broker learns it later
		got, err := admin.DescribeConfigs([]*sarama.ConfigResource{{Type: sarama.TopicResource, Name: g.topic}},
			sarama.DescribeConfigsOptions{})
		if err != nil {
			return err
		}
		for _, e := range got[0].Configs {
			if want, set := configs[e.Name]; set && e.Value != want {
				err = errors.Join(err, fmt.Errorf("%s is %q yet, want %q", e.Name, e.Value, want))
			}
		}
		return err
	})
}

func TestRetention(t *testing.T) {
	for _, tt := range []struct {
		name                  string
		policy, kept, segment string
		want                  time.Duration
		wantErr               bool
	}{
		{name: "sum", policy: "delete", kept: "1000", segment: "500", want: 1500 * time.Millisecond},
		{name: "no policy", kept: "1000", segment: "500", want: 1500 * time.Millisecond},
		{name: "overflow", policy: "delete", kept: "9223372036854775807", segment: "604800000", want: kafka.Forever},
		{
			name: "overflow of the sum", policy: "delete", kept: "9223372036000", segment: "9223372036000",
			want: kafka.Forever,
		},
		{name: "long segment", policy: "delete", kept: "1000", segment: "9223372036854775807", want: kafka.Forever},
		{name: "garbage", policy: "delete", kept: "a week", segment: "1", wantErr: true},
		{name: "not told", wantErr: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var entries []sarama.ConfigEntry
			for name, value := range map[string]string{
				"cleanup.policy": tt.policy, "retention.ms": tt.kept,
				"segment.ms": tt.segment,
			} {
				if value != "" {
					entries = append(entries, sarama.ConfigEntry{Name: name, Value: value})
				}
			}
			got, _, err := kafka.Retention(entries)
			if got != tt.want || (err != nil) != tt.wantErr {
				t.Errorf("retention = %v, %v; want %v", got, err, tt.want)
			}
		})
	}
}

// TestPermissions runs as a user that lacks one permission.
func TestPermissions(t *testing.T) {
	t.Parallel()
	may := func(resource kmsg.ACLResourceType, name string, op kmsg.ACLOperation) kfake.ACL {
		return kfake.ACL{
			Resource: resource, Name: name, Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: op,
			Allow: true,
		}
	}
	topic := func(op kmsg.ACLOperation) kfake.ACL { return may(kmsg.ACLResourceTypeTopic, "orders", op) }
	readGroup := may(kmsg.ACLResourceTypeGroup, "billing", kmsg.ACLOperationRead)
	// which Read implies, but not here
	describeGroup := may(kmsg.ACLResourceTypeGroup, "billing", kmsg.ACLOperationDescribe)
	for _, tt := range []struct {
		name string
		acls []kfake.ACL
		says []string
	}{
		{"not the topic", []kfake.ACL{readGroup}, []string{"topic orders", "grant", "Describe"}},
		{"not its configuration", []kfake.ACL{readGroup, topic(kmsg.ACLOperationRead), topic(kmsg.ACLOperationDescribe)}, []string{"orders", "grant", "DescribeConfigs"}},
		{"not the group", []kfake.ACL{topic(kmsg.ACLOperationRead), topic(kmsg.ACLOperationDescribe), topic(kmsg.ACLOperationDescribeConfigs)}, []string{"billing", "grant", "group"}},
		{"not the messages", []kfake.ACL{readGroup, describeGroup, topic(kmsg.ACLOperationDescribe), topic(kmsg.ACLOperationDescribeConfigs)}, []string{"topics [orders]", "grant", "Read"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := startKfake(t, kfake.EnableSASL(), kfake.EnableACLs(), kfake.SeedTopics(1, "orders"),
				kfake.Superuser("PLAIN", "admin", "admin"), kfake.User("PLAIN", "worker", "secret", tt.acls...))
			cfg := testConfig(sarama.NewBalanceStrategyRange())
			cfg.Net.SASL.Enable, cfg.Net.SASL.User, cfg.Net.SASL.Password = true, "worker", "secret"
			g := &group{cluster: c, name: "billing", topic: "orders"}
			g.refuses(t, kafka.SubscriberConfig{Client: dial(t, c.brokers, cfg), Processor: &starting{window: 15 * 24 * time.Hour}}, tt.says...)
		})
	}
}

var _ driver.Windowed = (*starting)(nil)
