package strict

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Members are members of a JSON object by their exact names, unlike the fields of a struct, which encoding/json also
// finds by names in other letters. A missing member is nil.
type Members map[string]json.RawMessage

// Select returns the members of a JSON object that have the given names, as Object.Field does. A missing one is no
// error. One that is there in other letters only is an error, because a handler that decodes the object would find it.
func Select(object []byte, names ...string) (Members, error) {
	o, err := Parse(object)
	if err != nil {
		return nil, err
	}
	m := make(Members, len(names))
	for _, name := range names {
		value, err := o.Field(name)
		if errors.Is(err, ErrMissing) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("the member %q %w", name, err)
		}
		m[name] = value
	}
	return m, nil
}

// Has reports whether there is a member of that name that is not null.
func (m Members) Has(name string) bool { return m[name] != nil && string(m[name]) != "null" }

// String returns a string. One that is not Unicode is refused, because encoding/json makes the same text of different
// ones.
func (m Members) String(name string) (string, error) {
	if !m.Has(name) {
		return "", fmt.Errorf("%q %w", name, ErrMissing)
	}
	s, err := String(m[name])
	if err == nil && strings.ContainsRune(s, utf8.RuneError) {
		err = errors.New("is not Unicode")
	}
	if err != nil {
		return "", fmt.Errorf("%q %w", name, err)
	}
	return s, nil
}

// Bool returns true or false.
func (m Members) Bool(name string) (bool, error) {
	switch string(m[name]) {
	case "true":
		return true, nil
	case "false":
		return false, nil
	default:
		return false, fmt.Errorf("%q is missing, or neither true nor false", name)
	}
}

// maxInt is how many digits fit into an int64, whatever they are.
const maxInt = 18

// Int returns a number without sign, fraction and exponent. It is never read as a float, which would change a large
// one.
func (m Members) Int(name string) (int64, error) {
	if !m.Has(name) {
		return 0, fmt.Errorf("%q %w", name, ErrMissing)
	}
	n, err := Digits(string(m[name]), maxInt)
	if err != nil {
		return 0, fmt.Errorf("%q is not an integer: %w", name, err)
	}
	return n, nil
}
