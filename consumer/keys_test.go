package consumer_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
)

func TestKeyFuncs(t *testing.T) {
	type order struct{ ID string }
	ofOrder := consumer.KeyOf(func(o order) (string, error) {
		if o.ID == "bad" {
			return "", errPoison
		}
		return "order-" + o.ID, nil
	})
	header := consumer.HeaderKey("order-id")
	for _, tc := range []struct {
		name string
		key  consumer.KeyFunc
		msg  consumer.Message
		want string
		err  error
		says string
	}{
		{"message id", consumer.MessageID, consumer.Message{ID: "x"}, "x", nil, ""},
		{"no message id", consumer.MessageID, consumer.Message{}, "", dedup.ErrNoKey, "Message.ID"},
		{"header", header, consumer.Message{Headers: map[string]string{"order-id": "7"}}, "7", nil, ""},
		{
			"header of other case", header,
			consumer.Message{Headers: map[string]string{"Order-ID": "7"}},
			"",
			dedup.ErrNoKey, `header "order-id" is missing`,
		},
		{"no headers", header, consumer.Message{}, "", dedup.ErrNoKey, `header "order-id" is missing`},
		{
			"empty header", header,
			consumer.Message{Headers: map[string]string{"order-id": ""}},
			"", dedup.ErrNoKey,
			`header "order-id" is empty`,
		},
		{"typed", ofOrder, payload(`{"id":"7"}`), "order-7", nil, ""},
		{"typed, refused", ofOrder, payload(`{"id":"bad"}`), "", errPoison, ""},
		{"typed, undecodable", ofOrder, payload(`{"id":7}`), "", dedup.ErrNoKey, "order"},
		{"typed, empty", ofOrder, payload(``), "", dedup.ErrNoKey, "order"},
	} {
		t.Run(tc.name, func(t *testing.T) { checkKey(t, tc.key, tc.msg, tc.want, tc.err, tc.says) })
	}
}

func payload(s string) consumer.Message { return consumer.Message{Payload: []byte(s)} }

func checkKey(t *testing.T, key consumer.KeyFunc, msg consumer.Message, want string, wantErr error, says string) {
	t.Helper()
	got, err := key(&msg)
	if got != want || !errors.Is(err, wantErr) || (err == nil) != (wantErr == nil) {
		t.Errorf("got %q, %v; want %q, %v", got, err, want, wantErr)
	}
	if err != nil && !strings.Contains(err.Error(), says) {
		t.Errorf("%q does not say %q", err, says)
	}
}

func TestJSONKey(t *testing.T) {
	id, nested, two := consumer.JSONKey("id"), consumer.JSONKey("order.id"), consumer.JSONKey("order.id", "kind")
	for _, tc := range []struct {
		name    string
		key     consumer.KeyFunc
		payload string
		want    string
		err     error
		says    string
	}{
		{"string", id, `{"id":"order-42"}`, `order-42`, nil, ""},
		{"string with escapes", id, `{"id":"\u00e4\n\"\/"}`, "ä\n\"/", nil, ""},
		{"number", id, `{"id":42}`, `42`, nil, ""},
		{"string of digits", id, `{"id":"42"}`, `"42"`, nil, ""},
		{"large number", id, `{"id":12345678901234567890123}`, `12345678901234567890123`, nil, ""},
		{"number with fraction", id, `{"id":1.50e0}`, `1.50e0`, nil, ""},
		{"truth value", id, `{"id":true}`, `true`, nil, ""},
		{"string that says true", id, `{"id":"true"}`, `"true"`, nil, ""},
		{"string that begins with a quote", id, `{"id":"\"a\\"}`, `"\"a\\"`, nil, ""},
		{"string with a slash", id, `{"id":"a/b"}`, `a/b`, nil, ""},
		{"last of a repeated name", id, `{"id":"a","id":"b"}`, `b`, nil, ""},
		{"space around", id, " \n{ \"id\" : \"a\" }\n", `a`, nil, ""},
		{"nested", nested, `{"order":{"id":"a"}}`, `a`, nil, ""},
		{"two", two, `{"order":{"id":"a"},"kind":"paid"}`, `a/paid`, nil, ""},
		{"two, one with a slash", two, `{"order":{"id":"a/b"},"kind":7}`, `"a/b"/7`, nil, ""},
		{"missing", id, `{}`, "", dedup.ErrNoKey, `field "id" is missing`},
		{"of other case", id, `{"ID":"a"}`, "", dedup.ErrNoKey, `field "id" is missing`},
		{"missing nested", nested, `{"order":{}}`, "", dedup.ErrNoKey, `field "order.id" is missing`},
		{"nested in a string", nested, `{"order":"id"}`, "", dedup.ErrNoKey, `field "order" is not an object`},
		{"nested in null", nested, `{"order":null}`, "", dedup.ErrNoKey, `field "order" is not an object`},
		{"one of two missing", two, `{"order":{"id":"a"}}`, "", dedup.ErrNoKey, `field "kind" is missing`},
		{"null", id, `{"id":null}`, "", dedup.ErrNoKey, `"id"`},
		{"empty", id, `{"id":""}`, "", dedup.ErrNoKey, `"id"`},
		{"object", id, `{"id":{"a":1}}`, "", dedup.ErrNoKey, `"id"`},
		{"array", id, `{"id":[1]}`, "", dedup.ErrNoKey, `"id"`},
		{"no object", id, `[1]`, "", dedup.ErrNoKey, "not a JSON object"},
		{"no JSON", id, `{"id":"a"`, "", dedup.ErrNoKey, "not a JSON object"},
		{"something behind", id, `{"id":"a"}{}`, "", dedup.ErrNoKey, "not a JSON object"},
		{"nothing", id, ``, "", dedup.ErrNoKey, "not a JSON object"},
		{"invalid UTF-8", id, "{\"id\":\"a\xff\"}", "", dedup.ErrBadKey, `"id"`},
		{"half a surrogate pair", id, `{"id":"\ud800"}`, "", dedup.ErrBadKey, `"id"`},
	} {
		t.Run(tc.name, func(t *testing.T) { checkKey(t, tc.key, payload(tc.payload), tc.want, tc.err, tc.says) })
	}
}

