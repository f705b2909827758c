package awssqs

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/txonce/txonce/internal/publishing"
	"github.com/txonce/txonce/outbox"
)

const (
	maxBatch = 10
	maxBytes = 1 << 20 // of a message and of a batch, attributes included
)

// entry is a message that is being sent, and its index in the call.
type entry struct {
	types.SendMessageBatchRequestEntry
	index int
	bytes int
}

// newEntry returns message i as an entry of a request, or the reason why SQS would never accept it.
func newEntry(m *outbox.Message, i int) (*entry, error) {
	refuse := func(format string, args ...any) (*entry, error) {
		return nil, outbox.Permanent(fmt.Errorf("awssqs: queue %s: "+format, append([]any{m.Topic}, args...)...))
	}
	e := &entry{index: i}
	body, encoding := encodeBody(m.Payload)
	attributes, err := encodeAttributes(m.OrderingKey, encoding, m.Headers)
	if err != nil {
		return refuse("%w", err)
	}
	id := strconv.Itoa(i)
	e.Id, e.MessageBody, e.MessageAttributes = &id, &body, attributes
	e.bytes = len(body) + attributesSize(attributes)
	if e.bytes > maxBytes {
		return refuse("the message has %d bytes with its attributes, and SQS takes %d; send less, such as a reference to where the rest is", e.bytes, maxBytes)
	}
	if strings.HasSuffix(m.Topic, fifoSuffix) {
		if m.ID == "" {
			return refuse("the message has no ID, and a FIFO queue would drop it as a repeat of others without; publish it through an outbox, which gives it one")
		}
		group, once := groupID(m), legalToken("", publishing.Once(m))
		e.MessageGroupId, e.MessageDeduplicationId = &group, &once
	}
	return e, nil
}

// groupID is a message's group in a FIFO queue. Each key has a group of its own, and so has each message without key.
func groupID(m *outbox.Message) string {
	if m.OrderingKey == "" {
		return legalToken(keylessPrefix, m.ID)
	}
	if strings.HasPrefix(m.OrderingKey, keylessPrefix) {
		return hashPrefix + hash(m.OrderingKey)
	}
	return legalToken("", m.OrderingKey)
}

const (
	keylessPrefix = "txonce-id:"
	hashPrefix    = "txonce-sha256:"
)

// token matches what SQS accepts as a group and as a deduplication id.
var token = regexp.MustCompile("^[a-zA-Z0-9!\"#$%&'()*+,./:;<=>?@\\[\\\\\\]^_`{|}~-]{1,128}$")

// legalToken returns prefix and s if SQS accepts that, and otherwise a hash of s. If s looks like such a hash it is
// hashed too, so that different s have different tokens.
func legalToken(prefix, s string) string {
	if plain := prefix + s; token.MatchString(plain) && !strings.HasPrefix(s, hashPrefix) {
		return plain
	}
	return prefix + hashPrefix + hash(s)
}

func hash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// split makes batches of at most most entries that SQS accepts.
func split(entries []*entry, most int) (batches [][]*entry) {
	bytes := 0
	for _, e := range entries {
		last := len(batches) - 1
		if last < 0 || len(batches[last]) == most || bytes+e.bytes > maxBytes {
			batches, bytes, last = append(batches, nil), 0, last+1
		}
		batches[last] = append(batches[last], e)
		bytes += e.bytes
	}
	return batches
}
