package strict_test

import (
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/adapters/webhook/internal/strict"
)

func TestHeader(t *testing.T) {
	for _, test := range []struct {
		name   string
		values []string
		wrong  string
	}{
		{"once", []string{"a"}, ""},
		{"missing", nil, "missing"},
		{"empty", []string{""}, "empty"},
		{"twice", []string{"a", "a"}, "2 times"},
		{"long", []string{strings.Repeat("a", 4097)}, "4097 bytes"},
	} {
		t.Run("case 47: "+test.name, func(t *testing.T) {
			got, err := strict.Header(http.Header{"X-Sig": test.values}, "X-Sig")
			if test.wrong == "" && (err != nil || got != "a") || test.wrong != "" && (err == nil ||
				!strings.Contains(err.Error(), test.wrong)) {
				t.Errorf("Header = %q, %v; want an error with %q", got, err, test.wrong)
			}
		})
	}
}

func TestToken(t *testing.T) {
	for _, test := range []struct {
		name, s, without string
		ok               bool
	}{
		{"visible ASCII", "msg_1-a~!", "", true},
		{"the longest", strings.Repeat("a", strict.MaxText), "", true},
		{"case 72: too long", strings.Repeat("a", strict.MaxText+1), "", false},
		{"case 72: NUL", "a\x00b", "", false},
		{"empty", "", "", false},
		{"space", "a b", "", false},
		{"DEL", "a\x7f", "", false},
		{"newline", "a\n", "", false},
		{"not ASCII", "ä", "", false},
		{"case 55: with a dot", "a.b", ".", false},
		{"a dot is allowed otherwise", "a.b", "=", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			if err := strict.Token(test.s, test.without); (err == nil) != test.ok {
				t.Errorf("Token(%q, %q) = %v", test.s, test.without, err)
			}
		})
	}
}

func TestUnixSeconds(t *testing.T) {
	for _, test := range []struct {
		digits string
		want   int64 // -1: refused
	}{
		{"0", 0},
		{"1700000000", 1700000000},
		{"99999999999", 99999999999},
		{"0001", 1},
		{"", -1},
		{"-1", -1},
		{"+1", -1},
		{"1.5", -1},
		{"1e9", -1},
		{" 1", -1},
		{"1 ", -1},
		{"0x10", -1},
		{"1_000", -1},
		{"١", -1},
		{"100000000000", -1},
		{"4611686018427387904", -1},
		{strings.Repeat("9", 100), -1},
		{`"1"`, -1},
		{"null", -1},
	} {
		t.Run("E22: "+test.digits, func(t *testing.T) {
			got, err := strict.UnixSeconds(test.digits)
			if test.want < 0 && err == nil || test.want >= 0 && (err != nil || got.Unix() != test.want) {
				t.Errorf("UnixSeconds = %v, %v", got, err)
			}
			if err == nil && (got.Year() < 1970 || got.Year() > 9000) {
				t.Errorf("the year %d cannot be kept by all databases", got.Year())
			}
		})
	}
}

func TestRecent(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	for _, test := range []struct {
		name   string
		signed time.Time
		ok     bool
	}{
		{"case 48: now", now, true},
		{"case 48: as old as allowed", now.Add(-5 * time.Minute), true},
		{"case 48: older", now.Add(-5*time.Minute - time.Nanosecond), false},
		{"case 48: as far ahead as allowed", now.Add(5 * time.Minute), true},
		{"case 48: further ahead", now.Add(5*time.Minute + time.Nanosecond), false},
		{"E22: 2^62 seconds", time.Unix(1<<62, 0), false},
		{"E22: -2^62 seconds", time.Unix(-1<<62, 0), false},
		{"E22: the difference is the smallest Duration", now.Add(math.MaxInt64).Add(time.Hour), false},
		{"zero", time.Time{}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if err := strict.Recent(test.signed, now, 5*time.Minute); (err == nil) != test.ok {
				t.Errorf("Recent = %v", err)
			}
		})
	}
}

func TestTolerance(t *testing.T) {
	for _, test := range []struct {
		configured, want time.Duration // 0: refused
	}{
		{0, 5 * time.Minute},
		{time.Second, time.Second},
		{time.Hour, time.Hour},
		{-1, 0},
		{time.Millisecond, 0},
		{time.Hour + 1, 0},
		{math.MaxInt64, 0},
		{math.MinInt64, 0},
	} {
		got, err := strict.Tolerance(test.configured)
		if got != test.want || (err == nil) != (test.want != 0) {
			t.Errorf("Tolerance(%v) = %v, %v; want %v", test.configured, got, err, test.want)
		}
	}
}

