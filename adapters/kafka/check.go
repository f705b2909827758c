package kafka

import (
	"errors"
	"fmt"
	"slices"

	"github.com/IBM/sarama"

	"github.com/txonce/txonce/internal/deliver"
	"github.com/txonce/txonce/internal/risks"
	"github.com/txonce/txonce/internal/usercode"
)

// minVersion is the first version with cooperative rebalancing and static members.
var minVersion = sarama.V2_4_0_0

// withDefaults returns c with its defaults, or one error that names all fields at fault.
func (c SubscriberConfig) withDefaults() (SubscriberConfig, error) {
	var wrong []error
	refuse := func(format string, args ...any) {
		wrong = append(wrong, fmt.Errorf("kafka: SubscriberConfig."+format, args...))
	}
	switch {
	case c.Client == nil:
		refuse("Client is required")
	case c.Client.Closed():
		refuse("Client is closed")
	default:
		cfg := c.Client.Config()
		wrong = append(wrong, refusals(slices.Concat(losing(cfg), needed(cfg)), c.AcceptedRisks)...)
	}
	if c.Group == "" {
		refuse("Group is required")
	}
	if len(c.Topics) == 0 || slices.Contains(c.Topics, "") {
		refuse("Topics is required, and none may be empty")
	}
	c.Topics = slices.Compact(slices.Sorted(slices.Values(c.Topics))) // a copy, because the caller may change its own
	if c.Processor == nil {
		refuse("Processor is required")
	}
	deliver.SetDefault(refuse, "MaxBatch", &c.MaxBatch, 500)
	deliver.SetDefault(refuse, "MaxBatchBytes", &c.MaxBatchBytes, 4<<20)
	deliver.SetDefault(refuse, "Concurrency", &c.Concurrency, 1)
	deliver.SetDefault(refuse, "MaxUnfinished", &c.MaxUnfinished, max(2*c.MaxBatch, c.Concurrency))
	deliver.SetDefault(refuse, "Grace", &c.Grace, deliver.DefaultGrace)
	if c.MaxUnfinished < c.Concurrency {
		refuse("MaxUnfinished is %d, less than Concurrency (%d)", c.MaxUnfinished, c.Concurrency)
	}
	if c.MaxUnfinished < c.MaxBatch {
		refuse("MaxUnfinished is %d, less than MaxBatch (%d)", c.MaxUnfinished, c.MaxBatch)
	}
	if err := risks.Check(c.AcceptedRisks, subscriberRisks...); err != nil {
		refuse("%w", err)
	}
	c.Logger = usercode.Logger(c.Logger)
	return c, errors.Join(wrong...)
}

var subscriberRisks = []Risk{
	RiskShortWindow, RiskCompaction, RiskOffsetNewest, RiskResetInvalidOffsets,
	RiskReadUncommitted, RiskFetchMax,
}

// rule is about a setting of a sarama.Config that a Subscriber or a Publisher refuses.
type rule struct {
	broken  bool
	setting string
	why     string
	fix     string
	risk    Risk // accepts the setting; empty: none does
}

// Check is for programs with a sarama.ConsumerGroup of their own, which pass the results of ToMessage to a Processor.
// Like NewSubscriber it refuses settings of cfg that lose messages, or that run handlers for messages of aborted
// transactions. Three of sarama's defaults are such settings; NewConfig returns settings that are accepted. The error
// names each refused setting and its remedy; nil means that there is none. Risks in accepted are not refused. A nil cfg
// means sarama's defaults.
//
// Check looks only at cfg. Only a Subscriber's Run and CheckWindow refuse topics that are compacted, or keep messages
// for longer than the Processor remembers keys.
func Check(cfg *sarama.Config, accepted ...Risk) error {
	if cfg == nil { // sarama also takes nil for its defaults
		cfg = sarama.NewConfig()
	}
	wrong := refusals(losing(cfg), accepted)
	if err := risks.Check(accepted, subscriberRisks...); err != nil {
		wrong = append(wrong, fmt.Errorf("kafka: Check: %w", err))
	}
	return errors.Join(wrong...)
}

// losing are the rules against settings that lose messages, or that run handlers for messages of aborted transactions.
func losing(cfg *sarama.Config) []rule {
	return []rule{
		{
			cfg.Consumer.Offsets.Initial != sarama.OffsetOldest, "Consumer.Offsets.Initial is not OffsetOldest",
			"a partition without a committed offset would start at its end, and the messages before would never be handled",
			"set it to sarama.OffsetOldest", RiskOffsetNewest,
		},
		{
			cfg.Consumer.Group.ResetInvalidOffsets, "Consumer.Group.ResetInvalidOffsets is true",
			"messages deleted before they were handled would be skipped silently",
			"set it to false", RiskResetInvalidOffsets,
		},
		{
			cfg.Consumer.IsolationLevel != sarama.ReadCommitted, "Consumer.IsolationLevel is ReadUncommitted",
			"messages of aborted Kafka transactions would have effects",
			"set it to sarama.ReadCommitted", RiskReadUncommitted,
		},
		{
			cfg.Consumer.Fetch.Max != 0, "Consumer.Fetch.Max is set",
			"sarama would skip a message that is larger",
			"set it to 0 and use Fetch.Default and Fetch.MaxBytes", RiskFetchMax,
		},
	}
}

// needed are the rules for settings that a Subscriber needs.
func needed(cfg *sarama.Config) []rule {
	return []rule{
		{
			!cfg.Consumer.Offsets.AutoCommit.Enable, "Consumer.Offsets.AutoCommit.Enable is false",
			"nothing would ever be committed; only finished messages are marked, so automatic commits lose nothing",
			"set it to true", "",
		},
		{
			!cfg.Version.IsAtLeast(minVersion), "Version is " + cfg.Version.String(),
			"it has neither static members nor cooperative rebalancing",
			"set it to " + minVersion.String() + " or later", "",
		},
	}
}

// refusals lists the broken rules whose risk is not accepted.
func refusals(rules []rule, accepted []Risk) (wrong []error) {
	for _, rule := range rules {
		switch {
		case !rule.broken || slices.Contains(accepted, rule.risk):
		case rule.risk == "":
			wrong = append(wrong, fmt.Errorf("kafka: the sarama.Config's %s: %s; %s (kafka.NewConfig does)",
				rule.setting, rule.why, rule.fix))
		default:
			wrong = append(wrong, fmt.Errorf("kafka: the sarama.Config's %s: %s; %s (kafka.NewConfig does), or accept kafka.%s (AcceptedRisks)",
				rule.setting, rule.why, rule.fix, rule.risk))
		}
	}
	return wrong
}
