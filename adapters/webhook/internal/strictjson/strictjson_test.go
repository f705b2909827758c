package strictjson_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/txonce/txonce/adapters/webhook/internal/strictjson"
)

func TestParseRefuses(t *testing.T) {
	for _, c := range []struct{ name, data, says string }{
		{"nothing", ``, "not JSON"},
		{"an array", `[]`, "not a JSON object"},
		{"null", `null`, "not a JSON object"},
		{"a member twice", `{"id":"a","id":"b"}`, `member "id" occurs twice`},
		{"a member twice, once escaped", `{"id":"a","\u0069d":"b"}`, `member "id" occurs twice`},
		{"something after it", `{} {}`, "something follows"},
		{"a broken end", `{"id":1`, "not JSON"},
		{"invalid UTF-8", "{\"id\":\"\xff\"}", "not valid UTF-8"},
		{"too deep", `{"a":` + strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000) + `}`, "nested deeper"},
		{"a byte order mark", "\ufeff{}", "not JSON"},
	} {
		t.Run("case 71: "+c.name, func(t *testing.T) {
			if _, err := strictjson.Parse([]byte(c.data)); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error %v, want %q", err, c.says)
			}
		})
	}
}

func TestFields(t *testing.T) {
	o, err := strictjson.Parse([]byte(`{"ID":"other","id":"evt_1","n":9007199254740993,"f":1e3,"big":9223372036854775808,"s":"7","b":true,
		"none":null,"lone":"\ud800","brackets":"[[{{\"","data":{"object":{"id":"x"},"twice":{"a":1,"a":1}}}`))
	if err != nil {
		t.Fatal(err)
	}
	text := func(v any, err error) string {
		if err != nil {
			return err.Error()
		}
		return fmt.Sprint(v)
	}
	data, err := o.Object("data")
	if err != nil {
		t.Fatal(err)
	}
	inner, err := data.Object("object")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, got, want string }{
		{"case 71: names are case-sensitive", text(o.String("id")), "evt_1"},
		{"case 71: an integer above 2^53 is exact", text(o.Int("n")), "9007199254740993"},
		{"an exponent", text(o.Int("f")), `member "f" is not an integer of 64 bits`},
		{"an integer above 2^63", text(o.Int("big")), `member "big" is not an integer of 64 bits`},
		{"a string for an integer", text(o.Int("s")), `member "s" is a string, want an integer`},
		{"a bool", text(o.Bool("b")), "true"},
		{"null is missing", text(o.String("none")), `member "none" is missing`},
		{"missing", text(o.Int("nothing")), `member "nothing" is missing`},
		{"a lone surrogate", text(o.String("lone")), `member "lone" is not valid Unicode`},
		{"a nested object", text(inner.String("id")), "x"},
		{"where a member is missing", text(inner.String("no")), `data.object: member "no" is missing`},
		{"a nested member twice", text(data.Object("twice")), `data.twice: member "a" occurs twice`},
		{"no object", text(o.Object("id")), "id: not a JSON object"},
		{"raw bytes", string(o.Raw("f")), "1e3"},
	} {
		if c.got != c.want {
			t.Errorf("%s: %q, want %q", c.name, c.got, c.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"id":"evt_1","data":{"object":{"n":1}}}`), "id")
	f.Add([]byte("{\"a\":\"\\ud800\",\"a\":1}"), "a")
	f.Fuzz(func(t *testing.T, data []byte, name string) {
		o, err := strictjson.Parse(data)
		if err != nil {
			return
		}
		if s, err := o.String(name); err == nil && !utf8.ValidString(s) {
			t.Errorf("%q is not valid UTF-8", s)
		}
		_, _ = o.Int(name)
		_, _ = o.Bool(name)
		if inner, err := o.Object(name); err == nil && !o.Has(name) {
			t.Errorf("an object %v of a missing member", inner)
		}
	})
}
