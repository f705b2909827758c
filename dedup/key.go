package dedup

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/txonce/txonce/internal/idtime"
)

// Limits of a Key's fields, in bytes. They fit into the indexes and columns of every supported database.
const (
	MaxConsumer = 255
	MaxTenant   = 255
	MaxID       = 1024
)

// Key identifies one logical message for one consumer.
type Key struct {
	Consumer string // required; each consumer processes a message once
	Tenant   string // optional; tenants may use the same IDs
	// required; the business key, such as "order-42:paid"; a time in it, as in a UUIDv7, makes claims faster: see Hash
	ID string
}

// KeyHash is the primary key of a Key's row in a store.
type KeyHash [16]byte

// derivation is hashed with every key. A change of the hash, or of the times that package idtime finds, needs a new
// version here, so that no new key equals an old one.
const derivation = "txonce key 2"

// Hash returns the hash of k: 16 bytes of a SHA-256 of all fields. If the ID contains a time, that time replaces the
// first six bytes, in milliseconds since 1970. Then new keys are next to each other in the index, and a large table
// costs a claim no more than a small one. The time is that of a UUID of version 7, of a ULID, or an RFC 3339 time,
// anywhere in the ID, such as "evt_01JD5Z0QZ7M4J8V2K6T3R9X1YB" or "2026-11-24T09:51:27Z/order-42"; if there are
// several, the latest one. Hash reads only k, so a key never depends on when or where a message is delivered.
//
// The hash is the same in every version of this module, so that processes of different versions agree during a rolling
// upgrade.
func (k Key) Hash() KeyHash {
	var stack [256]byte
	b := append(stack[:0], derivation...)
	for _, field := range [...]string{k.Consumer, k.Tenant, k.ID} {
		b = binary.AppendUvarint(b, uint64(len(field))) // with the lengths, ("ab","c") and ("a","bc") differ
		b = append(b, field...)
	}
	sum := sha256.Sum256(b)
	if ms := idtime.Of(k.ID); ms > 0 {
		binary.BigEndian.PutUint64(sum[:8], ms<<16|uint64(binary.BigEndian.Uint16(sum[6:8])))
	}
	return KeyHash(sum[:16])
}

// String returns consumer/tenant/"id", or consumer/"id" if there is no tenant.
func (k Key) String() string {
	if k.Tenant == "" {
		return fmt.Sprintf("%s/%q", k.Consumer, k.ID)
	}
	return fmt.Sprintf("%s/%s/%q", k.Consumer, k.Tenant, k.ID)
}

// Validate returns nil if k can be claimed, and ErrNoKey or ErrBadKey otherwise. A key is never truncated or
// normalized, because a database that takes two keys for one loses a message.
func (k Key) Validate() error {
	if k.ID == "" {
		return ErrNoKey
	}
	if k.Consumer == "" {
		return fmt.Errorf("%w: the consumer's name is empty", ErrBadKey)
	}
	for _, f := range [...]struct {
		name, value string
		limit       int
	}{{"consumer", k.Consumer, MaxConsumer}, {"tenant", k.Tenant, MaxTenant}, {"id", k.ID, MaxID}} {
		switch {
		case len(f.value) > f.limit:
			return fmt.Errorf("%w: %s has %d bytes, more than %d", ErrBadKey, f.name, len(f.value), f.limit)
		case !utf8.ValidString(f.value):
			return fmt.Errorf("%w: %s is not valid UTF-8", ErrBadKey, f.name)
		case strings.IndexByte(f.value, 0) >= 0:
			return fmt.Errorf("%w: %s contains a NUL byte", ErrBadKey, f.name)
		}
	}
	return nil
}

// Compare returns a negative number, 0 or a positive number, as bytes.Compare does. Callers that lock several keys lock
// them in this order.
func (d KeyHash) Compare(e KeyHash) int { return bytes.Compare(d[:], e[:]) }
