package kafka_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/txonce/txonce/adapters/kafka"
	"github.com/txonce/txonce/consumer"
)

// settings is a sarama.Client that has only settings.
type settings struct {
	sarama.Client
	cfg    *sarama.Config
	closed bool
}

func (c settings) Config() *sarama.Config { return c.cfg }
func (c settings) Closed() bool           { return c.closed }

type processor func(context.Context, *consumer.Message) error

func (p processor) Process(ctx context.Context, msg *consumer.Message) error { return p(ctx, msg) }

func valid() kafka.SubscriberConfig {
	return kafka.SubscriberConfig{
		Client: settings{cfg: kafka.NewConfig()}, Group: "billing", Topics: []string{"orders"},
		Processor: processor(func(context.Context, *consumer.Message) error { return nil }),
	}
}

func TestRefusedSettings(t *testing.T) {
	for _, tt := range []struct {
		name  string
		set   func(*sarama.Config)
		says  string
		allow kafka.Risk
	}{
		{
			"start at the end", func(c *sarama.Config) { c.Consumer.Offsets.Initial = sarama.OffsetNewest },
			"Consumer.Offsets.Initial", kafka.RiskOffsetNewest,
		},
		{
			"start at some offset", func(c *sarama.Config) { c.Consumer.Offsets.Initial = 17 },
			"Consumer.Offsets.Initial", kafka.RiskOffsetNewest,
		},
		{
			"silent reset", func(c *sarama.Config) { c.Consumer.Group.ResetInvalidOffsets = true },
			"Consumer.Group.ResetInvalidOffsets", kafka.RiskResetInvalidOffsets,
		},
		{
			"aborted transactions", func(c *sarama.Config) { c.Consumer.IsolationLevel = sarama.ReadUncommitted },
			"Consumer.IsolationLevel", kafka.RiskReadUncommitted,
		},
		{
			"skipped large messages", func(c *sarama.Config) { c.Consumer.Fetch.Max = 1 << 20 },
			"Consumer.Fetch.Max", kafka.RiskFetchMax,
		},
		{
			"no commits", func(c *sarama.Config) { c.Consumer.Offsets.AutoCommit.Enable = false },
			"Consumer.Offsets.AutoCommit.Enable", "",
		},
		{"old protocol", func(c *sarama.Config) { c.Version = sarama.V2_3_0_0 }, "Version is 2.3.0", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := valid()
			tt.set(cfg.Client.Config())
			_, err := kafka.NewSubscriber(cfg)
			if err == nil || !strings.Contains(err.Error(), tt.says) || strings.Count(err.Error(), "\n") != 0 {
				t.Fatalf("NewSubscriber = %v; want it refused because of %s alone", err, tt.says)
			}
			if tt.allow == "" {
				cfg.AcceptedRisks = []kafka.Risk{
					kafka.RiskShortWindow, kafka.RiskCompaction, kafka.RiskOffsetNewest,
					kafka.RiskResetInvalidOffsets, kafka.RiskReadUncommitted, kafka.RiskFetchMax,
				}
				if _, err := kafka.NewSubscriber(cfg); err == nil {
					t.Fatal("NewSubscriber accepts it when other things are allowed")
				}
				return
			}
			if !strings.Contains(err.Error(), "kafka."+string(tt.allow)) {
				t.Errorf("NewSubscriber = %v; want it to name what allows it, %s", err, tt.allow)
			}
			cfg.AcceptedRisks = []kafka.Risk{kafka.RiskShortWindow}
			if _, err := kafka.NewSubscriber(cfg); err == nil {
				t.Error("NewSubscriber accepts it when something else is allowed")
			}
			cfg.AcceptedRisks = []kafka.Risk{tt.allow}
			if _, err := kafka.NewSubscriber(cfg); err != nil {
				t.Errorf("NewSubscriber = %v; want it accepted when it is allowed", err)
			}
		})
	}
}

func TestSaramaDefaultsAreRefusedOneByOne(t *testing.T) {
	cfg := valid()
	cfg.Client = settings{cfg: sarama.NewConfig()}
	_, err := kafka.NewSubscriber(cfg)
	if err == nil || strings.Count(err.Error(), "\n") != 2 {
		t.Errorf("NewSubscriber = %v; want three lines, for Offsets.Initial, ResetInvalidOffsets and IsolationLevel", err)
	}
}