func TestSecret(t *testing.T) {
	for _, test := range []struct {
		name, secret string
		ok           bool
	}{
		{"long enough", "0123456789abcdef", true},
		{"case 52: empty", "", false},
		{"case 52: white space", "                    ", false},
		{"case 52: short", "0123456789abcde", false},
		{"case 52: with a newline", "0123456789abcdef\n", false},
		{"case 52: with a space before it", " 0123456789abcdef", false},
		{"case 52: a placeholder", "xxxxxxxxxxxxxxxxxxxx", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := strict.Secret(test.secret, 16)
			if (err == nil) != test.ok {
				t.Errorf("Secret(%q) = %v", test.secret, err)
			}
			if err != nil && strings.TrimSpace(test.secret) != "" &&
				strings.Contains(err.Error(), strings.TrimSpace(test.secret)) {
				t.Errorf("the error contains the secret: %v", err)
			}
		})
	}
}

func TestAnyEqual(t *testing.T) {
	for _, test := range []struct {
		name      string
		want, got []string
		equal     bool
	}{
		{"one of each", []string{"ab"}, []string{"ab"}, true},
		{"case 53: the last of several", []string{"x", "ab"}, []string{"y", "z", "ab"}, true},
		{"case 53: two pairs are equal", []string{"ab", "cd"}, []string{"ab", "cd"}, true},
		{"no secret", nil, []string{"ab", ""}, false},
		{"no signature", []string{"ab"}, nil, false},
		{"case 51: a prefix", []string{"abcd"}, []string{"abc", "a", ""}, false},
		{"case 51: longer", []string{"abcd"}, []string{"abcde", "abcdabcd"}, false},
		{"other case", []string{"abcd"}, []string{"ABCD"}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if equal := strict.AnyEqual(test.want, test.got); equal != test.equal {
				t.Errorf("AnyEqual = %v", equal)
			}
		})
	}
}

func TestBodyAlias(t *testing.T) {
	seen := map[string]string{}
	for _, test := range []struct{ name, source, endpoint, topic, body string }{
		{"first", "s", "e", "t", "b"},
		{"other source", "s2", "e", "t", "b"},
		{"E17: other endpoint", "s", "e2", "t", "b"},
		{"E17: other topic", "s", "e", "t2", "b"},
		{"other body", "s", "e", "t", "b2"},
		{"fields that join to the same", "s", "et", "", "b"},
		{"fields that join to the same, again", "se", "", "t", "b"},
		{"empty body", "s", "e", "t", ""},
	} {
		alias := strict.BodyAlias(test.source, test.endpoint, test.topic, []byte(test.body))
		if other, there := seen[alias]; there {
			t.Errorf("%s has the alias of %s", test.name, other)
		}
		seen[alias] = test.name
		if again := strict.BodyAlias(test.source, test.endpoint, test.topic, []byte(test.body)); again != alias {
			t.Errorf("%s: the alias changes", test.name)
		}
		if strict.Token(alias, "") != nil || strict.Token(alias, "=") == nil || strict.NotAlias(alias) == nil ||
			strict.NotAlias(strings.ToUpper(alias)) == nil {
			t.Errorf("the alias %q could be an ID", alias)
		}
	}
}

