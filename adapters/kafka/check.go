package kafka

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/IBM/sarama"
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
		wrong = append(wrong, refusals(slices.Concat(losing(cfg), needed(cfg)), c.Allow)...)
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
	if c.MaxBatch == 0 {
		c.MaxBatch = 500
	}
	if c.MaxBatchBytes == 0 {
		c.MaxBatchBytes = 4 << 20
	}
	if c.Concurrency == 0 {
		c.Concurrency = 1
	}
	if c.MaxUnfinished == 0 {
		c.MaxUnfinished = max(2*c.MaxBatch, c.Concurrency)
	}
	if c.Grace == 0 {
		c.Grace = 30 * time.Second
	}
	if c.MaxBatch < 0 || c.MaxBatchBytes < 0 || c.Grace < 0 {
		refuse("MaxBatch, MaxBatchBytes and Grace must not be negative")
	}
	if c.Concurrency < 0 {
		refuse("Concurrency is %d; it must not be negative", c.Concurrency)
	}
	if c.MaxUnfinished < c.Concurrency {
		refuse("MaxUnfinished is %d, less than Concurrency (%d)", c.MaxUnfinished, c.Concurrency)
	}
	if c.MaxUnfinished < c.MaxBatch {
		refuse("MaxUnfinished is %d, less than MaxBatch (%d)", c.MaxUnfinished, c.MaxBatch)
	}
	for _, a := range c.Allow {
		if !slices.Contains(allowances, a) {
			refuse("Allow contains %q, which is nothing that could be allowed", a)
		}
	}
	if c.Trace == nil {
		c.Trace = &Trace{}
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c, errors.Join(wrong...)
}

var allowances = []Allowance{AllowShortWindow, AllowOffsetNewest, AllowResetInvalidOffsets, AllowReadUncommitted, AllowFetchMax}

// rule is a setting of a sarama.Config that a Subscriber refuses.
type rule struct {
	broken  bool
	setting string
	why     string
	fix     string
	allow   Allowance // empty: there is no way to work like that
}

// Check is for programs with a sarama.ConsumerGroup of their own, which pass the results of ToMessage to a Processor. Like NewSubscriber it
// refuses settings of cfg that lose messages, or that let messages have effects which they must not have. Three of sarama's defaults are such
// settings; NewConfig returns settings that are accepted. The error names each setting and what to do about it; nil means that there
// is none. allow names those that are wanted nevertheless. A nil cfg stands for sarama's defaults.
//
// Check looks only at cfg. Only a Subscriber's Run checks that the Processor remembers keys for longer than the topics keep messages.
func Check(cfg *sarama.Config, allow ...Allowance) error {
	if cfg == nil { // as sarama takes it
		cfg = sarama.NewConfig()
	}
	wrong := refusals(losing(cfg), allow)
	for _, a := range allow {
		if !slices.Contains(allowances, a) {
			wrong = append(wrong, fmt.Errorf("kafka: Check: %q is nothing that could be allowed", a))
		}
	}
	return errors.Join(wrong...)
}

// losing are the rules against settings that lose messages, or that let messages have effects which they must not have.
func losing(cfg *sarama.Config) []rule {
	return []rule{
		{
			cfg.Consumer.Offsets.Initial != sarama.OffsetOldest, "Consumer.Offsets.Initial is not OffsetOldest",
			"a partition without a committed offset would start at its end, and what it holds would never be handled",
			"set it to sarama.OffsetOldest", AllowOffsetNewest,
		},
		{
			cfg.Consumer.Group.ResetInvalidOffsets, "Consumer.Group.ResetInvalidOffsets is true",
			"messages deleted before they were handled would be passed over without a word",
			"set it to false", AllowResetInvalidOffsets,
		},
		{
			cfg.Consumer.IsolationLevel != sarama.ReadCommitted, "Consumer.IsolationLevel is ReadUncommitted",
			"messages of aborted Kafka transactions would have effects",
			"set it to sarama.ReadCommitted", AllowReadUncommitted,
		},
		{
			cfg.Consumer.Fetch.Max != 0, "Consumer.Fetch.Max is set",
			"sarama would skip a message for which it does not suffice",
			"set it to 0 and use Fetch.Default and Fetch.MaxBytes", AllowFetchMax,
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
			"it knows no static members and no cooperative rebalancing",
			"set it to " + minVersion.String() + " or later", "",
		},
	}
}

// refusals lists the rules that are broken and not allowed to be.
func refusals(rules []rule, allow []Allowance) (wrong []error) {
	for _, rule := range rules {
		switch {
		case !rule.broken || slices.Contains(allow, rule.allow):
		case rule.allow == "":
			wrong = append(wrong, fmt.Errorf("kafka: the sarama.Config's %s: %s; %s", rule.setting, rule.why, rule.fix))
		default:
			wrong = append(wrong, fmt.Errorf("kafka: the sarama.Config's %s: %s; %s (kafka.NewConfig does), or allow it with kafka.%s",
				rule.setting, rule.why, rule.fix, rule.allow))
		}
	}
	return wrong
}
