package consumer

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/txonce/txonce/dedup"
)

// FingerprintFunc hashes the content of a message that is the same on every delivery. An error parks the message with
// observe.CauseUndecodable. A FingerprintFunc must not change the message, and must be safe for concurrent use.
type FingerprintFunc func(msg *Message) (dedup.Fingerprint, error)

// wholePayload is the default FingerprintFunc.
func wholePayload(msg *Message) (dedup.Fingerprint, error) {
	return dedup.FingerprintOf(msg.Payload), nil
}

// NoFingerprint is a FingerprintFunc that takes all messages with one key for the same message. A second event with a
// known key is then lost without a log line.
func NoFingerprint(*Message) (dedup.Fingerprint, error) { return dedup.Fingerprint{}, nil }

// JSONFields returns a FingerprintFunc that hashes only some fields of a JSON object in the payload. Paths are written
// as for JSONKey. Equal values have equal hashes: indentation, escapes, the order of members and the notation of
// numbers do not matter (1.50 and 15e-1 are equal). A missing field equals null. It panics as JSONKey does.
func JSONFields(paths ...string) FingerprintFunc {
	fields := splitPaths("JSONFields", paths)
	return func(msg *Message) (dedup.Fingerprint, error) {
		var body map[string]any
		dec := json.NewDecoder(bytes.NewReader(msg.Payload))
		dec.UseNumber()
		err := dec.Decode(&body)
		if _, end := dec.Token(); err == nil && (body == nil || end != io.EOF) {
			err = errors.New("it is null, or something follows it")
		}
		if err != nil {
			return dedup.Fingerprint{}, fmt.Errorf("consumer: fingerprint: payload is not a JSON object: %w", err)
		}
		var content []byte
		for _, path := range fields {
			content = appendCanonical(content, fieldAt(body, path))
		}
		return dedup.FingerprintOf(content), nil
	}
}

func fieldAt(v any, path []string) any {
	for _, name := range path {
		object, _ := v.(map[string]any)
		v = object[name]
	}
	return v
}

// appendCanonical appends v so that two values give equal bytes only if they are equal. Stored fingerprints depend on
// it.
func appendCanonical(b []byte, v any) []byte {
	switch v := v.(type) {
	case bool:
		return append(b, 'b', strconv.FormatBool(v)[0])
	case json.Number:
		return appendSized(append(b, 'n'), canonicalNumber(string(v)))
	case string:
		return appendSized(append(b, 's'), v)
	case []any:
		b = binary.AppendUvarint(append(b, 'a'), uint64(len(v)))
		for _, e := range v {
			b = appendCanonical(b, e)
		}
		return b
	case map[string]any:
		b = binary.AppendUvarint(append(b, 'o'), uint64(len(v)))
		for _, name := range slices.Sorted(maps.Keys(v)) {
			b = appendCanonical(appendSized(b, name), v[name])
		}
		return b
	default:
		return append(b, '0')
	}
}

func appendSized(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// canonicalNumber returns a JSON number as digits and a power of ten, without zeros at either end: 1.50 as 15e-1. It
// works on the text, because 1e999999999 is a short text but a number with a billion digits.
func canonicalNumber(literal string) string {
	sign, s := "", literal
	if s[0] == '-' {
		sign, s = "-", s[1:]
	}
	exponent := 0
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		n, err := strconv.Atoi(s[i+1:])
		if err != nil || max(n, -n) > 1<<40 || n < -1<<40 {
			return literal // such a number is not expected in two notations
		}
		s, exponent = s[:i], n
	}
	whole, fraction, _ := strings.Cut(s, ".")
	exponent -= len(fraction)
	digits := strings.TrimLeft(whole+fraction, "0")
	if digits == "" {
		return "0"
	}
	trimmed := strings.TrimRight(digits, "0")
	return sign + trimmed + "e" + strconv.Itoa(exponent+len(digits)-len(trimmed))
}
