package dedup

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"
	"unicode/utf8"
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
	ID       string // required; the natural key, such as "order-42:paid"
}

// KeyHash is the hash of a Key that a store indexes.
type KeyHash [16]byte

// derivation is hashed with every key. A change of the hash needs a new version here, so that no new key equals an old one.
const derivation = "txonce key 1"

// Hash returns the hash of k. It is the same in every version of this module, so that processes of different versions
// agree during a rolling upgrade.
func (k Key) Hash() KeyHash {
	var stack [256]byte
	b := append(stack[:0], derivation...)
	for _, field := range [...]string{k.Consumer, k.Tenant, k.ID} {
		b = binary.AppendUvarint(b, uint64(len(field))) // with the lengths, ("ab","c") and ("a","bc") differ
		b = append(b, field...)
	}
	sum := sha256.Sum256(b)
	return KeyHash(sum[:16])
}

// String returns consumer/tenant/"id", or consumer/"id" if there is no tenant.
func (k Key) String() string {
	if k.Tenant == "" {
		return fmt.Sprintf("%s/%q", k.Consumer, k.ID)
	}
	return fmt.Sprintf("%s/%s/%q", k.Consumer, k.Tenant, k.ID)
}

// Validate returns nil if k can be claimed, and ErrNoKey or ErrBadKey otherwise. A key is never truncated or normalized,
// because a database that takes two keys for one loses a message.
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

// Compare orders hashes, for callers that lock several keys: all must lock in the same order.
func (d KeyHash) Compare(e KeyHash) int { return bytes.Compare(d[:], e[:]) }
