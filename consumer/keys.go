package consumer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/txonce/txonce/dedup"
)

// KeyFunc finds a message's natural key. An error, and an empty key, park the message: it is never run without one.
// It must not change the message, and be safe for concurrent use.
type KeyFunc func(msg *Message) (string, error)

// MessageID is the KeyFunc for sources that state Message.ID.
func MessageID(msg *Message) (string, error) {
	if msg.ID == "" {
		return "", fmt.Errorf("%w: its source states no Message.ID; find the key by HeaderKey, JSONKey or KeyOf", dedup.ErrNoKey)
	}
	return msg.ID, nil
}

// HeaderKey takes the header of that name as it is. Names are told apart by case. It panics if name is empty.
func HeaderKey(name string) KeyFunc {
	if name == "" {
		panic("consumer: HeaderKey: empty name")
	}
	return func(msg *Message) (string, error) {
		value, found := msg.Headers[name]
		switch {
		case !found:
			return "", fmt.Errorf("%w: header %q is missing", dedup.ErrNoKey, name)
		case value == "":
			return "", fmt.Errorf("%w: header %q is empty", dedup.ErrNoKey, name)
		}
		return value, nil
	}
}

// JSONKey takes the fields at paths of a JSON object in the payload. The names in a path are joined by dots, as in
// "order.id", and told apart by case; of a repeated name the last one counts. It panics if there is no path or one has an
// empty name.
//
// Strings are taken as they are, numbers by their literal digits: 7 and 7.0 are two keys, so use what producers write in
// one way only, integers or strings. A string that reads as JSON or begins with a quote is written in quotes: the key of
// "7" is "7", that of 7 is 7, and no two values share a key by accident. Several fields are joined by slashes; there a
// string that contains a slash is quoted too. A field that is missing, null, empty, an object or an array is no key.
func JSONKey(paths ...string) KeyFunc {
	fields := splitPaths("JSONKey", paths)
	return func(msg *Message) (string, error) {
		var key []byte
		for i, path := range fields {
			raw, err := jsonField(msg.Payload, path)
			if err != nil {
				return "", fmt.Errorf("%w: %w", dedup.ErrNoKey, err)
			}
			if i > 0 {
				key = append(key, '/')
			}
			if key, err = appendKeyPart(key, raw, len(fields) > 1); err != nil {
				return "", fmt.Errorf("%w: field %q", err, paths[i])
			}
		}
		return string(key), nil
	}
}

// appendKeyPart keeps different values different, also when joined: what begins with a quote is a string up to its closing
// quote, what reads as JSON is no string, and the rest is a string up to the slash.
func appendKeyPart(key []byte, raw json.RawMessage, joined bool) ([]byte, error) {
	switch raw[0] {
	case '{', '[':
		return nil, fmt.Errorf("%w: an object or array is no key", dedup.ErrNoKey)
	case 'n':
		return nil, fmt.Errorf("%w: null is no key", dedup.ErrNoKey)
	case '"':
	default: // a number or a truth value
		return append(key, raw...), nil
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, err
	}
	switch {
	case s == "":
		return nil, fmt.Errorf("%w: empty", dedup.ErrNoKey)
	case strings.ContainsRune(s, utf8.RuneError): // what encoding/json cannot read it replaces: different strings become one
		return nil, fmt.Errorf("%w: not valid Unicode", dedup.ErrBadKey)
	case s[0] == '"', json.Valid([]byte(s)), joined && strings.Contains(s, "/"):
		return appendQuoted(key, s), nil
	}
	return append(key, s...), nil
}

// appendQuoted is part of what keys look like for ever, and so it does not lean on how encoding/json escapes.
func appendQuoted(b []byte, s string) []byte {
	b = append(b, '"')
	for i := range len(s) {
		if s[i] == '"' || s[i] == '\\' {
			b = append(b, '\\')
		}
		b = append(b, s[i])
	}
	return append(b, '"')
}

// KeyOf decodes the payload as JSON into a T and asks key.
func KeyOf[T any](key func(body T) (string, error)) KeyFunc {
	return func(msg *Message) (string, error) {
		var body T
		if err := json.Unmarshal(msg.Payload, &body); err != nil {
			return "", fmt.Errorf("%w: decode payload as %T: %w", dedup.ErrNoKey, body, err)
		}
		return key(body)
	}
}

func splitPaths(who string, paths []string) (fields [][]string) {
	if len(paths) == 0 {
		panic("consumer: " + who + ": no path")
	}
	for _, p := range paths {
		names := strings.Split(p, ".")
		if slices.Contains(names, "") {
			panic(fmt.Sprintf("consumer: %s: path %q has an empty name", who, p))
		}
		fields = append(fields, names)
	}
	return fields
}

// jsonField finds the value at path, without leading space.
func jsonField(payload []byte, path []string) (json.RawMessage, error) {
	raw := json.RawMessage(bytes.TrimLeft(payload, " \t\r\n"))
	for i, name := range path {
		if len(raw) == 0 || raw[0] != '{' {
			if i == 0 {
				return nil, fmt.Errorf("payload is no JSON object")
			}
			return nil, fmt.Errorf("field %q is no object", strings.Join(path[:i], "."))
		}
		var object map[string]json.RawMessage
		if err := json.Unmarshal(raw, &object); err != nil {
			return nil, fmt.Errorf("payload is no JSON object: %w", err)
		}
		value, found := object[name]
		if !found {
			return nil, fmt.Errorf("field %q is missing", strings.Join(path[:i+1], "."))
		}
		raw = value
	}
	return raw, nil
}
