package watermilltx

import (
	"crypto/sha256"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"
)

// attempts counts failed attempts in memory, because watermill does not say how often it has delivered a message. After a
// restart, and at another node, counting begins anew: a message is then tried more often, never less.
type attempts struct {
	mu     sync.Mutex
	failed map[string]int
	oldest []string // in the order in which they failed first
}

// maxCounted bounds what is remembered. The oldest message is forgotten first.
const maxCounted = 10_000

// identity is what a redelivery has in common with the delivery before, as far as watermill tells.
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
	if len(a.oldest) > 2*maxCounted { // of most, nothing is left but the name
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