func TestSubscriberConfigErrors(t *testing.T) {
	for _, tt := range []struct {
		name string
		set  func(*kafka.SubscriberConfig)
		says string // empty: accepted
	}{
		{"valid", func(*kafka.SubscriberConfig) {}, ""},
		{"no client", func(c *kafka.SubscriberConfig) { c.Client = nil }, "Client is required"},
		{"closed client", func(c *kafka.SubscriberConfig) { c.Client = settings{closed: true} }, "Client is closed"},
		{"no group", func(c *kafka.SubscriberConfig) { c.Group = "" }, "Group"},
		{"no topics", func(c *kafka.SubscriberConfig) { c.Topics = nil }, "Topics"},
		{"empty topic", func(c *kafka.SubscriberConfig) { c.Topics = []string{"orders", ""} }, "Topics"},
		{"no processor", func(c *kafka.SubscriberConfig) { c.Processor = nil }, "Processor"},
		{"negative batch", func(c *kafka.SubscriberConfig) { c.MaxBatch = -1 }, "MaxBatch"},
		{"negative bytes", func(c *kafka.SubscriberConfig) { c.MaxBatchBytes = -1 }, "MaxBatchBytes"},
		{"negative grace", func(c *kafka.SubscriberConfig) { c.Grace = -time.Second }, "Grace"},
		{"batches that cannot be", func(c *kafka.SubscriberConfig) { c.MaxUnfinished = 499 }, "MaxUnfinished"},
		{"larger batches", func(c *kafka.SubscriberConfig) { c.MaxBatch = 5000 }, ""},
		{
			"unknown allowance", func(c *kafka.SubscriberConfig) { c.AcceptedRisks = []kafka.Risk{"AllowAll"} },
			`"AllowAll"`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := valid()
			tt.set(&cfg)
			_, err := kafka.NewSubscriber(cfg)
			if (err == nil) != (tt.says == "") || err != nil && !strings.Contains(err.Error(), tt.says) {
				t.Errorf("NewSubscriber = %v; want it to say %q", err, tt.says)
			}
		})
	}
}

// TestCheck: a user's own consumer group loses messages with the same settings as a Subscriber.
func TestCheck(t *testing.T) {
	for _, tt := range []struct {
		name  string
		cfg   *sarama.Config
		set   func(*sarama.Config)
		allow []kafka.Risk
		want  int // lines
	}{
		{"NewConfig", kafka.NewConfig(), nil, nil, 0},
		{"sarama's defaults", sarama.NewConfig(), nil, nil, 3},
		{"none", nil, nil, nil, 3},
		{
			"at the end", kafka.NewConfig(), func(c *sarama.Config) { c.Consumer.Offsets.Initial = sarama.OffsetNewest },
			nil, 1,
		},
		{
			"at the end, allowed", kafka.NewConfig(),
			func(c *sarama.Config) { c.Consumer.Offsets.Initial = sarama.OffsetNewest },
			[]kafka.Risk{kafka.RiskOffsetNewest},
			0,
		},
		{
			"skipped large messages", kafka.NewConfig(), func(c *sarama.Config) { c.Consumer.Fetch.Max = 1 << 20 },
			nil, 1,
		},
		{"it commits by itself", kafka.NewConfig(), func(c *sarama.Config) { c.Consumer.Offsets.AutoCommit.Enable = false }, nil, 0},
		{"unknown allowance", kafka.NewConfig(), nil, []kafka.Risk{"AllowAll"}, 1},
		{"empty allowance", kafka.NewConfig(), nil, []kafka.Risk{""}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.set != nil {
				tt.set(tt.cfg)
			}
			err := kafka.Check(tt.cfg, tt.allow...)
			lines := 0
			if err != nil {
				lines = strings.Count(err.Error(), "\n") + 1
			}
			if lines != tt.want {
				t.Errorf("Check = %v; want %d lines", err, tt.want)
			}
		})
	}
}
