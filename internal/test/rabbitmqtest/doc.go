// Package rabbitmqtest is RabbitMQ in memory, for tests of what is written on adapters/rabbitmq: a Server whose Dial is a
// rabbitmq.Dialer. It needs no network and no clock but package time's, so it works inside testing/synctest.
//
// It does what RabbitMQ and amqp091-go do together, seen from behind rabbitmq.Connection: exchanges, bindings, classic and quorum
// queues, prefetch, redelivery, dead letters, time to live, delivery limits, confirms, returns, and the errors that close
// channels. The same tests run against it and a real RabbitMQ. What it does not know, such as a queue argument, it refuses.
//
// Publishing and acknowledging are not answered, as on the wire: an error comes later and closes the channel. Notifications
// come one after the other, and one that nobody takes holds up all others of its connection for 5 seconds, and is then lost.
//
// Faults are there to be asked for: OnPublish decides about single messages, Cut breaks all connections, Pause keeps the
// server from answering, Stop and Start restart it, Block is a full disk, Deny is missing permission. Not there: clusters and
// mirrors, transactions, priorities, streams, header exchanges.
package rabbitmqtest
