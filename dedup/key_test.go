package dedup_test

import (
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/txonce/txonce/dedup"
)

// These hashes must never change: processes of all versions must compute the same. Otherwise they take one message for
// two.
func TestKeyDerive(t *testing.T) {
	for _, test := range []struct {
		name string
		key  dedup.Key
		want string
	}{
		{"plain", dedup.Key{Consumer: "billing", ID: "order-42:paid"}, "8fdb4b5d19d50a2afc8a053892396e8d"},
		{
			"tenant",
			dedup.Key{Consumer: "billing", Tenant: "acme", ID: "order-42:paid"},
			"478e10ab228d05a6b127a23dcf334c60",
		},
		{
			"UUIDv7",
			dedup.Key{Consumer: "billing", ID: "018f4e9c-7a3b-7cc1-b1a2-3c4d5e6f7081"},
			"018f4e9c7a3b0a3e0702bcf1b6a6d84b",
		},
		{
			"UUIDv7 in upper case",
			dedup.Key{Consumer: "billing", ID: "018F4E9C-7A3B-7CC1-B1A2-3C4D5E6F7081"},
			"018f4e9c7a3bbbc014278bf8c191ca58",
		},
		{
			"UUIDv7, another consumer",
			dedup.Key{Consumer: "mail", ID: "018f4e9c-7a3b-7cc1-b1a2-3c4d5e6f7081"},
			"018f4e9c7a3b7eed93be9f92d715da41",
		},
		{
			"UUIDv7, a tenant",
			dedup.Key{Consumer: "billing", Tenant: "acme", ID: "018f4e9c-7a3b-7cc1-b1a2-3c4d5e6f7081"},
			"018f4e9c7a3bb9e93f22a37de7b084ca",
		},
		{
			"UUIDv7 and more",
			dedup.Key{Consumer: "billing", ID: "018f4e9c-7a3b-7cc1-b1a2-3c4d5e6f7081/paid"},
			"018f4e9c7a3b951db081ff7380583f80",
		},
		{
			"UUIDv4",
			dedup.Key{Consumer: "billing", ID: "f47ac10b-58cc-4372-a567-0e02b2c3d479"},
			"cc9ffec0487c11cf55d5f89b439f0cee",
		},
		{
			"ULID",
			dedup.Key{Consumer: "billing", ID: "evt_01JD5Z0QZ7M4J8V2K6T3R9X1YB"},
			"01934bf05fe72f773b9b00f598996e60",
		},
		{
			"RFC 3339",
			dedup.Key{Consumer: "billing", ID: "2026-11-24T09:51:27Z/order-42"},
			"01a20cf7a9186ce20623fc57f98efaff",
		},
		{"a time in the tenant does not count", dedup.Key{Consumer: "billing", Tenant: "2026-11-24T09:51:27Z", ID: "order-42"}, "b6ae50fdb5c3a4ceae0d04fd9e27597e"},
		{"one byte each", dedup.Key{Consumer: "a", Tenant: "b", ID: "c"}, "4a59f21afcf31bf715b7df859cac029d"},
		{"split ab|c", dedup.Key{Consumer: "ab", ID: "c"}, "55b15ffab85c2f136bb8a8d6e0d0ab6c"},
		{"split a|bc", dedup.Key{Consumer: "a", ID: "bc"}, "6d1f996c1eb23213832db13fe07a0099"},
		{"UTF-8", dedup.Key{Consumer: "käufe", Tenant: "日本", ID: "\U0001f600"}, "f5379fde509cc147a6e93e9c6cbcecef"},
		{
			"decomposed",
			dedup.Key{Consumer: "ka\u0308ufe", Tenant: "日本", ID: "\U0001f600"},
			"95993efa6bf8bd1b316789915f1342ff",
		},
		{"lengths of two bytes", dedup.Key{Consumer: strings.Repeat("c", 128), Tenant: strings.Repeat("t", 255), ID: strings.Repeat("i", 1024)}, "db4e8a82a04f2957622124e84afbc66e"},
		{"empty", dedup.Key{}, "4375ab8e255ecf242c5282a9bdab5276"}, // cannot be claimed, but Derive does not know
	} {
		t.Run(test.name, func(t *testing.T) {
			d := test.key.Hash()
			if got := hex.EncodeToString(d[:]); got != test.want {
				t.Errorf("Derive() = %s, frozen is %s", got, test.want)
			}
		})
	}
}