func TestSelect(t *testing.T) {
	deep := func(n int) string { return strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n) }
	for _, test := range []struct {
		name, object string
		want         map[string]string // nil: refused
		notObject    bool
	}{
		{
			"all", `{"id":"a","n":12345678901234567890,"x":[{"id":"b"}]}`,
			map[string]string{"id": `"a"`, "n": "12345678901234567890"},
			false,
		},
		{"none", `{}`, map[string]string{}, false},
		{"white space", " {\n\"id\" : \"a\" } ", map[string]string{"id": `"a"`}, false},
		{"a name with an escape", `{"\u0069d":"a"}`, map[string]string{"id": `"a"`}, false},
		{"braces in a string", `{"id":"}}{{[[\"\\","n":1}`, map[string]string{"id": `"}}{{[[\"\\"`, "n": "1"}, false},
		{"only in other case", `{"ID":"a"}`, nil, false},
		{"invalid UTF-8", "{\"id\":\"a\xff\"}", nil, false},
		{"case 71: twice", `{"id":"a","id":"b"}`, nil, false},
		{"case 71: twice, equal", `{"id":"a","id":"a"}`, nil, false},
		{"case 71: in other case", `{"id":"a","ID":"b"}`, nil, false},
		{"case 71: in other case first", `{"ID":"b","id":"a"}`, nil, false},
		{"case 71: with an escape", `{"id":"a","\u0049d":"b"}`, nil, false},
		{"case 71: a letter that folds to i's neighbour k", `{"k":"a","` + "\u212a" + `":"b"}`, nil, false},
		{"case 71: another name twice", `{"x":1,"x":2,"id":"a"}`, map[string]string{"id": `"a"`}, false},
		{"case 71: as deep as allowed", deep(strict.MaxDepth), map[string]string{}, false},
		{"case 71: too deep", deep(strict.MaxDepth + 1), nil, false},
		{"case 71: 9,999 levels", deep(9999), nil, false},
		{"case 71: 20,000 levels", deep(20000), nil, true},
		{"case 71: 20,000 arrays", `{"a":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `}`, nil, true},
		{"an array", `[{"id":"a"}]`, nil, true},
		{"null", `null`, nil, true},
		{"empty", ``, nil, true},
		{"two values", `{"id":"a"}{"id":"b"}`, nil, true},
		{"cut", `{"id":"a"`, nil, true},
		{"case 49: with a byte order mark", "\ufeff" + `{"id":"a"}`, nil, true},
		{"a comma too many", `{"id":"a",}`, nil, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := strict.Select([]byte(test.object), "id", "n", "k")
			if test.want == nil {
				if err == nil || errors.Is(err, strict.ErrNotObject) != test.notObject {
					t.Errorf("Select = %q, %v", got, err)
				}
				return
			}
			members := map[string]string{}
			for name, value := range got {
				members[name] = string(value)
			}
			if diff := cmp.Diff(test.want, members); err != nil || diff != "" {
				t.Errorf("Select: %v (-want +got)\n%s", err, diff)
			}
		})
	}
}

func TestText(t *testing.T) {
	for _, test := range []struct {
		name, value, want string // want "": refused
	}{
		{"a string", `"evt_1"`, "evt_1"},
		{"escapes", `"\u0065vt\/1"`, "evt/1"},
		{"not ASCII", `"ä"`, "ä"},
		{"missing", ``, ""},
		{"empty", `""`, ""},
		{"null", `null`, ""},
		{"case 71: a number, which has several forms", `9007199254740993`, ""},
		{"case 71: invalid UTF-8", "\"a\xff\"", ""},
		{"case 71: half of a surrogate pair", `"a\ud800"`, ""},
		{"case 71: the replacement character itself", `"a\ufffd"`, ""},
		{"case 72: NUL", `"a\u0000b"`, ""},
		{"case 72: a control character", `"a\nb"`, ""},
		{"case 72: too long", `"` + strings.Repeat("a", strict.MaxText+1) + `"`, ""},
		{"the longest", `"` + strings.Repeat("a", strict.MaxText) + `"`, strings.Repeat("a", strict.MaxText)},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := strict.Text(json.RawMessage(test.value))
			if got != test.want || (err == nil) != (test.want != "") {
				t.Errorf("Text = %q, %v; want %q", got, err, test.want)
			}
		})
	}
}

// FuzzSelect compares with encoding/json: what Select returns is what a handler that decodes the body sees.
func FuzzSelect(f *testing.F) {
	for _, seed := range []string{
		`{"id":"a","type":"t"}`, `{"id":1,"ID":2}`, `{"\u0069d":null}`, `[{}]`, `{"id":{"id":["}"]}}`,
		"{\"i\xff\":1}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, object []byte) {
		got, err := strict.Select(object, "id")
		if err != nil {
			return
		}
		var handler struct {
			ID json.RawMessage `json:"id"`
		}
		if err := json.Unmarshal(object, &handler); err != nil {
			t.Fatalf("Select accepts %q, encoding/json does not: %v", object, err)
		}
		if id, there := got["id"]; there && string(id) != string(handler.ID) {
			t.Fatalf("Select: id = %s, encoding/json: %s", id, handler.ID)
		}
		var twice map[string]json.RawMessage
		if err := json.Unmarshal(object, &twice); err != nil {
			t.Fatalf("not an object: %q", object)
		}
	})
}

func FuzzText(f *testing.F) {
	f.Add([]byte(`"evt_1"`))
	f.Add([]byte(`"\ud83d\ude00"`))
	f.Fuzz(func(t *testing.T, value []byte) {
		if !json.Valid(value) {
			return
		}
		s, err := strict.Text(value)
		if err != nil {
			return
		}
		// A text that is accepted survives being written and read again, so that no other text is taken for it.
		raw, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		again, err := strict.Text(raw)
		if err != nil || again != s {
			t.Errorf("%q was accepted as %q, and then read as %q, %v", value, s, again, err)
		}
	})
}
