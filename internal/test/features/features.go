// Package features states the features of each broker adapter. The adapters' tests check them with
// consumertest.TestSubscriber, and the table of docs/concepts.md is compared with them.
package features

import "github.com/txonce/txonce/consumer/consumertest"

// An Adapter is one way to receive messages.
type Adapter struct {
	Name     string
	Features consumertest.Features
}

// Kafka does not count deliveries. A message that waits for a retry is in memory. The group's generation fences a
// member that has lost its partition.
var Kafka = Adapter{"Kafka", consumertest.Features{Ordered: true, Delay: true, Batch: true, Fenced: true, Partitions: true}}

// SQSStandard delays with the visibility timeout. A standard queue has no order, and AWS may accept a deletion with an
// outdated receipt handle; the adapter does not delete messages that it has lost.
var SQSStandard = Adapter{"SQS, standard queue", consumertest.Features{Delay: true, CountsAttempts: true, Batch: true}}

// SQSFIFO keeps the order of each message group.
var SQSFIFO = Adapter{"SQS, FIFO queue", consumertest.Features{Ordered: true, Delay: true, CountsAttempts: true, Batch: true, Fenced: true}}

// RabbitMQ delays in separate queues. A delivery tag is invalid after its channel has closed.
var RabbitMQ = Adapter{"RabbitMQ", consumertest.Features{Delay: true, CountsAttempts: true, Batch: true, Fenced: true}}

// RabbitMQOrdered has a single active consumer, which keeps messages that wait for a retry in memory and counts
// attempts there.
var RabbitMQOrdered = Adapter{"RabbitMQ, `Ordered`", consumertest.Features{Ordered: true, Delay: true, Batch: true, Fenced: true}}

// Adapters lists all of them.
var Adapters = []Adapter{Kafka, SQSStandard, SQSFIFO, RabbitMQ, RabbitMQOrdered}
