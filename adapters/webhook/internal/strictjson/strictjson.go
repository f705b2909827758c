// Package strictjson reads the fields of a JSON object so that every reader of the same bytes finds the same values.
//
// encoding/json takes the member "ID" for a field named id, and the last one of several members with the same name. Another program, or
// another version of a sender, may take the first one. A forged or damaged event could then have one ID here and another one there.
package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// MaxDepth is how deep objects and arrays may be nested.
const MaxDepth = 100

// Object is a JSON object. Names are case-sensitive. It is safe for concurrent use.
type Object struct {
	at      string // where it is, for errors: "" or "data.object"
	members map[string]json.RawMessage
}

// Parse reads data, which must be one JSON object: valid UTF-8, not deeper than MaxDepth, and with nothing after it. An object with two
// members of the same name is refused. That is checked in nested objects when Object reads them.
func Parse(data []byte) (Object, error) {
	if !utf8.Valid(data) {
		return Object{}, errors.New("not valid UTF-8")
	}
	if deeper(data, MaxDepth) {
		return Object{}, fmt.Errorf("nested deeper than %d", MaxDepth)
	}
	return parse(data, "")
}

// deeper reports whether data opens more than most brackets that it does not close. Brackets in strings do not count.
func deeper(data []byte, most int) bool {
	depth, inString := 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			if depth++; depth > most {
				return true
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return false
}

func parse(data []byte, at string) (Object, error) {
	o := Object{at: at, members: map[string]json.RawMessage{}}
	dec := json.NewDecoder(bytes.NewReader(data))
	if start, err := dec.Token(); err != nil {
		return Object{}, fmt.Errorf("%snot JSON: %w", prefix(at), err)
	} else if start != json.Delim('{') {
		return Object{}, fmt.Errorf("%snot a JSON object", prefix(at))
	}
	for dec.More() {
		token, err := dec.Token()
		if err != nil {
			return Object{}, fmt.Errorf("%snot JSON: %w", prefix(at), err)
		}
		name, _ := token.(string) // within an object it is one
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return Object{}, fmt.Errorf("%smember %q: %w", prefix(at), name, err)
		}
		if _, twice := o.members[name]; twice {
			return Object{}, fmt.Errorf("%smember %q occurs twice", prefix(at), name)
		}
		o.members[name] = value
	}
	if _, err := dec.Token(); err != nil {
		return Object{}, fmt.Errorf("%snot JSON: %w", prefix(at), err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return Object{}, fmt.Errorf("%ssomething follows the object", prefix(at))
	}
	return o, nil
}

func prefix(at string) string {
	if at == "" {
		return ""
	}
	return at + ": "
}

// Has reports whether there is a member called name that is not null.
func (o Object) Has(name string) bool {
	raw, found := o.members[name]
	return found && string(raw) != "null"
}

// Raw returns the bytes of a member, or nil.
func (o Object) Raw(name string) json.RawMessage { return o.members[name] }

// String returns a member that is a string. A string with bytes or escapes that are not Unicode is refused, because encoding/json
// makes the same text of different ones.
func (o Object) String(name string) (s string, err error) {
	if err := o.decode(name, &s); err != nil {
		return "", err
	}
	if strings.ContainsRune(s, utf8.RuneError) {
		return "", fmt.Errorf("%smember %q is not valid Unicode", prefix(o.at), name)
	}
	return s, nil
}

// Bool returns a member that is true or false.
func (o Object) Bool(name string) (b bool, err error) {
	err = o.decode(name, &b)
	return b, err
}

// Int returns a member that is an integer of at most 64 bits, written without fraction and exponent. It never becomes a float.
func (o Object) Int(name string) (int64, error) {
	var number json.Number
	if raw := o.members[name]; len(raw) > 0 && raw[0] == '"' { // json.Number also takes a string
		return 0, fmt.Errorf("%smember %q is a string, want an integer", prefix(o.at), name)
	}
	if err := o.decode(name, &number); err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(string(number), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%smember %q is not an integer of 64 bits", prefix(o.at), name)
	}
	return n, nil
}

// Object returns a member that is an object.
func (o Object) Object(name string) (Object, error) {
	if !o.Has(name) {
		return Object{}, fmt.Errorf("%smember %q is missing", prefix(o.at), name)
	}
	at := name
	if o.at != "" {
		at = o.at + "." + name
	}
	return parse(o.members[name], at)
}

func (o Object) decode(name string, v any) error {
	if !o.Has(name) {
		return fmt.Errorf("%smember %q is missing", prefix(o.at), name)
	}
	if err := json.Unmarshal(o.members[name], v); err != nil {
		return fmt.Errorf("%smember %q: %w", prefix(o.at), name, err)
	}
	return nil
}
