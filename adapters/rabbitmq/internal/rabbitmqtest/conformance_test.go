package rabbitmqtest_test

import (
	"testing"
	"testing/synctest"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/txonce/txonce/adapters/rabbitmq"
	"github.com/txonce/txonce/adapters/rabbitmq/internal/rabbitmqtest"
	"github.com/txonce/txonce/internal/test/brokers/testrabbitmq"
)

// behaviours are what the fake and the real server must both do.
var behaviours = []struct {
	name string
	run  func(w *world)
}{
	{"a message goes through the default exchange", throughDefault},
	{"an unroutable mandatory message is returned before its confirm", returnedFirst},
	{"prefetch bounds what is not settled", prefetchBounds},
	{"a nacked message comes back at its place", backAtItsPlace},
	{"a lost connection gives back what it held, in order", lostConnection},
	{"an unknown delivery tag closes the channel", unknownTag},
	{"publishing to a missing exchange closes the channel, and earlier messages stay", missingExchange},
	{"missing queues and exchanges are 404", missing},
	{"inequivalent arguments are 406", inequivalent},
	{"exchanges route", exchangesRoute},
	{"an alternate exchange gets what is unroutable", alternateExchange},
	{"a rejected message is dead-lettered, or dropped", rejectedDies},
	{"messages expire at the head", expireAtHead},
	{"a queue's own time to live, and death in a cycle", ttlCycle},
	{"a full queue rejects, or drops its head", fullQueue},
	{"a quorum queue counts deliveries", quorumCounts},
	{"a quorum queue has a delivery limit", deliveryLimit},
	{"a quorum queue gives a place to what comes back only if it has a limit", quorumPlaces},
	{"a quorum queue without dead letters drops at its limit", limitDrops},
	{"a classic queue counts nothing", classicCountsNothing},
	{"one active consumer", singleActive},
	{"consumers take turns", takeTurns},
	{"a deleted queue cancels its consumers", deletedCancels},
	{"cancelling a consumer keeps what it holds", cancelKeeps},
	{"an expiring queue goes when it is unused", queueExpires},
	{"exclusive and automatically deleted queues", shortLived},
	{"a closed connection says so", closedConnection},
	{"a message that is too large closes the channel", tooLarge},
	{"headers that fit into no frame end the connection", headersTooLarge},
	{"confirms are a channel's own", confirmsPerChannel},
	{"bad arguments are refused", badArguments},
}

// TestRabbitMQBehaves is the same against a real one, so that the fake is not a fantasy.
func TestRabbitMQBehaves(t *testing.T) {
	url := testrabbitmq.Server(t)
	for _, b := range behaviours {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			w := &world{T: t, prefix: testrabbitmq.QueueName(t, url), real: true}
			w.dial = rabbitmq.Dial(url, amqp.Config{})
			raw, err := amqp.Dial(url)
			if err != nil {
				t.Fatal(err)
			}
			w.deleteQueue = func(name string) {
				ch, err := raw.Channel()
				if err == nil {
					_, err = ch.QueueDelete(name, false, false, false)
				}
				if err != nil {
					t.Errorf("delete %s: %v", name, err)
				}
			}
			t.Cleanup(func() {
				for _, q := range w.declared {
					w.deleteQueue(q)
				}
				for _, e := range w.exchanges {
					if ch, err := raw.Channel(); err == nil {
						_ = ch.ExchangeDelete(e, false, false)
					}
				}
				_ = raw.Close()
			})
			b.run(w)
		})
	}
}

func TestFakeBehaves(t *testing.T) {
	for _, b := range behaviours {
		t.Run(b.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := rabbitmqtest.NewServer(rabbitmqtest.Config{})
				b.run(&world{T: t, dial: s.Dial, prefix: "fake", deleteQueue: s.DeleteQueue})
			})
		})
	}
}
