package rabbitmq

import "time"

// NewSubscriberWithOldRetryQueues returns a Subscriber that uses retry queues as soon as it finds them.
func NewSubscriberWithOldRetryQueues(cfg SubscriberConfig) (*Subscriber, error) {
	s, err := NewSubscriber(cfg)
	if err == nil {
		s.retryQueuesAreOld = true
	}
	return s, err
}

// ReadTimestamp reads a timestamp that was read in seconds.
func ReadTimestamp(ts Timestamps, seconds time.Time) time.Time { return ts.read(seconds) }
