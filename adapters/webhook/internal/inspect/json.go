package inspect

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// maxDepth is deeper than any sender's events.
const maxDepth = 100

// ErrMissing says that a JSON document has no value at a path.
var ErrMissing = errors.New("is missing")

// Document returns an error unless doc is one JSON value in valid UTF-8 whose objects and arrays are nested at most 100 deep.
func Document(doc []byte) error {
	if !utf8.Valid(doc) { // encoding/json would replace the invalid bytes
		return errors.New("not valid UTF-8")
	}
	if depth(doc) > maxDepth {
		return fmt.Errorf("objects and arrays are nested more than %d deep", maxDepth)
	}
	if !json.Valid(doc) {
		return errors.New("not valid JSON")
	}
	return nil
}

// depth returns how deep the objects and arrays of doc are nested. It is right for valid JSON.
func depth(doc []byte) (most int) {
	now, inString := 0, false
	for i := 0; i < len(doc); i++ {
		switch c := doc[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			now++
			most = max(most, now)
		case c == '}' || c == ']':
			now--
		}
	}
	return most
}

// Object is a JSON object that is (part of) a Document, with its fields in their order.
type Object []Field

// Field is a field of an Object.
type Field struct {
	Name  string
	Value json.RawMessage
}

// ReadObject reads the object that doc is.
func ReadObject(doc []byte) (o Object, err error) {
	dec := json.NewDecoder(bytes.NewReader(doc))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.New("is not in an object")
	}
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return nil, err
		}
		f := Field{}
		f.Name, _ = t.(string)
		if err := dec.Decode(&f.Value); err != nil {
			return nil, err
		}
		o = append(o, f)
	}
	return o, nil
}

// Field returns the value of a name. The error is ErrMissing if there is none. A name that occurs twice is refused, also if the second
// differs only in case: encoding/json takes both for the same field.
func (o Object) Field(name string) (value json.RawMessage, err error) {
	found := ""
	for _, f := range o {
		if !strings.EqualFold(f.Name, name) {
			continue
		}
		if found != "" {
			return nil, fmt.Errorf("occurs twice, as %q and %q", found, f.Name)
		}
		found, value = f.Name, f.Value
	}
	if found != name {
		return nil, ErrMissing
	}
	return value, nil
}

// Lookup returns the value at a path, which names a field of an object in an object in … the Document doc. An empty path is doc itself.
func Lookup(doc []byte, path []string) (json.RawMessage, error) {
	for i, name := range path {
		object, err := ReadObject(doc)
		if err != nil {
			return nil, fmt.Errorf("%q %w", strings.Join(path[:i+1], "."), err)
		}
		value, err := object.Field(name)
		if err != nil {
			return nil, fmt.Errorf("%q %w", strings.Join(path[:i+1], "."), err)
		}
		doc = value
	}
	return doc, nil
}

// Items returns the elements of the array doc, which is (part of) a Document.
func Items(doc []byte) ([]json.RawMessage, error) {
	if doc = bytes.TrimLeft(doc, " \t\r\n"); len(doc) == 0 || doc[0] != '[' { // json.Unmarshal takes null for an array
		return nil, errors.New("is not an array")
	}
	var items []json.RawMessage
	if err := json.Unmarshal(doc, &items); err != nil {
		return nil, err
	}
	return items, nil
}

// String returns the string that the JSON value raw is.
func String(raw json.RawMessage) (s string, err error) {
	if len(raw) == 0 || raw[0] != '"' {
		return "", errors.New("is not a string")
	}
	err = json.Unmarshal(raw, &s)
	return s, err
}

var integer = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)

// Text returns the string that the JSON value raw is, or the digits of an integer, which may have any size.
func Text(raw json.RawMessage) (string, error) {
	if integer.Match(raw) {
		return string(raw), nil
	}
	s, err := String(raw)
	if err != nil {
		return "", errors.New("is neither a string nor an integer")
	}
	return s, nil
}

// Path splits a path such as "data.id". It refuses empty names.
func Path(path string) ([]string, error) {
	names := strings.Split(path, ".")
	for _, name := range names {
		if name == "" {
			return nil, fmt.Errorf("is %q: want names of fields with dots between them", path)
		}
	}
	return names, nil
}

// IsContainer reports whether doc is a JSON object or array.
func IsContainer(doc []byte) bool {
	if Document(doc) != nil {
		return false
	}
	doc = bytes.TrimLeft(doc, " \t\r\n")
	return doc[0] == '{' || doc[0] == '['
}
