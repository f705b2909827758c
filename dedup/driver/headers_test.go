package driver_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"testing"
	"unicode/utf8"

	"github.com/txonce/txonce/dedup/driver"
)

// A \u0000 that is an escape: an odd number of backslashes before the u.
var escapedNUL = regexp.MustCompile(`(^|[^\\])(\\\\)*\\u0000`)

func checkHeaders(t *testing.T, headers map[string]string) {
	t.Helper()
	encoded, err := driver.EncodeHeaders(headers)
	if err != nil {
		t.Fatal(err)
	}
	again, _ := driver.EncodeHeaders(maps.Clone(headers))
	switch {
	case !bytes.Equal(encoded, again):
		t.Errorf("encoded twice: %s and %s", encoded, again)
	case !json.Valid(encoded) || !utf8.Valid(encoded):
		t.Errorf("not valid JSON: %q", encoded)
	case escapedNUL.Match(encoded):
		t.Errorf("PostgreSQL refuses %s", encoded)
	}
	got, err := driver.DecodeHeaders(encoded)
	if err != nil || !maps.Equal(got, headers) {
		t.Errorf("DecodeHeaders(%s) = %q, %v; want %q", encoded, got, err, headers)
	}
}

func TestHeadersKeepAnyBytes(t *testing.T) {
	for _, tc := range []struct {
		name    string
		headers map[string]string
		want    string
	}{
		{"none", nil, `{}`},
		{"text", map[string]string{"trace": "<a&b>", "Ä": "ö"}, `{"trace":"<a&b>","Ä":"ö"}`},
		{"empty", map[string]string{"": ""}, `{"":""}`},
		{"NUL", map[string]string{"v": "a\x00b"}, `{"v":{"base64":"YQBi"}}`},
		{"not UTF-8", map[string]string{"v": "\xff"}, `{"v":{"base64":"/w=="}}`},
		{
			"names",
			map[string]string{"\xff": "1", "a\x00": "2", "base64:x": "3"},
			`{"base64:/w==":"1","base64:YQA=":"2","base64:YmFzZTY0Ong=":"3"}`,
		},
		{
			"text that looks encoded",
			map[string]string{"v": `{"base64":"/w=="}`, "w": `\u0000`},
			`{"v":"{\"base64\":\"/w==\"}","w":"\\u0000"}`,
		},
		{"replacement character", map[string]string{"v": "\ufffd"}, `{"v":"�"}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			checkHeaders(t, tc.headers)
			if got, _ := driver.EncodeHeaders(tc.headers); string(got) != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func TestHeadersThatAreNone(t *testing.T) {
	for _, encoded := range []string{
		``, `[]`, `{"a":1}`, `{"a":null}`, `{"a":{}}`, `{"a":{"base64":"!"}}`,
		`{"base64:!":"a"}`, `{"a":"1","base64:YQ==":"2"}`,
	} {
		if got, err := driver.DecodeHeaders([]byte(encoded)); err == nil {
			t.Errorf("DecodeHeaders(%s) = %q, want an error", encoded, got)
		}
	}
}

func FuzzHeaders(f *testing.F) {
	f.Add("name", "value", "other", "\xff\x00")
	f.Add("base64:", "\\u0000", "\x00", "\u2028")
	f.Fuzz(func(t *testing.T, n1, v1, n2, v2 string) {
		checkHeaders(t, map[string]string{n1: v1, n2: v2})
	})
}

func FuzzDecodeHeaders(f *testing.F) {
	for _, s := range []string{`{}`, `{"a":"b"}`, `{"a":{"base64":"/w=="}}`, `{"base64:/w==":"x"}`, `null`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, encoded []byte) {
		headers, err := driver.DecodeHeaders(encoded)
		if err != nil {
			return
		}
		checkHeaders(t, headers)
	})
}

func ExampleEncodeHeaders() {
	encoded, _ := driver.EncodeHeaders(map[string]string{"trace": "abc", "signature": "\xff\x00"})
	fmt.Printf("%s\n", encoded)
	headers, _ := driver.DecodeHeaders(encoded)
	fmt.Printf("%q\n", headers["signature"])
	// Output:
	// {"signature":{"base64":"/wA="},"trace":"abc"}
	// "\xff\x00"
}
