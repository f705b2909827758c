package awssqs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/txonce/txonce/consumer"
)

// CheckWindow is for checks from outside: it refuses a queue that keeps messages for longer than window, or that moves messages away before
// a consumer with default settings has given up on them, as a Subscriber does at start. queue is a name or a URL. window is how long the
// consumer remembers keys.
func CheckWindow(ctx context.Context, client API, queue string, window time.Duration) error {
	s := &Subscriber{cfg: SubscriberConfig{Client: client, Queue: queue, Processor: remembers(window)}, log: slog.New(slog.DiscardHandler)}
	if _, err := s.inspect(ctx); err != nil {
		return fmt.Errorf("awssqs: queue %s: %w", queue, err)
	}
	return nil
}

// remembers is a Processor that only has a window.
type remembers time.Duration

func (r remembers) Window() time.Duration { return time.Duration(r) }

func (remembers) Process(context.Context, *consumer.Message) error {
	return errors.New("awssqs: this Processor handles nothing")
}