func TestPathsAreCheckedWhenTheyAreWritten(t *testing.T) {
	for name, f := range map[string]func(){
		"no header":        func() { consumer.HeaderKey("") },
		"no path":          func() { consumer.JSONKey() },
		"empty path":       func() { consumer.JSONKey("id", "") },
		"empty name":       func() { consumer.JSONKey("order..id") },
		"empty last name":  func() { consumer.JSONFields("order.") },
		"no path to print": func() { consumer.JSONFields() },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			f()
		})
	}
}

// No input panics or gives an invalid key, and a document that is encoded again gives the same key.
func FuzzJSONKey(f *testing.F) {
	for _, s := range []string{
		`{"a":"x","b":{"c":1}}`, `{"a":"7","b":{"c":"\u0000"}}`, `{"a":"\ud800","b":[]}`,
		`{"a":{"a":{}}}`, "{\"a\":\"\xff\"}", `[`, ``,
	} {
		f.Add([]byte(s))
	}
	key := consumer.JSONKey("a", "b.c")
	f.Fuzz(func(t *testing.T, p []byte) {
		got, err := key(&consumer.Message{Payload: p})
		switch {
		case err != nil && !errors.Is(err, dedup.ErrNoKey) && !errors.Is(err, dedup.ErrBadKey):
			t.Errorf("err = %v", err)
		case err == nil:
			var body map[string]json.RawMessage
			if err := json.Unmarshal(p, &body); err != nil {
				t.Fatal(err)
			}
			again, err := json.Marshal(body)
			if err != nil {
				t.Fatal(err)
			}
			if same, err := key(&consumer.Message{Payload: again}); same != got {
				t.Errorf("%s gives %q, and %s %q, %v", p, got, again, same, err)
			}
		}
	})
}

