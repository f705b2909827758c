package rabbitmq

// KnownOld has a Subscriber use queues for retries as soon as it finds them.
func KnownOld(cfg SubscriberConfig) SubscriberConfig {
	cfg.knownOld = true
	return cfg
}
