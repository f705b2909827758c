package rabbitmqtest_test

import (
	"testing"
	"testing/synctest"

	"github.com/txonce/txonce/adapters/rabbitmq/rabbitmqtest"
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
