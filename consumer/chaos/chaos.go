package chaos

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/driver"
)

// Config says how often each fault happens. The zero value of a field means never.
type Config struct {
	// Seed chooses the faults. A program that starts with the same Seed again has the same faults again. With Panic it
	// may then end at the same message after each start, for ever: set Seed only to have the faults of an earlier start
	// again.
	//
	// Defaults to another one for each Wrap. The text of the panics has it.
	Seed uint64

	// Duplicate is the share of the messages that are delivered twice: half of these a second time after they have
	// succeeded, the other half twice at the same time. From 0 to 1.
	Duplicate float64

	// Delay is the longest time that a call waits before its messages are processed. Each call chooses its own. When the
	// ctx of the call ends, its messages are delivered again. Subscribers hold their messages meanwhile, as they do for a
	// slow handler, but RabbitMQ takes them away after its consumer_timeout, 30 minutes by default, and SQS after 12 hours.
	Delay time.Duration

	// LoseAck is the share of the acknowledgements that are lost: the message has taken effect or is parked, and is
	// delivered again. From 0 to less than 1.
	LoseAck float64

	// Panic is the share of the calls that panic, half of them before their messages are processed, half after. The
	// Subscriber's Run then returns an error, and the program ends as if it had been killed: something must start it
	// again. A webhook is answered with 500. From 0 to less than 1.
	Panic float64
}

// ErrAckLost is the error of a message whose acknowledgement was lost.
var ErrAckLost = errors.New("chaos: the acknowledgement was lost")

// consumers have what a Consumer has. What a wrapper does not pass on, a Subscriber takes for missing.
type consumers interface {
	consumer.Processor
	driver.BatchProcessor
	driver.Starter
	driver.Sourced
	driver.Keyed
	driver.Windowed
	driver.Positioned
	MaxAttempts() int
}

var _ consumers = (*consumer.Consumer[any])(nil)

// Wrap returns a Processor that passes messages to processor, with faults. processor is a Consumer, or a Processor of
// your own. If it has some of the methods that a Consumer has for Subscribers (package consumer/driver), it must have
// all of them: Wrap refuses it otherwise. The result has the methods that processor has. It is safe for concurrent use.
func Wrap(processor consumer.Processor, cfg Config) (consumer.Processor, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if processor == nil || reflect.ValueOf(processor).Kind() == reflect.Pointer && reflect.ValueOf(processor).IsNil() {
		return nil, errors.New("chaos: processor is nil: pass the Consumer")
	}
	for cfg.Seed == 0 {
		cfg.Seed = rand.Uint64()
	}
	d := &day{cfg: cfg, random: rand.New(rand.NewPCG(cfg.Seed, 0))}
	if all, ok := processor.(consumers); ok {
		return &batches{all, d}, nil
	}
	has, lacks := methods(processor)
	if len(has) > 0 {
		return nil, fmt.Errorf("chaos: %T has %s, but not %s: Wrap passes on all methods that a Consumer has for Subscribers, "+
			"or only Process; wrap the Consumer itself, or add the methods, see package consumer/driver",
			processor, strings.Join(has, " and "), strings.Join(lacks, " and "))
	}
	return &singles{processor, d}, nil
}

// methods returns which of the methods that a Consumer has for Subscribers p has, and which it lacks.
func methods(p consumer.Processor) (has, lacks []string) {
	for _, method := range []struct {
		name  string
		found bool
	}{
		{"ProcessBatch", is[driver.BatchProcessor](p)},
		{"Start", is[driver.Starter](p)},
		{"AddSource", is[driver.Sourced](p)},
		{"KeyFor", is[driver.Keyed](p)},
		{"Window", is[driver.Windowed](p)},
		{"Positions", is[driver.Positioned](p)},
		{"MaxAttempts", is[interface{ MaxAttempts() int }](p)},
	} {
		if method.found {
			has = append(has, method.name)
		} else {
			lacks = append(lacks, method.name)
		}
	}
	return has, lacks
}

func is[T any](p consumer.Processor) bool {
	_, ok := p.(T)
	return ok
}

func (c Config) validate() error {
	for _, part := range []struct {
		name  string
		value float64
		all   bool // 1 is allowed
	}{{"Duplicate", c.Duplicate, true}, {"LoseAck", c.LoseAck, false}, {"Panic", c.Panic, false}} {
		switch {
		case !(part.value >= 0 && part.value <= 1): // also NaN
			return fmt.Errorf("chaos: Config.%s is %v: want a part of the messages, from 0 to 1", part.name, part.value)
		case part.value == 1 && !part.all:
			return fmt.Errorf("chaos: Config.%s is 1: no message would ever be acknowledged; want less", part.name)
		}
	}
	if c.Delay < 0 {
		return fmt.Errorf("chaos: Config.Delay is %v: want 0 or more", c.Delay)
	}
	return nil
}

// day draws the faults.
type day struct {
	cfg    Config
	mu     sync.Mutex
	random *rand.Rand
	calls  int
}

// faults are what happens to one call.
type faults struct {
	seed          uint64
	call          int
	delay         time.Duration
	before, after bool // it panics
	messages      []fault
}

// fault is what happens to one message of a call.
type fault struct {
	again, twin bool // it is delivered again afterwards, or at the same time
	loseAck     bool
}

// draw chooses the faults of a call. How many numbers it takes depends only on the number of messages.
func (d *day) draw(messages int) faults {
	d.mu.Lock()
	defer d.mu.Unlock()
	hit := func(part float64) (one, other bool) {
		yes, first := d.random.Float64() < part, d.random.IntN(2) == 0
		return yes && first, yes && !first
	}
	d.calls++
	f := faults{
		seed: d.cfg.Seed, call: d.calls,
		delay: time.Duration(d.random.Float64() * float64(d.cfg.Delay)), messages: make([]fault, messages),
	}
	f.before, f.after = hit(d.cfg.Panic)
	for i := range f.messages {
		m := &f.messages[i]
		m.again, m.twin = hit(d.cfg.Duplicate)
		m.loseAck = d.random.Float64() < d.cfg.LoseAck
	}
	return f
}
