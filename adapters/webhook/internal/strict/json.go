package strict

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxDepth is how deep JSON may be nested.
const MaxDepth = 100

// ErrNotObject says that a text is not a JSON object.
var ErrNotObject = errors.New("not a JSON object")

// Members returns the members of a JSON object that have the given names. It refuses an object with two names that
// encoding/json, which ignores case, takes for the same of these names: the first reader would see one value, and the second
// reader the other.
func Members(object []byte, names ...string) (map[string]json.RawMessage, error) {
	if !json.Valid(object) {
		return nil, fmt.Errorf("%w: its syntax is wrong", ErrNotObject)
	}
	dec := json.NewDecoder(bytes.NewReader(object))
	if begin, err := dec.Token(); err != nil || begin != json.Delim('{') {
		return nil, ErrNotObject
	}
	if err := checkDepth(object); err != nil {
		return nil, err
	}
	members, seen := make(map[string]json.RawMessage, len(names)), make(map[string]bool, len(names))
	for dec.More() {
		token, err := dec.Token()
		name, ok := token.(string)
		if err != nil || !ok {
			return nil, ErrNotObject
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNotObject, err)
		}
		for _, wanted := range names {
			if !strings.EqualFold(name, wanted) {
				continue
			}
			if seen[wanted] {
				return nil, fmt.Errorf("the JSON object has two members %q, ignoring case", wanted)
			}
			seen[wanted] = true
			if name == wanted {
				members[wanted] = value
			}
		}
	}
	return members, nil
}

// checkDepth takes valid JSON.
func checkDepth(object []byte) error {
	depth, inString := 0, false
	for i := 0; i < len(object); i++ {
		switch c := object[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{', c == '[':
			if depth++; depth > MaxDepth {
				return fmt.Errorf("the JSON is nested deeper than %d levels", MaxDepth)
			}
		case c == '}', c == ']':
			depth--
		}
	}
	return nil
}

// Text returns a JSON string that can be part of a key. It refuses other types, an empty or long string, control characters, and
// what is not Unicode, because encoding/json replaces all of the latter by the same character.
func Text(value json.RawMessage) (string, error) {
	if len(value) == 0 || value[0] != '"' {
		return "", errors.New("want a string")
	}
	var s string
	if err := json.Unmarshal(value, &s); err != nil {
		return "", errors.New("want a string")
	}
	switch {
	case s == "":
		return "", errors.New("is empty")
	case len(s) > MaxText:
		return "", fmt.Errorf("has %d bytes, more than %d", len(s), MaxText)
	case strings.ContainsRune(s, utf8.RuneError):
		return "", errors.New("is not Unicode")
	case strings.ContainsFunc(s, unicode.IsControl):
		return "", errors.New("contains a control character")
	default:
		return s, nil
	}
}
