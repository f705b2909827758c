package strict

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// MaxDepth is how deep JSON may be nested. It is more than any sender nests.
const MaxDepth = 100

var (
	// ErrNotObject says that a text is not a JSON object.
	ErrNotObject = errors.New("not a JSON object")

	// ErrMissing says that a JSON object has no member of a name.
	ErrMissing = errors.New("is missing")

	// ErrOtherCase says that a JSON object has no member of a name, but one whose name differs in case only.
	ErrOtherCase = errors.New("is there in other letters only, which encoding/json takes for the same name")
)

// Document returns an error unless doc is one JSON value in valid UTF-8 whose objects and arrays are nested at most
// MaxDepth deep.
func Document(doc []byte) error {
	if !json.Valid(doc) {
		return errors.New("not valid JSON")
	}
	return check(doc, MaxDepth)
}

// check takes valid JSON.
func check(doc []byte, most int) error {
	if deeper(doc, most) {
		return fmt.Errorf("nested deeper than %d levels", most)
	}
	if !utf8.Valid(doc) { // encoding/json would replace the invalid bytes
		return errors.New("not valid UTF-8")
	}
	return nil
}

// deeper reports whether valid JSON is nested deeper than most, in one pass and without memory.
func deeper(doc []byte, most int) bool {
	depth, inString := 0, false
	for i := 0; i < len(doc); i++ {
		switch c := doc[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{', c == '[':
			if depth++; depth > most {
				return true
			}
		case c == '}', c == ']':
			depth--
		}
	}
	return false
}

// IsContainer reports whether doc is a Document that is an object or array.
func IsContainer(doc []byte) bool {
	if Document(doc) != nil {
		return false
	}
	doc = bytes.TrimLeft(doc, " \t\r\n")
	return doc[0] == '{' || doc[0] == '['
}

// IsObject is IsContainer for objects only.
func IsObject(doc []byte) bool {
	return IsContainer(doc) && bytes.TrimLeft(doc, " \t\r\n")[0] == '{'
}

// Object is a JSON object with its members in their order.
type Object []member

type member struct {
	name  string
	value json.RawMessage
}

// Parse reads a Document that is an object.
func Parse(doc []byte) (Object, error) {
	if !json.Valid(doc) {
		return nil, fmt.Errorf("%w: its syntax is wrong", ErrNotObject)
	}
	o, err := read(doc)
	if err != nil {
		return nil, err
	}
	return o, check(doc, MaxDepth)
}

// read takes valid JSON, such as a part of a Document.
func read(doc []byte) (o Object, err error) {
	dec := json.NewDecoder(bytes.NewReader(doc))
	if begin, err := dec.Token(); err != nil || begin != json.Delim('{') {
		return nil, ErrNotObject
	}
	for dec.More() {
		token, err := dec.Token()
		name, ok := token.(string)
		if err != nil || !ok {
			return nil, ErrNotObject
		}
		m := member{name: name}
		if err := dec.Decode(&m.value); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNotObject, err)
		}
		o = append(o, m)
	}
	return o, nil
}

// Field returns the value of the member that is called wanted. A name that occurs twice is refused, also if the second
// differs only in case: encoding/json takes both for the same field, so that one reader would see one value, and
// another reader the other.
func (o Object) Field(wanted string) (value json.RawMessage, err error) {
	found := ""
	for _, m := range o {
		if !strings.EqualFold(m.name, wanted) {
			continue
		}
		if found != "" {
			return nil, fmt.Errorf("occurs twice, as %.50q and %.50q", found, m.name)
		}
		found, value = m.name, m.value
	}
	switch found {
	case wanted:
		return value, nil
	case "":
		return nil, ErrMissing
	default:
		return nil, ErrOtherCase
	}
}
