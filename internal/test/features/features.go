// Package features says of each broker adapter what it can do, once: the adapters' tests show it with consumertest.TestSubscriber,
// and the README's table is generated from it.
package features

import "github.com/txonce/txonce/consumer/consumertest"

// An Adapter is one way to receive.
type Adapter struct {
	Name     string
	Features consumertest.Features
}

// Kafka does not count deliveries. A message that is to be retried waits in memory; a member that has lost its partition is
// fenced by the generation of the group.
var Kafka = Adapter{"Kafka", consumertest.Features{Ordered: true, Delay: true, Batch: true, Fenced: true}}

// SQSStandard delays by the visibility timeout. A standard queue has no order, and of AWS it is known that it may accept a deletion by
// a receipt handle that is not the newest; the adapter does not try that with what it has lost.
var SQSStandard = Adapter{"SQS, standard queue", consumertest.Features{Delay: true, CountsAttempts: true, Batch: true}}

// SQSFIFO keeps the order of each message group.
var SQSFIFO = Adapter{"SQS, FIFO queue", consumertest.Features{Ordered: true, Delay: true, CountsAttempts: true, Batch: true, Fenced: true}}

// RabbitMQ delays in queues of its own. A delivery tag dies with its channel.
var RabbitMQ = Adapter{"RabbitMQ", consumertest.Features{Delay: true, CountsAttempts: true, Batch: true, Fenced: true}}

// RabbitMQOrdered has a single active consumer, which keeps what is to be retried in memory and counts attempts there.
var RabbitMQOrdered = Adapter{"RabbitMQ, `Ordered`", consumertest.Features{Ordered: true, Delay: true, Batch: true, Fenced: true}}

// Adapters are all of them.
var Adapters = []Adapter{Kafka, SQSStandard, SQSFIFO, RabbitMQ, RabbitMQOrdered}
