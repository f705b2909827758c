package rabbitmq

// NewSubscriberWithOldRetryQueues returns a Subscriber that uses retry queues as soon as it finds them.
func NewSubscriberWithOldRetryQueues(cfg SubscriberConfig) (*Subscriber, error) {
	s, err := NewSubscriber(cfg)
	if err == nil {
		s.retryQueuesAreOld = true
	}
	return s, err
}
