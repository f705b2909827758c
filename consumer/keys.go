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

// KeyFunc finds a message's business key. An error or an empty key parks the message with observe.CauseNoKey. A KeyFunc
// must not change the message, and must be safe for concurrent use.
//
// Keys that contain a time are stored in its order, which makes claims in a large table faster: see dedup.Key.Hash. A
// time is a part of the key, so add one only if it is the same whenever the producer sends the message. Message.Time
// often is not.
type KeyFunc func(msg *Message) (string, error)

// MessageID is a KeyFunc that returns Message.ID, for sources that fill it in.
func MessageID(msg *Message) (string, error) {
	if msg.ID == "" {
		return "", fmt.Errorf("%w: its source fills in no Message.ID; use HeaderKey, JSONKey or KeyOf", dedup.ErrNoKey)
	}
	return msg.ID, nil
}

// HeaderKey returns a KeyFunc that takes the value of a header. The name is case-sensitive. It panics if name is empty.
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

// JSONKey returns a KeyFunc that takes fields of a JSON object in the payload. A path such as "order.id" names a field
// of a nested object. Names are case-sensitive, and if a name is repeated in an object, the last one counts. JSONKey
// panics if there is no path, or if a path contains an empty name.
//
// The key of a string is the string. The key of a number is its text, so 7 and 7.0 are two keys: use integers or
// strings. A string that is valid JSON or begins with a quote is quoted, so that no two values have the same key: the
// key of "7" is "7" with quotes, and the key of 7 is 7. Several fields are joined by slashes, and then a string that
// contains a slash is quoted too. A field that is missing, null, empty, an object or an array is an error.
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

// appendKeyPart appends raw so that different values, also when they are joined, give different keys. A part that
// begins with a quote is a string up to its closing quote. Other parts that are valid JSON are not strings, and the
// rest are strings up to the next slash.
func appendKeyPart(key []byte, raw json.RawMessage, joined bool) ([]byte, error) {
	switch raw[0] {
	case '{', '[':
		return nil, fmt.Errorf("%w: an object or array cannot be a key", dedup.ErrNoKey)
	case 'n':
		return nil, fmt.Errorf("%w: null cannot be a key", dedup.ErrNoKey)
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
	case strings.ContainsRune(s, utf8.RuneError):
		// encoding/json replaces invalid bytes, which makes different strings equal
		return nil, fmt.Errorf("%w: not valid Unicode", dedup.ErrBadKey)
	case s[0] == '"', json.Valid([]byte(s)), joined && strings.Contains(s, "/"):
		return appendQuoted(key, s), nil
	}
	return append(key, s...), nil
}

// appendQuoted must never change, because stored keys depend on it. So it does not use the escaping of encoding/json.
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

// KeyOf returns a KeyFunc that decodes the payload as JSON into a T and calls key with it.
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

// jsonField returns the value at path, without leading space.
func jsonField(payload []byte, path []string) (json.RawMessage, error) {
	raw := json.RawMessage(bytes.TrimLeft(payload, " \t\r\n"))
	for i, name := range path {
		if len(raw) == 0 || raw[0] != '{' {
			if i == 0 {
				return nil, fmt.Errorf("payload is not a JSON object")
			}
			return nil, fmt.Errorf("field %q is not an object", strings.Join(path[:i], "."))
		}
		var object map[string]json.RawMessage
		if err := json.Unmarshal(raw, &object); err != nil {
			return nil, fmt.Errorf("payload is not a JSON object: %w", err)
		}
		value, found := object[name]
		if !found {
			return nil, fmt.Errorf("field %q is missing", strings.Join(path[:i+1], "."))
		}
		raw = value
	}
	return raw, nil
}
