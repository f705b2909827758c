package dedup

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Limits of a Key's fields, in bytes. They leave room in every database's index and column types.
const (
	MaxConsumer = 255
	MaxTenant   = 255
	MaxID       = 1024
)

// Key names one logical message as one consumer sees it.
type Key struct {
	Consumer string // required; each consumer processes a message once
	Tenant   string // optional; keys of different tenants never meet
	ID       string // required; natural business ID, such as "order-42:paid"
}

// KeyHash is a Key folded to the 16 bytes that a store indexes.
type KeyHash [16]byte

// derivation is hashed with every key. A change of the fold is a new version: it must never look like an old key.
const derivation = "txonce key 1"

// Hash folds k. The result is the same in every version of this module, so that nodes of different versions agree
// during a rolling upgrade.
func (k Key) Hash() KeyHash {
	var stack [256]byte
	b := append(stack[:0], derivation...)
	for _, field := range [...]string{k.Consumer, k.Tenant, k.ID} {
		b = binary.AppendUvarint(b, uint64(len(field))) // the lengths keep ("ab","c") and ("a","bc") apart
		b = append(b, field...)
	}
	sum := sha256.Sum256(b)
	return KeyHash(sum[:16])
}

// String is for people: consumer/tenant/id, without the tenant where there is none.
func (k Key) String() string {
	if k.Tenant == "" {
		return fmt.Sprintf("%s/%q", k.Consumer, k.ID)
	}
	return fmt.Sprintf("%s/%s/%q", k.Consumer, k.Tenant, k.ID)
}

// Validate reports why k cannot be claimed, as an error that is ErrNoKey or ErrBadKey; nil if it can.
// A key is refused rather than cut or folded: two keys that a database takes for one lose a message.
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

// Compare orders keys by their derived form, for callers that lock several: everyone must lock in one order.
func (d KeyHash) Compare(e KeyHash) int { return bytes.Compare(d[:], e[:]) }
