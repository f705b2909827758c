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

// These values are frozen: a node of another version derives the same, or the two take one message for two. A change is
// a new version of the derivation, and never an edit of this table.
func TestKeyDerive(t *testing.T) {
	for _, test := range []struct {
		name string
		key  dedup.Key
		want string
	}{
		{"plain", dedup.Key{Consumer: "billing", ID: "order-42:paid"}, "3eaebd47f4593ffeb9b9c93af566271b"},
		{"tenant", dedup.Key{Consumer: "billing", Tenant: "acme", ID: "order-42:paid"}, "63b3cf9fa9f52e32b0c16d3aef6709bd"},
		{"uuid", dedup.Key{Consumer: "billing", ID: "018f4e9c-7a3b-7cc1-b1a2-3c4d5e6f7081"}, "4c5a7d9eb97c4749f7e1ed387a4f14af"},
		{"one byte each", dedup.Key{Consumer: "a", Tenant: "b", ID: "c"}, "7e1c2eeee77b02e7a507a42fd87b8a9b"},
		{"split ab|c", dedup.Key{Consumer: "ab", ID: "c"}, "e9286f29978dee1bcc79e16eb2241132"},
		{"split a|bc", dedup.Key{Consumer: "a", ID: "bc"}, "5eec5e0d6049a006bc51038b6f484a3b"},
		{"UTF-8", dedup.Key{Consumer: "käufe", Tenant: "日本", ID: "\U0001f600"}, "c807bbecaf68c2e30a526846b43456e4"},
		{"decomposed", dedup.Key{Consumer: "ka\u0308ufe", Tenant: "日本", ID: "\U0001f600"}, "e005653f87ba434c84d9b8f35d546922"},
		{"lengths of two bytes", dedup.Key{Consumer: strings.Repeat("c", 128), Tenant: strings.Repeat("t", 255), ID: strings.Repeat("i", 1024)}, "b3f5b45c8e1051e89b6e3ca016945c0c"},
		{"empty", dedup.Key{}, "7bca934ec9c5b56d29dc265ad3a1a0c5"}, // cannot be claimed, but Derive does not know
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
		{"consumer too long", dedup.Key{Consumer: strings.Repeat("c", 256), ID: "i"}, dedup.ErrBadKey, "consumer has 256 bytes"},
		{"tenant too long", dedup.Key{Consumer: "c", Tenant: strings.Repeat("é", 128), ID: "i"}, dedup.ErrBadKey, "tenant has 256 bytes"},
		{"id too long", dedup.Key{Consumer: "c", ID: strings.Repeat("i", 1025)}, dedup.ErrBadKey, "id has 1025 bytes"},
		{"NUL", dedup.Key{Consumer: "c", ID: "a\x00"}, dedup.ErrBadKey, "id contains a NUL"},
		{"half a rune", dedup.Key{Consumer: "c", Tenant: "\xc3", ID: "i"}, dedup.ErrBadKey, "tenant is not valid UTF-8"},
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

// FuzzKeyDerive: two keys derive alike only if they are the same key.
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
		clean := utf8.ValidString(consumer) && utf8.ValidString(tenant) && utf8.ValidString(id) && !strings.Contains(all, "\x00")
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
	// dedup: message has no natural key
}

// Whoever locks several keys sorts them first, as all stores do.
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
	// 68c271337c91742890fa40454fe09e55
	// 7afb2874528767a2ab538ef289fdc117
	// a31f7260bea7f02c4bdd2e465994fa39
}
