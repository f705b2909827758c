package relay

import (
	"cmp"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/txonce/txonce/internal/backoff"
	"github.com/txonce/txonce/internal/hooks"
	"github.com/txonce/txonce/internal/tokens"
	"github.com/txonce/txonce/internal/usercode"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

// Defaults of Config.
const (
	DefaultBatchSize      = 1000
	DefaultBatchBytes     = 8 << 20
	DefaultWorkers        = 4
	DefaultLeaseTTL       = 30 * time.Second
	DefaultMaxAttempts    = 10
	DefaultPublishTimeout = 10 * time.Second
	DefaultBackoffBase    = 100 * time.Millisecond
	DefaultBackoffCap     = time.Minute
	DefaultPollMin        = 10 * time.Millisecond
	DefaultPollMax        = time.Second
)

// MinLeaseTTL is the shortest Config.LeaseTTL: a hold is renewed three times within it or more often, each time with a
// round trip.
const MinLeaseTTL = 100 * time.Millisecond

// Config of a Relay.
type Config struct {
	// Queue is the outbox: one of this module's stores. Required.
	Queue driver.Queue

	// Publisher gets the messages of each topic that is not in Publishers. Required, unless Publishers is set: then
	// messages of other topics wait, with ErrNoPublisher, like those of a topic that the broker does not have.
	Publisher outbox.Publisher

	// Publishers are those of single topics. The order of a key holds across them.
	//
	// Defaults to none.
	Publishers map[string]outbox.Publisher

	// Name is the relay's name in Stats and logs.
	//
	// Defaults to the host's name and the process id.
	Name string

	// BatchSize is how many messages at most are leased at once, and settled in one transaction.
	//
	// Defaults to DefaultBatchSize.
	BatchSize int

	// BatchBytes limits the size of the messages that are leased at once. A single larger message is leased alone. A
	// relay uses Workers times as much memory.
	//
	// Defaults to DefaultBatchBytes.
	BatchBytes int

	// Workers is how many batches are in flight at once.
	//
	// Defaults to DefaultWorkers.
	Workers int

	// LeaseTTL is how long other relays wait for the shards of a relay that died. The lease is renewed all the time, so
	// a batch may take longer. At least MinLeaseTTL.
	//
	// Defaults to DefaultLeaseTTL.
	LeaseTTL time.Duration

	// Margin is how long before the end of its hold a relay stops publishing, so that everything it sent has arrived
	// when another relay begins. At most half of LeaseTTL.
	//
	// Defaults to a fifth of LeaseTTL.
	Margin time.Duration

	// PublishTimeout limits one call of Publish. The end of the hold may make a call shorter.
	//
	// Defaults to DefaultPublishTimeout.
	PublishTimeout time.Duration

	// MaxAttempts is how often a message is tried before it is parked. Failures of the broker or of a topic do not
	// count.
	//
	// Defaults to DefaultMaxAttempts.
	MaxAttempts int

	// ParkLimit limits how fast this relay parks messages. When it is spent, something is wrong with more than one
	// message: further messages are held back and tried again instead, which is logged once a minute, and no attempt is
	// counted.
	//
	// Defaults to a burst of 100, and 100 per minute.
	ParkLimit ParkLimit

	// Backoff returns how long a message, and with it its key, is held back after that many failed attempts, 1 or more.
	// It also returns how long an unavailable publisher gets no messages, after that many failures in a row, at most 5
	// s. When its calls take a second or longer, the publisher gets no messages for at least as long as the call took,
	// at most 30 s.
	//
	// Defaults to full jitter: a random duration up to DefaultBackoffBase * 2^(attempt-1), and at most
	// DefaultBackoffCap. This also applies when Backoff panics.
	Backoff func(attempt int) time.Duration

	// ParkPolicy says what happens to the later messages of a key after one is parked.
	//
	// Defaults to outbox.BlockKey.
	ParkPolicy outbox.ParkPolicy

	// PollMin and PollMax are bounds of the poll interval: PollMin after a poll found unannounced messages, doubling to
	// PollMax while polls find none. Where the Queue notifies the relays of all commits, more than three relays share
	// these polls: n relays poll every PollMax*n/3 each, and at least every 6*PollMax.
	//
	// They default to DefaultPollMin and DefaultPollMax.
	PollMin, PollMax time.Duration

	// HeaderFormat makes the headers of published messages.
	//
	// Defaults to outbox.PlainHeaders.
	HeaderFormat outbox.HeaderFormat

	// Logger gets one line for each parked message, one for each batch with failures, one for each call without usable
	// answers, two for each outage, and one a minute for each topic at fault.
	//
	// Defaults to slog.Default().
	Logger *slog.Logger

	// Trace has hooks that are called for what happens to messages.
	//
	// Defaults to none.
	Trace *Trace
}

// complete returns cfg with its defaults filled in, or an error that names the field at fault.
func (cfg Config) complete() (Config, error) {
	if cfg.Name == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "unknown host"
		}
		cfg.Name = fmt.Sprintf("%s/%d", host, os.Getpid())
	}
	cfg.BatchSize = cmp.Or(cfg.BatchSize, DefaultBatchSize)
	cfg.BatchBytes = cmp.Or(cfg.BatchBytes, DefaultBatchBytes)
	cfg.Workers = cmp.Or(cfg.Workers, DefaultWorkers)
	cfg.LeaseTTL = cmp.Or(cfg.LeaseTTL, DefaultLeaseTTL)
	cfg.Margin = cmp.Or(cfg.Margin, cfg.LeaseTTL/5)
	cfg.PublishTimeout = cmp.Or(cfg.PublishTimeout, DefaultPublishTimeout)
	cfg.MaxAttempts = cmp.Or(cfg.MaxAttempts, DefaultMaxAttempts)
	cfg.PollMin = cmp.Or(cfg.PollMin, DefaultPollMin)
	cfg.PollMax = cmp.Or(cfg.PollMax, max(DefaultPollMax, cfg.PollMin))
	if cfg.ParkLimit == (ParkLimit{}) {
		cfg.ParkLimit = ParkLimit{Burst: 100, PerMinute: 100}
	}
	if cfg.HeaderFormat == nil {
		cfg.HeaderFormat = outbox.PlainHeaders
	}
	cfg.Logger = usercode.Logger(cfg.Logger)
	usual := backoff.FullJitter(DefaultBackoffBase, DefaultBackoffCap)
	if own := cfg.Backoff; own == nil {
		cfg.Backoff = usual
	} else {
		panics := &hooks.Panics{Logger: cfg.Logger.With("relay", cfg.Name), Owner: "relay"}
		cfg.Backoff = func(attempt int) time.Duration {
			return hooks.Or(panics, "Backoff", func() time.Duration { return own(attempt) },
				func() time.Duration { return usual(attempt) })
		}
	}
	if cfg.Trace == nil {
		cfg.Trace = new(Trace)
	}
	return cfg, cfg.validate()
}

