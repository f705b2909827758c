package watermilltx

import (
	"crypto/sha256"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"
)

// attempts counts failed attempts in memory, because watermill does not say how often it has delivered a message. After a restart, and in
// another process, the count starts at zero: a message is tried more often then, never less.
type attempts struct {
	mu     sync.Mutex
	failed map[string]int
	oldest []string // the messages in the order of their first failure
}

// maxCounted bounds the map. The message that failed first is dropped first.
const maxCounted = 10_000

// identity is equal for all deliveries of a message.
func identity(topic string, raw *message.Message) string {
	if raw.UUID != "" {
		return topic + "/" + raw.UUID
	}
	sum := sha256.Sum256(raw.Payload)
	return topic + "//" + string(sum[:])
}

func (a *attempts) of(id string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.failed[id]
}

func (a *attempts) fail(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.failed == nil {
		a.failed = make(map[string]int)
	}
	if a.failed[id]++; a.failed[id] > 1 {
		return
	}
	a.oldest = append(a.oldest, id)
	for len(a.failed) > maxCounted {
		delete(a.failed, a.oldest[0])
		a.oldest = a.oldest[1:]
	}
	if len(a.oldest) > 2*maxCounted { // most of them are not counted any more
		kept := make([]string, 0, len(a.failed))
		for _, id := range a.oldest {
			if _, counted := a.failed[id]; counted {
				kept = append(kept, id)
			}
		}
		a.oldest = kept
	}
}

func (a *attempts) forget(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.failed, id)
}
