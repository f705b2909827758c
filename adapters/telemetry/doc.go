// Package telemetry exports metrics and spans of consumers, relays, sweepers, subscribers, HTTP requests and webhooks
// through OpenTelemetry.
//
// # Use
//
// [New] takes the providers of your SDK. The methods of the [Telemetry] return hooks, and [Writer] wraps the store that
// handlers enqueue with:
//
//	tel, err := telemetry.New(telemetry.Config{MeterProvider: meters, TracerProvider: tracers, System: "kafka", Status: store.Operator()})
//	consumer.Config{…, Trace: tel.Consumer(telemetry.ConsumerConfig{Name: "billing", Topics: []string{"orders"}})}
//	kafka.SubscriberConfig{…, Trace: tel.Subscriber("kafka", "billing", "orders")}
//	relay.Config{…, Trace: tel.Relay("billing")}
//	httpidem.Config[pgx.Tx]{…, Trace: tel.HTTP("payments-api")}
//	webhook.Config{…, Trace: tel.Webhook("stripe")}
//	dedup.SweeperConfig{…, Trace: tel.Sweeper()}
//	writer := telemetry.Writer(tel, store) // in handlers: writer.Enqueue(ctx, tx, message)
//
// OpenTelemetry's exporter for Prometheus gives the names that the rules and the dashboard of package monitoring expect
// when it is made with prometheus.WithoutScopeInfo().
//
// # Metrics
//
// The attributes of metrics are names from the configuration and the words of package observe. They are never a key, a
// tenant, a partition or the text of an error, so that the number of series is limited. A consumer has up to 200 topics
// as values of the attribute topic; the others are "_OTHER". A consumer of one topic has at most 600 series of
// Prometheus, even if each outcome and cause has occurred. The SDK limits each instrument to 2,000 sets of attributes;
// a program with many consumers and topics needs a higher WithCardinalityLimit.
//
// Counters start at 0 with each process. A crash loses what was counted since the last export, so metrics are no proof:
// the tables are.
//
// # Spans
//
// A delivery or a batch is one span "process TOPIC". A message of the outbox is a span "create TOPIC", and a call of
// the publisher is a span "send TOPIC". The create span's context goes with the message, so that the next consumer's
// span links to it. A transaction that failed is a span "attempt". A replay's span links to the delivery that parked
// the message, too. With Config.AckSpans there are spans "ack QUEUE" and "commit TOPIC". Spans link instead of having
// parents because a batch has many creators, and a redelivery may come days later.
//
// The conventions for messaging are in development at OpenTelemetry, so names may change with a new version of this
// package. No span has a payload, a header, an argument of SQL or the text of an error, because each of them may quote
// a person's data. See also Config.HideKeys.
package telemetry
