package watermilltx

import (
	"crypto/sha256"

	"github.com/ThreeDotsLabs/watermill/message"
)

// identity returns a string that is the same for each delivery of a message: its UUID, or a hash of its payload. Failed
// attempts are counted by it in memory, because watermill does not say how often it delivered a message. After a
// restart, and on another node, the count begins again: the message is then tried more often, never less.
func identity(topic string, raw *message.Message) string {
	if raw.UUID != "" {
		return topic + "/" + raw.UUID
	}
	sum := sha256.Sum256(raw.Payload)
	return topic + "//" + string(sum[:])
}
