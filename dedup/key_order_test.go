package dedup_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/dedup"
)

// timedIDs returns, in each form that contains a time, an ID made at that time.
func timedIDs(at time.Time) map[string]string {
	ms, rest := uint64(at.UnixMilli()), rand.Uint64()
	ulid := make([]byte, 26)
	for i := range ulid {
		ulid[i] = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"[rand.IntN(32)]
	}
	for i, n := 9, ms; i >= 0; i, n = i-1, n>>5 {
		ulid[i] = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"[n&31]
	}
	uuid := fmt.Sprintf("%08x-%04x-7%03x-%x%03x-%012x", ms>>16, ms&0xffff, rest&0xfff, 8+rest>>62, rest>>12&0xfff,
		rest>>12&0xffffffffffff)
	return map[string]string{
		"UUIDv7": uuid, "UUIDv7 in upper case": strings.ToUpper(uuid), "UUIDv7 and a prefix": "evt_" + uuid,
		"UUIDv7 and a suffix": uuid + "/paid",
		"ULID":                string(ulid), "ULID in lower case": strings.ToLower(string(ulid)), "ULID and a prefix": "evt_" +
			string(ulid),
		"RFC 3339": at.UTC().Format(time.RFC3339) + fmt.Sprintf("/order-%d", rest),
	}
}

// Keys are in the order of their IDs' times, whichever form the IDs have, and whatever the consumer and the tenant are.
func TestKeysAreInTheOrderOfTheirTimes(t *testing.T) {
	for range 200 {
		early := time.UnixMilli(rand.Int64N(1<<42) + 1000).Truncate(time.Second) // RFC 3339 counts seconds
		late := early.Add(time.Second + time.Duration(rand.Int64N(int64(time.Hour))))
		for form, a := range timedIDs(early) {
			for other, b := range timedIDs(late) {
				ka := dedup.Key{Consumer: fmt.Sprint("c", rand.IntN(3)), Tenant: fmt.Sprint(rand.IntN(3)), ID: a}
				kb := dedup.Key{Consumer: fmt.Sprint("c", rand.IntN(3)), Tenant: fmt.Sprint(rand.IntN(3)), ID: b}
				if ka.Hash().Compare(kb.Hash()) >= 0 {
					t.Fatalf("%s %q of %v is not before %s %q of %v: %x, %x", form, a, early, other, b, late, ka.Hash(),
						kb.Hash())
				}
			}
		}
	}
}

// The time is only a part of a key: keys with the same time differ when any field does, and when the case of a letter
// does.
func TestKeysOfOneTimeDiffer(t *testing.T) {
	seen := map[dedup.KeyHash]dedup.Key{}
	at := time.Now()
	for i := range 500 {
		consumer, tenant := fmt.Sprint("c", i%7), fmt.Sprint(i%3)
		for _, id := range timedIDs(at) {
			for _, k := range []dedup.Key{
				{consumer, tenant, id},
				{consumer, "", id},
				{consumer + "x", tenant, id},
				{consumer, tenant, id + "/x"},
			} {
				h := k.Hash()
				if other, found := seen[h]; found && other != k {
					t.Fatalf("%v and %v have the hash %x", k, other, h)
				}
				seen[h] = k
			}
		}
	}
}

// A time in the ID belongs to the ID. The same order under another time is another message.
func TestAnIDWithAnotherTimeIsAnotherKey(t *testing.T) {
	a := dedup.Key{Consumer: "billing", ID: "2026-11-24T09:51:27Z/order-42"}
	b := dedup.Key{Consumer: "billing", ID: "2026-11-24T09:51:28Z/order-42"}
	if a.Hash() == b.Hash() {
		t.Errorf("%v and %v are one message", a, b)
	}
}
