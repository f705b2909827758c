package outboxtest

import (
	"strings"
	"time"

	"github.com/txonce/txonce/outbox/driver"
)

func brokenStrangers() []brokenStore {
	return []brokenStore{
		{
			name: "holds back only the leased messages of a topic", found: []string{
				"a topic that is deferred whole lets other topics pass, in the order of their keys",
				"a relay leases a small part of what waits for a missing topic",
			},
			breaks: settles(func(_ *session, o *driver.Outcome) { o.WholeTopic = false }),
		},
		{
			name:  "holds back a whole topic for ever",
			found: []string{"a topic that is deferred whole is due after its delay"},
			breaks: settles(func(_ *session, o *driver.Outcome) {
				if o.WholeTopic {
					o.Delay = 24 * time.Hour
				}
			}),
		},
		{
			name:  "prolongs the wait of a key whose later messages are held back",
			found: []string{"a short wait of a key is not prolonged by a longer one behind it"},
			breaks: settles(func(_ *session, o *driver.Outcome) {
				if o.Verdict == driver.Deferred && strings.HasPrefix(o.ID, "before-") {
					o.Delay = 24 * time.Hour
				}
			}),
		},
		{
			name: "pauses no key", found: []string{
				"a key that is paused lets the other keys of its shard pass",
				"a hot key keeps no message of its shard waiting",
			},
			breaks: settles(func(_ *session, o *driver.Outcome) {
				if o.Verdict == driver.Returned {
					o.Delay = 0
				}
			}),
		},
	}
}
