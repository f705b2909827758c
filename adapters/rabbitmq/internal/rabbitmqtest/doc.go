// Package rabbitmqtest is RabbitMQ in memory, for the tests of adapters/rabbitmq: the Dial of a Server is a
// rabbitmq.Dialer. It needs no network and no clock except package time's, so it works inside testing/synctest.
//
// It does what RabbitMQ and amqp091-go do together, as seen through rabbitmq.Connection: exchanges, bindings, classic
// and quorum queues, prefetch, redelivery, dead letters, time to live, delivery limits, confirms, returns, and the
// errors that close channels. The same tests run against it and a real RabbitMQ. It refuses what it does not implement,
// such as an unknown queue argument. It does not implement clusters, mirrors, transactions, priorities, streams and
// header exchanges.
//
// As on the wire, publishing and acknowledging have no direct answer: an error comes later and closes the channel.
// Notifications are sent one after the other. One that is not received delays all others of its connection for 5
// seconds, and is then lost.
//
// Tests can ask for faults: OnPublish decides about single messages, Cut breaks all connections, Pause keeps the server
// from answering, Stop and Start restart it, Block is a full disk, Deny is a missing permission.
package rabbitmqtest
