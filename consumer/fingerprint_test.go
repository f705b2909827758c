package consumer_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
)

func TestJSONFields(t *testing.T) {
	f := consumer.JSONFields("id", "body.total")
	for _, tc := range []struct {
		name string
		a, b string
		same bool
	}{
		{"identical", `{"id":"a","body":{"total":1}}`, `{"id":"a","body":{"total":1}}`, true},
		{
			"order and space", `{"id":"a","body":{"total":{"x":1,"y":[2]}}}`,
			` { "body" : { "total": {"y":[2],"x":1}},"id":"a"}`, true,
		},
		{"escapes", `{"id":"\u00e4\/"}`, `{"id":"ä/"}`, true},
		{
			"other fields", `{"id":"a","sent_at":1,"body":{"total":1,"hint":"x"}}`,
			`{"id":"a","sent_at":2,"body":{"total":1}}`, true,
		},
		{"numbers written otherwise", `{"id":1.50}`, `{"id":15e-1}`, true},
		{"zeros", `{"id":-0.00}`, `{"id":0e9}`, true},
		{"hundreds", `{"id":100}`, `{"id":1E+2}`, true},
		{"null and missing", `{"id":null}`, `{}`, true},
		{"missing below something else", `{"body":7}`, `{}`, true},
		{"other string", `{"id":"a"}`, `{"id":"b"}`, false},
		{"other number", `{"id":100}`, `{"id":1000}`, false},
		{"other sign", `{"id":1}`, `{"id":-1}`, false},
		{"beyond float64", `{"id":9007199254740993}`, `{"id":9007199254740992}`, false},
		{"huge exponents", `{"id":1e999999999}`, `{"id":1e999999998}`, false},
		{"exponents beyond int64", `{"id":1e99999999999999999999}`, `{"id":1e99999999999999999998}`, false},
		{"string and number", `{"id":"1"}`, `{"id":1}`, false},
		{"string and truth value", `{"id":"true"}`, `{"id":true}`, false},
		{"truth values", `{"id":false}`, `{"id":true}`, false},
		{"null and false", `{"id":false}`, `{"id":null}`, false},
		{"array and nested array", `{"id":[1,2]}`, `{"id":[[1],2]}`, false},
		{"empty array and object", `{"id":[]}`, `{"id":{}}`, false},
		{"member names", `{"id":{"a":"b"}}`, `{"id":{"b":"a"}}`, false},
		{"value in the other field", `{"id":1}`, `{"body":{"total":1}}`, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, errA := f(&consumer.Message{Payload: []byte(tc.a)})
			b, errB := f(&consumer.Message{Payload: []byte(tc.b)})
			if errA != nil || errB != nil || a.IsZero() || (a == b) != tc.same {
				t.Errorf("%x, %v and %x, %v; want them equal: %v", a, errA, b, errB, tc.same)
			}
		})
	}
	for _, p := range []string{``, `{`, `[]`, `null`, `{} {}`, `{}}`, `7`} {
		if got, err := f(&consumer.Message{Payload: []byte(p)}); err == nil {
			t.Errorf("%q: %x, want an error", p, got)
		}
	}
}

// Fingerprints are stored: if one changes, each late redelivery becomes a mismatch.
func TestFingerprintsAreFrozen(t *testing.T) {
	m := &consumer.Message{Payload: []byte(`{"a":"x","b":[1.50,true,null,{"c":-2e3}]}`)}
	for _, tc := range []struct {
		name string
		f    consumer.FingerprintFunc
		want string
	}{
		{"whole payload", consumer.WholePayload, "6ce32561be76eef1"},
		{"fields", consumer.JSONFields("a", "b", "missing"), "eca6f79eef5148c7"},
		{"none", consumer.NoFingerprint, "0000000000000000"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got, err := tc.f(m); err != nil || hex.EncodeToString(got[:]) != tc.want {
				t.Errorf("%x, %v; want %s", got, err, tc.want)
			}
		})
	}
}

// Indentation does not change the fingerprint, and no input panics.
func FuzzJSONFields(f *testing.F) {
	for _, s := range []string{
		`{"a":1.50,"b":{"c":[null]}}`, `{"a":1e999999999999999999999}`, `{"a":-0e-0}`,
		`{"a":"\ud800"}`, `{}`, `x`,
	} {
		f.Add([]byte(s))
	}
	fields := consumer.JSONFields("a", "b.c")
	f.Fuzz(func(t *testing.T, p []byte) {
		got, err := fields(&consumer.Message{Payload: p})
		if err != nil {
			if got != (dedup.Fingerprint{}) {
				t.Errorf("%x beside %v", got, err)
			}
			return
		}
		var indented bytes.Buffer
		if err := json.Indent(&indented, p, "", "\t"); err != nil {
			t.Fatal(err)
		}
		if again, err := fields(&consumer.Message{Payload: indented.Bytes()}); err != nil || again != got {
			t.Errorf("%q: %x, indented %x, %v", p, got, again, err)
		}
	})
}

// A producer that writes an event in another way, with a new timestamp, sends the same message.
func ExampleJSONFields() {
	f := consumer.JSONFields("order_id", "amount")
	a, _ := f(&consumer.Message{Payload: []byte(`{"order_id": "A-42", "amount": 7.0, "sent_at": "10:00"}`)})
	b, _ := f(&consumer.Message{Payload: []byte(`{"amount":7,"order_id":"A-42","sent_at":"10:05"}`)})
	c, _ := f(&consumer.Message{Payload: []byte(`{"amount":8,"order_id":"A-42","sent_at":"10:05"}`)})
	fmt.Println(a == b, a == c)
	// Output: true false
}

func ExampleFingerprintFunc() {
	// Any function that gives the same fingerprint on every delivery is a FingerprintFunc.
	var etag consumer.FingerprintFunc = func(m *consumer.Message) (dedup.Fingerprint, error) {
		return dedup.FingerprintOf([]byte(m.Headers["etag"])), nil
	}
	a, _ := etag(&consumer.Message{Headers: map[string]string{"etag": "1"}})
	b, _ := etag(&consumer.Message{Headers: map[string]string{"etag": "2"}})
	fmt.Println(a == b)
	// Output: false
}