func TestKeyValidate(t *testing.T) {
	for _, test := range []struct {
		name string
		key  dedup.Key
		want error
		says string
	}{
		{"plain", dedup.Key{Consumer: "c", ID: "i"}, nil, ""},
		{"longest", dedup.Key{Consumer: strings.Repeat("c", 255), Tenant: strings.Repeat("t", 255), ID: strings.Repeat("i", 1024)}, nil, ""},
		{"white space", dedup.Key{Consumer: "c", ID: " \n"}, nil, ""},
		{"no id", dedup.Key{Consumer: "c"}, dedup.ErrNoKey, ""},
		{"nothing", dedup.Key{}, dedup.ErrNoKey, ""},
		{"no consumer", dedup.Key{ID: "i"}, dedup.ErrBadKey, "consumer"},
		{
			"consumer too long",
			dedup.Key{Consumer: strings.Repeat("c", 256), ID: "i"},
			dedup.ErrBadKey,
			"consumer has 256 bytes",
		},
		{
			"tenant too long",
			dedup.Key{Consumer: "c", Tenant: strings.Repeat("é", 128), ID: "i"},
			dedup.ErrBadKey,
			"tenant has 256 bytes",
		},
		{"id too long", dedup.Key{Consumer: "c", ID: strings.Repeat("i", 1025)}, dedup.ErrBadKey, "id has 1025 bytes"},
		{"NUL", dedup.Key{Consumer: "c", ID: "a\x00"}, dedup.ErrBadKey, "id contains a NUL"},
		{
			"half a rune",
			dedup.Key{Consumer: "c", Tenant: "\xc3", ID: "i"},
			dedup.ErrBadKey,
			"tenant is not valid UTF-8",
		},
		{"a surrogate", dedup.Key{Consumer: "c", ID: "\xed\xa0\x80"}, dedup.ErrBadKey, "id is not valid UTF-8"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := test.key.Validate()
			if !errors.Is(err, test.want) || (err == nil) != (test.want == nil) {
				t.Fatalf("Validate() = %v, want %v", err, test.want)
			}
			if err != nil && !strings.Contains(err.Error(), test.says) {
				t.Errorf("%q does not say %q", err, test.says)
			}
		})
	}
}

func TestKeyString(t *testing.T) {
	for _, test := range []struct{ name, want, got string }{
		{"without a tenant", `billing/"order-42"`, dedup.Key{Consumer: "billing", ID: "order-42"}.String()},
		{"with one", `billing/acme/"order-42"`, dedup.Key{Consumer: "billing", Tenant: "acme", ID: "order-42"}.String()},
		{"quoted for logs", `billing/"a\nb"`, dedup.Key{Consumer: "billing", ID: "a\nb"}.String()},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.got != test.want {
				t.Errorf("String() = %s, want %s", test.got, test.want)
			}
		})
	}
}

// FuzzKeyDerive: two keys have equal hashes only if they are equal.
func FuzzKeyDerive(f *testing.F) {
	f.Add("ab", "", "c", "a", "", "bc")
	f.Add("a", "b", "c", "a", "", "bc")
	f.Add("a", "bc", "", "a", "b", "c")
	f.Add("a", "b", "c", "a", "b", "c")
	f.Add("a\x01b", "", "c", "a", "\x01b", "c")
	f.Fuzz(func(t *testing.T, c1, t1, i1, c2, t2, i2 string) {
		a, b := dedup.Key{Consumer: c1, Tenant: t1, ID: i1}, dedup.Key{Consumer: c2, Tenant: t2, ID: i2}
		da, db := a.Hash(), b.Hash()
		if (da == db) != (a == b) {
			t.Errorf("%q and %q derive %x and %x", a, b, da, db)
		}
		if c := da.Compare(db); c != -db.Compare(da) || (c == 0) != (da == db) {
			t.Errorf("Compare(%x, %x) = %d", da, db, c)
		}
	})
}

func FuzzKeyValidate(f *testing.F) {
	f.Add("c", "t", "i")
	f.Add("", "", "")
	f.Add("c", "\x00", "\xff")
	f.Fuzz(func(t *testing.T, consumer, tenant, id string) {
		err := dedup.Key{Consumer: consumer, Tenant: tenant, ID: id}.Validate()
		all := consumer + tenant + id
		clean := utf8.ValidString(consumer) && utf8.ValidString(tenant) && utf8.ValidString(id) &&
			!strings.Contains(all, "\x00")
		fits := len(consumer) <= dedup.MaxConsumer && len(tenant) <= dedup.MaxTenant && len(id) <= dedup.MaxID
		if good := clean && fits && consumer != "" && id != ""; (err == nil) != good {
			t.Errorf("Validate(%q, %q, %q) = %v", consumer, tenant, id, err)
		}
		if err != nil && !errors.Is(err, dedup.ErrNoKey) && !errors.Is(err, dedup.ErrBadKey) {
			t.Errorf("%v is neither ErrNoKey nor ErrBadKey", err)
		}
	})
}

func ExampleKey() {
	k := dedup.Key{Consumer: "billing", ID: "order-42:paid"}
	fmt.Println(k, k.Validate())
	fmt.Println(dedup.Key{Consumer: "billing"}.Validate())
	// Output:
	// billing/"order-42:paid" <nil>
	// dedup: message has no business key
}

// A caller that locks several keys sorts them first, as all stores do.
func ExampleKeyHash() {
	keys := []dedup.KeyHash{
		dedup.Key{Consumer: "billing", ID: "order-42"}.Hash(),
		dedup.Key{Consumer: "billing", ID: "order-43"}.Hash(),
		dedup.Key{Consumer: "mail", ID: "order-42"}.Hash(),
	}
	slices.SortFunc(keys, dedup.KeyHash.Compare)
	for _, k := range keys {
		fmt.Printf("%x\n", k)
	}
	// Output:
	// 17f82754d429f1244bf65f580f7ba08c
	// 5d86969a623b11676e18f2089909aa50
	// a312fd3351c07a5d2d3bb6de9779d666
}