func (cfg Config) validate() error {
	refuse := func(format string, args ...any) error { return fmt.Errorf("relay: Config."+format, args...) }
	for topic, p := range cfg.Publishers {
		switch {
		case topic == "":
			return refuse("Publishers names an empty topic; the publisher of all other topics is Config.Publisher")
		case p == nil, isNilPointer(p):
			return refuse("Publishers[%q] is nil", topic)
		}
	}
	if err := tokens.Limit(cfg.ParkLimit).Validate(); err != nil {
		return refuse("ParkLimit%w", err)
	}
	switch {
	case cfg.Queue == nil:
		return refuse("Queue is required")
	case isNilPointer(cfg.Publisher):
		return refuse("Publisher is a nil %T", cfg.Publisher)
	case cfg.Publisher == nil && len(cfg.Publishers) == 0:
		return refuse("Publisher is required, or Publishers")
	case !utf8.ValidString(cfg.Name) || strings.Contains(cfg.Name, "\x00") || len(cfg.Name) > maxName:
		return refuse("Name is %.40q: want at most %d bytes of UTF-8 without NUL", cfg.Name, maxName)
	case cfg.BatchSize < 0:
		return refuse("BatchSize is %d: want 1 or more", cfg.BatchSize)
	case cfg.BatchBytes < 0:
		return refuse("BatchBytes is %d: want 1 or more", cfg.BatchBytes)
	case cfg.Workers < 0:
		return refuse("Workers is %d: want 1 or more", cfg.Workers)
	case cfg.LeaseTTL < MinLeaseTTL:
		return refuse("LeaseTTL is %v, shorter than %v: it could not be renewed in time", cfg.LeaseTTL, MinLeaseTTL)
	case cfg.Margin < 0 || cfg.Margin > cfg.LeaseTTL/2:
		return refuse("Margin is %v: want more than 0, and at most half of LeaseTTL %v, which leaves no time to publish", cfg.Margin, cfg.LeaseTTL)
	case cfg.PublishTimeout < 0:
		return refuse("PublishTimeout is %v: want more than 0", cfg.PublishTimeout)
	case cfg.MaxAttempts < 0:
		return refuse("MaxAttempts is %d: want 1 or more", cfg.MaxAttempts)
	case cfg.ParkPolicy < outbox.BlockKey || cfg.ParkPolicy > outbox.SkipMessage:
		return refuse("ParkPolicy is %d: want BlockKey, ParkKey or SkipMessage", cfg.ParkPolicy)
	case cfg.PollMin < 0:
		return refuse("PollMin is %v: want more than 0", cfg.PollMin)
	case cfg.PollMax < cfg.PollMin:
		return refuse("PollMax is %v, shorter than PollMin %v", cfg.PollMax, cfg.PollMin)
	}
	return nil
}

// enoughFor refuses limits that leave a LeasedPublisher less time than it needs. A hold is renewed after a third of
// LeaseTTL.
func (cfg Config) enoughFor(p outbox.Publisher, needs time.Duration) error {
	switch {
	case cfg.PublishTimeout < needs:
		return fmt.Errorf("relay: Config.PublishTimeout is %v: publisher %T needs %v", cfg.PublishTimeout, p, needs)
	case cfg.LeaseTTL*2/3-cfg.Margin < needs:
		return fmt.Errorf("relay: Config.LeaseTTL is %v, which leaves %v to publish, after a third of it and Margin: publisher %T needs %v", cfg.LeaseTTL, cfg.LeaseTTL*2/3-cfg.Margin, p, needs)
	}
	return nil
}

const maxName = 255

// isNilPointer reports whether p is a nil pointer, as a constructor returns it beside an error.
func isNilPointer(p outbox.Publisher) bool {
	v := reflect.ValueOf(p)
	return v.Kind() == reflect.Pointer && v.IsNil()
}
