package strict_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/internal/strict"
)

func TestID(t *testing.T) {
	for id, ok := range map[string]bool{
		"evt_1": true, "ä b": true, strings.Repeat("x", 255): true,
		"": false, strings.Repeat("x", 256): false, "a\x00b": false, "a\nb": false, "\xff": false, "\ufffd": false,
		"a\u200b": false,
	} {
		if err := strict.ID(id); (err == nil) != ok {
			t.Errorf("ID(%q) = %v", id, err)
		}
	}
}

func TestLookup(t *testing.T) {
	for _, test := range []struct{ name, doc, path, want string }{
		{"top", `{"id":"1"}`, "id", `"1"`},
		{"nested", `{"a":{"b":[1]}}`, "a.b", `[1]`},
		{"integer", `{"id":9007199254740993}`, "id", `9007199254740993`},
		{"missing", `{"a":1}`, "id", `"id" is missing`},
		{"missing below", `{"a":{}}`, "a.id", `"a.id" is missing`},
		{"other case only", `{"ID":1}`, "id", `"id" is there in other letters only, which encoding/json takes for the same name`},
		{"twice", `{"id":1,"id":2}`, "id", `"id" occurs twice, as "id" and "id"`},
		{"twice in other case", `{"ID":1,"id":2}`, "id", `"id" occurs twice, as "ID" and "id"`},
		{"twice with the long s", `{"sid":1,"ſid":2}`, "sid", `"sid" occurs twice, as "sid" and "ſid"`},
		{"twice by an escape", `{"id":1,"\u0069d":2}`, "id", `"id" occurs twice, as "id" and "id"`},
		{"twice elsewhere", `{"id":1,"meta":{"a":1,"a":2}}`, "id", `1`},
		{"no object", `[1]`, "id", `"id" is not in an object`},
		{"null", `null`, "id", `"id" is not in an object`},
	} {
		t.Run(test.name, func(t *testing.T) {
			if err := strict.Document([]byte(test.doc)); err != nil {
				t.Fatal(err)
			}
			path, err := strict.Path(test.path)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if raw, err := strict.Lookup([]byte(test.doc), path); err != nil {
				got = err.Error()
			} else {
				got = string(raw)
			}
			if got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
	if _, err := strict.Lookup([]byte(`{}`), []string{"a"}); !errors.Is(err, strict.ErrMissing) {
		t.Errorf("%v is not ErrMissing", err)
	}
}

func TestDocument(t *testing.T) {
	for doc, ok := range map[string]bool{
		`{}`: true, ` [1] `: true, `"a"`: true,
		strings.Repeat("[", 100) + strings.Repeat("]", 100):     true,
		strings.Repeat("[", 101) + strings.Repeat("]", 101):     false,
		strings.Repeat("[", 10001) + strings.Repeat("]", 10001): false,
		`["` + strings.Repeat(`[\"`, 200) + `"]`:                true,
		``:                                                      false, `{} {}`: false, `{`: false, "\"\xff\"": false,
		"\ufeff{}": false, `{"a":1,}`: false,
	} {
		if err := strict.Document([]byte(doc)); (err == nil) != ok {
			t.Errorf("Document(%.20q) = %v", doc, err)
		}
	}
}

func TestScalar(t *testing.T) {
	for raw, want := range map[string]string{
		`"a"`: "a", `9007199254740993`: "9007199254740993", `-1`: "-1",
		`1.0`: "", `1e3`: "", `null`: "", `true`: "", `{}`: "", `[]`: "",
	} {
		if got, err := strict.Scalar([]byte(raw)); got != want || (err == nil) != (want != "") {
			t.Errorf("Scalar(%s) = %q, %v", raw, got, err)
		}
	}
}

func TestItems(t *testing.T) {
	for doc, want := range map[string]int{`[]`: 0, `[1,{"a":[2]}]`: 2, `null`: -1, `{}`: -1, `"a"`: -1} {
		items, err := strict.Items([]byte(doc))
		if n := len(items); (err == nil) != (want >= 0) || err == nil && n != want {
			t.Errorf("Items(%s) = %d, %v", doc, n, err)
		}
	}
}

func TestSigned(t *testing.T) {
	b := func(s ...string) (all [][]byte) {
		for _, s := range s {
			all = append(all, []byte(s))
		}
		return all
	}
	right := hmac.New(sha256.New, []byte("key"))
	right.Write([]byte("content"))
	mac := right.Sum(nil)
	if !strict.Signed(sha256.New, b("old", "key"), b("other", "content"), append(b("x"), mac)) {
		t.Error("case 53: refused the second key, content and MAC")
	}
	if !strict.Signed(sha256.New, b("key", "new"), b("content", "other"), append([][]byte{mac}, b("x")...)) {
		t.Error("case 53: refused the first key, content and MAC")
	}
	if strict.Signed(sha256.New, b("key"), b("content"),
		[][]byte{mac[:len(mac)-1], append(mac[:len(mac):len(mac)], 0)}) {
		t.Error("case 51: accepted a MAC of another length")
	}
	sum := sha256.Sum256([]byte("no MAC"))
	if strict.Signed(sha256.New, [][]byte{[]byte("key")}, [][]byte{[]byte("a")}, [][]byte{sum[:], nil, {}}) {
		t.Error("accepted a MAC that no key made")
	}
	if strict.Signed(sha256.New, nil, [][]byte{[]byte("a")}, [][]byte{sum[:]}) {
		t.Error("accepted without keys")
	}
}

func TestBase64(t *testing.T) {
	for s, ok := range map[string]bool{
		"YWI=": true, "YWI": false, "YW I=": false, "YWI=\n": false, "YWJ=": false,
		"_w==": false,
	} {
		if _, err := strict.Base64(base64.StdEncoding, s); (err == nil) != ok {
			t.Errorf("Base64(%q) = %v", s, err)
		}
	}
}

func TestReply(t *testing.T) {
	for _, test := range []struct {
		reply webhook.Reply
		ok    bool
	}{
		{webhook.Reply{}, true},
		{webhook.Reply{Status: 204}, true},
		{webhook.Reply{Status: 200, Body: []byte("[accepted]")}, true},
		{webhook.Reply{Status: 204, Body: []byte("x")}, false},
		{webhook.Reply{Status: 302}, false},
		{webhook.Reply{Status: 410}, false},
		{webhook.Reply{Status: 500}, false},
		{webhook.Reply{Status: 199}, false},
	} {
		if err := strict.Reply(test.reply.Status, test.reply.Body); (err == nil) != test.ok {
			t.Errorf("Reply(%+v) = %v", test.reply, err)
		}
	}
}

func FuzzLookup(f *testing.F) {
	for _, doc := range []string{
		`{"a":{"id":"1"}}`, `{"a":[{"id":1}]}`, `{"id":1,"ID":2}`, `"\ud800"`, `[[[`,
		`{"a":`,
	} {
		f.Add([]byte(doc))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		if strict.Document(doc) != nil {
			return
		}
		raw, err := strict.Lookup(doc, []string{"a", "id"})
		if err != nil {
			return
		}
		if strict.Document(raw) != nil {
			t.Fatalf("Lookup returned %q, which is no JSON value", raw)
		}
		if text, err := strict.Scalar(raw); err == nil && raw[0] != '"' && text != string(raw) {
			t.Fatalf("the number %s became %s", raw, text)
		}
	})
}

func TestUnambiguous(t *testing.T) {
	deep := func(n int) string { return strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n) }
	for doc, ok := range map[string]bool{
		`{"a":1,"b":[{"a":2},{"a":3}]}`: true, deep(32): true, `{"a":"a","b":"a"}`: true,
		deep(33): false, `{"a":1,"A":2}`: false, `{"b":[{"a":2,"\u0041":3}]}`: false, `{"k":1,"K":2}`: false,
		`[]`: false, `null`: false, `{} {}`: false, "{\"a\":\"\xff\"}": false, strings.Repeat(`{"a":`, 10001): false,
	} {
		if _, err := strict.Unambiguous([]byte(doc), 32); (err == nil) != ok {
			t.Errorf("case 71: Unambiguous(%.60q) = %v", doc, err)
		}
	}
}

func TestMembers(t *testing.T) {
	m, err := strict.Select([]byte(`{"n":9007199254740993,"f":1e3,"big":9223372036854775808,"s":"7","b":true,"none":null,"lone":"\ud800"}`),
		"n", "f", "big", "s", "b", "none", "lone", "missing")
	if err != nil {
		t.Fatal(err)
	}
	if n, err := m.Int("n"); n != 9007199254740993 || err != nil {
		t.Errorf("case 71: n is %d, %v", n, err)
	}
	for _, name := range []string{"f", "big", "s", "b", "none", "missing"} {
		if n, err := m.Int(name); err == nil {
			t.Errorf("%s is the integer %d", name, n)
		}
	}
	for _, name := range []string{"n", "b", "none", "missing", "lone"} {
		if s, err := m.String(name); err == nil {
			t.Errorf("%s is the string %q", name, s)
		}
	}
	for _, name := range []string{"n", "s", "none", "missing"} {
		if _, err := m.Bool(name); err == nil {
			t.Errorf("%s is true or false", name)
		}
	}
	if b, err := m.Bool("b"); !b || err != nil || m.Has("none") || m.Has("missing") || !m.Has("s") {
		t.Errorf("b is %v, %v", b, err)
	}
}

func TestKey(t *testing.T) {
	for key, ok := range map[string]bool{
		"0123456789abcdef": true, "0123456789abcde": false, "": false,
		strings.Repeat("\x00", 20): false,
	} {
		if err := strict.Key([]byte(key), 16); (err == nil) != ok {
			t.Errorf("case 52: Key(%q) = %v", key, err)
		}
	}
}
