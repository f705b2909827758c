package rabbitmq

import (
	"context"
	"fmt"
	"time"
)

// CheckWindow is for programs that check a queue without receiving from it. It returns an error if messages may wait in
// the queue for longer than window, or if it cannot find out. window is how long the consumer remembers keys.
// CheckWindow reads the queue's arguments, so the user must be allowed to configure the queue. It does not see what a
// policy sets.
func CheckWindow(ctx context.Context, dial Dialer, queue string, window time.Duration) error {
	conn, err := dial(ctx)
	if err != nil {
		return fmt.Errorf("rabbitmq: %w", err)
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		return fmt.Errorf("rabbitmq: %w", err)
	}
	if _, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil); err != nil { // readSpec would create it
		return fmt.Errorf("rabbitmq: queue %s: %w", queue, err)
	}
	spec, read, err := readSpec(conn, queue, QueueSpec{}, "")
	switch ttl, there := number(spec.Args["x-message-ttl"]); {
	case err != nil:
		return fmt.Errorf("rabbitmq: queue %s: %w", queue, err)
	case !read:
		return fmt.Errorf("rabbitmq: cannot read how long messages may wait in queue %s; grant this user configure on it", queue)
	case !there:
		return fmt.Errorf("rabbitmq: messages may wait in queue %s for ever, and the consumer remembers keys for %v: set x-message-ttl, "+
			"unless a policy does", queue, window)
	case time.Duration(ttl)*time.Millisecond > window:
		return fmt.Errorf("rabbitmq: messages may wait in queue %s for %v, and the consumer remembers keys for %v: set its Window to that",
			queue, time.Duration(ttl)*time.Millisecond, window)
	}
	return nil
}