// Different pairs of values have different keys.
func FuzzJSONKeyIsUnambiguous(f *testing.F) {
	f.Add("a", "b", "a/b", "", true, false)
	f.Add("7", "b", "7", "b", true, false)
	f.Add("\"a\"/\"", "b", "a", "\"/\"b", false, false)
	key := consumer.JSONKey("a", "b")
	single := consumer.JSONKey("a")
	f.Fuzz(func(t *testing.T, a1, b1, a2, b2 string, raw1, raw2 bool) {
		write := func(a, b string, raw bool) []byte {
			first, _ := json.Marshal(a)
			if raw {
				first = []byte(a)
			}
			second, _ := json.Marshal(b)
			return fmt.Appendf(nil, `{"a":%s,"b":%s}`, first, second)
		}
		value := func(p []byte) string {
			var v struct{ A, B any }
			dec := json.NewDecoder(strings.NewReader(string(p)))
			dec.UseNumber()
			_ = dec.Decode(&v)
			return fmt.Sprintf("%T %q %T %q", v.A, v.A, v.B, v.B)
		}
		p1, p2 := write(a1, b1, raw1), write(a2, b2, raw2)
		if strings.Count(string(p1), `"b":`) > 1 || strings.Count(string(p2), `"b":`) > 1 ||
			strings.Count(string(p1)+string(p2), `"a":`) > 2 {
			t.Skip("a raw value that writes further members")
		}
		k1, err1 := key(&consumer.Message{Payload: p1})
		k2, err2 := key(&consumer.Message{Payload: p2})
		if err1 == nil && err2 == nil && k1 == k2 && value(p1) != value(p2) {
			t.Errorf("%s and %s share the key %q", p1, p2, k1)
		}
		k1, err1 = single(&consumer.Message{Payload: p1})
		k2, err2 = single(&consumer.Message{Payload: p2})
		a := func(p []byte) string { s, _, _ := strings.Cut(value(p), " string "); return s }
		if err1 == nil && err2 == nil && k1 == k2 && a(p1) != a(p2) {
			t.Errorf("%s and %s share the key %q", p1, p2, k1)
		}
	})
}

// A time in the key is a part of it. So it must be the same whenever a producer sends the message: with another time,
// it is another message.
func TestAMessageWithAnotherTimeInItsKeyIsAnotherMessage(t *testing.T) {
	store := consumertest.NewStore()
	c, err := consumer.New(consumer.Config[*deduptest.Tx]{
		Name: "billing", Store: store, Key: consumer.JSONKey("created_at", "order_id"),
		Handle: consumer.JSON(chargeOrder),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		created string
		charges int
	}{
		{"2026-11-24T09:51:27Z", 1},
		{"2026-11-24T09:51:27Z", 1},
		{"2026-11-24T09:51:28Z", 2},
		{"2026-11-24T09:51:27Z", 2},
	} {
		if err := c.Process(t.Context(), &consumer.Message{Payload: []byte(`{"created_at": "` + step.created + `", "order_id": "A"}`)}); err != nil {
			t.Fatal(err)
		}
		if n := store.Database().Count("charged A"); n != step.charges {
			t.Errorf("after a delivery with the time %s the order was charged %d times, want %d", step.created, n,
				step.charges)
		}
	}
}

func ExampleJSONKey() {
	key := consumer.JSONKey("order.id", "event")
	id, err := key(&consumer.Message{Payload: []byte(`{"event": "paid", "order": {"id": "A-42", "amount": 7}}`)})
	fmt.Println(id, err)
	_, err = key(&consumer.Message{Payload: []byte(`{"event": "paid"}`)})
	fmt.Println(err)
	// Output:
	// A-42/paid <nil>
	// dedup: message has no business key: field "order" is missing
}

func ExampleKeyFunc() {
	// Any function that gives the same key on every delivery is a KeyFunc.
	var key consumer.KeyFunc = func(m *consumer.Message) (string, error) {
		return m.Headers["source"] + ":" + m.Headers["sequence"], nil
	}
	fmt.Println(key(&consumer.Message{Headers: map[string]string{"source": "crm", "sequence": "9"}}))
	// Output: crm:9 <nil>
}

func ExampleKeyOf() {
	type shipment struct{ Carrier, Parcel string }
	key := consumer.KeyOf(func(s shipment) (string, error) { return s.Carrier + "/" + s.Parcel, nil })
	fmt.Println(key(&consumer.Message{Payload: []byte(`{"carrier": "post", "parcel": "77"}`)}))
	// Output: post/77 <nil>
}

// A time that never changes, in front of the ID, keeps the keys of a large table in order (dedup.Key.Hash). An event
// without ID must not get a key: all events of that second would have the same one.
func ExampleKeyOf_time() {
	type event struct {
		ID      string
		Created int64
	}
	key := consumer.KeyOf(func(e event) (string, error) {
		if e.ID == "" || e.Created == 0 {
			return "", dedup.ErrNoKey
		}
		return time.Unix(e.Created, 0).UTC().Format(time.RFC3339) + "/" + e.ID, nil
	})
	fmt.Println(key(&consumer.Message{Payload: []byte(`{"id": "evt_1NG8Du2eZvKYlo2C", "created": 1795513887}`)}))
	// Output: 2026-11-24T09:51:27Z/evt_1NG8Du2eZvKYlo2C <nil>
}
