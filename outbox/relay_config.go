package outbox

import (
	"cmp"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"time"
)

// Defaults of Config.
const (
	DefaultBatchSize      = 1000
	DefaultBatchBytes     = 8 << 20
	DefaultWorkers        = 4
	DefaultLeaseTTL       = 30 * time.Second
	DefaultPublishTimeout = 10 * time.Second
	DefaultMaxAttempts    = 10
	DefaultPollMin        = 10 * time.Millisecond
	DefaultPollMax        = time.Second
)

// MinLeaseTTL is the shortest Config.LeaseTTL: a hold is renewed three times within it, each with a round trip.
const MinLeaseTTL = 100 * time.Millisecond

// Config of a Relay.
type Config struct {
	// Queue is the outbox. Required; the stores of this module are Queues.
	Queue Queue

	// Publisher gets the messages of each topic that Publishers does not name. Required, unless Publishers is set: then
	// messages of other topics wait, with ErrNoPublisher, as those of a topic that the broker does not have.
	Publisher Publisher

	// Publishers are those of single topics. Order within a key holds across them. Defaults to none.
	Publishers map[string]Publisher

	// Name tells people which relay holds what. Defaults to the host's name and the process id.
	Name string

	// BatchSize is how many messages are leased, and settled in one transaction, at the most. Defaults to DefaultBatchSize.
	BatchSize int

	// BatchBytes bounds the size of what is leased at once; a single larger message is leased alone. Memory is taken for
	// Workers times as much. Defaults to DefaultBatchBytes.
	BatchBytes int

	// Workers is how many batches are in flight at once. Defaults to DefaultWorkers.
	Workers int

	// LeaseTTL is how long others wait for a relay that died. It is renewed all the time, so a batch may take longer.
	// At least MinLeaseTTL. Defaults to DefaultLeaseTTL.
	LeaseTTL time.Duration

	// Margin is how long before the end of its hold a relay stops publishing, so that what is on its way has arrived when
	// another one begins. At most half of LeaseTTL. Defaults to a fifth of it.
	Margin time.Duration

	// PublishTimeout bounds one Publish. Defaults to DefaultPublishTimeout, and is cut short by the end of the hold.
	PublishTimeout time.Duration

	// MaxAttempts is how often a message is tried before it is parked. Only failures that are its own count. Defaults
	// to DefaultMaxAttempts.
	MaxAttempts int

	// ParkLimit bounds how fast this relay parks messages. Beyond it something is wrong with more than a message: those that would be
	// parked are held back and tried again, which is logged once a minute. Nothing is counted against them. Defaults to a burst of 100,
	// of which 100 come back per minute.
	ParkLimit ParkLimit

	// Backoff is how long a message, and with it its key, is held back after that many failed attempts, 1 or more; and
	// how long a publisher rests after being unavailable that many times without saying how long. Defaults to
	// FullJitter(DefaultBackoffBase, DefaultBackoffCap).
	Backoff func(attempt int) time.Duration

	// ParkPolicy says what becomes of later messages of a key of which one is parked. Defaults to BlockKey.
	ParkPolicy ParkPolicy

	// PollMin and PollMax bound the interval of polls: it is PollMin after a poll found messages that were not notified, and doubles
	// up to PollMax while polls find none. They default to DefaultPollMin and DefaultPollMax.
	PollMin, PollMax time.Duration

	// HeaderFormat makes the headers of what is published. Defaults to PlainHeaders.
	HeaderFormat HeaderFormat

	// Logger gets one line for each message given up on, one for each batch with failures, two for each outage, and one a minute
	// for each topic at fault.
	// Defaults to slog.Default().
	Logger *slog.Logger

	// Trace is told what becomes of messages. Defaults to nobody.
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
	if cfg.Backoff == nil {
		cfg.Backoff = FullJitter(DefaultBackoffBase, DefaultBackoffCap)
	}
	if cfg.HeaderFormat == nil {
		cfg.HeaderFormat = PlainHeaders
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	return cfg, cfg.validate()
}

func (cfg Config) validate() error {
	refuse := func(format string, args ...any) error { return fmt.Errorf("outbox: Config."+format, args...) }
	for topic, p := range cfg.Publishers {
		switch {
		case topic == "":
			return refuse("Publishers names an empty topic; the publisher of all other topics is Config.Publisher")
		case p == nil, isNilPointer(p):
			return refuse("Publishers[%q] is nil", topic)
		}
	}
	if err := cfg.ParkLimit.validate(); err != nil {
		return refuse("ParkLimit%w", err)
	}
	switch {
	case cfg.Queue == nil:
		return refuse("Queue is required")
	case isNilPointer(cfg.Publisher):
		return refuse("Publisher is a nil %T", cfg.Publisher)
	case cfg.Publisher == nil && len(cfg.Publishers) == 0:
		return refuse("Publisher is required, or Publishers")
	case !plain(cfg.Name) || len(cfg.Name) > maxName:
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
	case cfg.ParkPolicy < BlockKey || cfg.ParkPolicy > SkipMessage:
		return refuse("ParkPolicy is %d: want BlockKey, ParkKey or SkipMessage", cfg.ParkPolicy)
	case cfg.PollMin < 0:
		return refuse("PollMin is %v: want more than 0", cfg.PollMin)
	case cfg.PollMax < cfg.PollMin:
		return refuse("PollMax is %v, shorter than PollMin %v", cfg.PollMax, cfg.PollMin)
	}
	return nil
}

const maxName = 255

// isNilPointer reports whether p holds a pointer that is nil, as a constructor returns it beside an error that nobody looked at.
func isNilPointer(p Publisher) bool {
	v := reflect.ValueOf(p)
	return v.Kind() == reflect.Pointer && v.IsNil()
}
