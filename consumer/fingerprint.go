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

// FingerprintFunc hashes what of a message must be equal on a redelivery. An error parks the message. It must not change
// the message, and be safe for concurrent use.
type FingerprintFunc func(msg *Message) (dedup.Fingerprint, error)

// WholePayload is the FingerprintFunc for producers that send the same bytes again.
func WholePayload(msg *Message) (dedup.Fingerprint, error) {
	return dedup.FingerprintOf(msg.Payload), nil
}

// NoFingerprint is the FingerprintFunc that takes whatever comes under one key for the same message. A second event under
// an old key is then lost without a trace.
func NoFingerprint(*Message) (dedup.Fingerprint, error) { return dedup.Fingerprint{}, nil }

// JSONFields returns a FingerprintFunc that compares only the fields at paths, named as for JSONKey, of a JSON object in
// the payload. Values are compared as values: how producers indent, escape, order members or write numbers does not count
// (1.50 and 15e-1 are equal), and neither does the difference between a missing field and null. It panics as JSONKey does.
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
			return dedup.Fingerprint{}, fmt.Errorf("consumer: fingerprint: payload is no JSON object: %w", err)
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

// appendCanonical writes v so that equal values, and only they, give equal bytes. Stored fingerprints depend on it.
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

// canonicalNumber writes a JSON number as digits and a power of ten, without zeros at either end: 1.50 as 15e-1. It
// works on the text, because 1e999999999 is a short one and a number of a billion digits.
func canonicalNumber(literal string) string {
	sign, s := "", literal
	if s[0] == '-' {
		sign, s = "-", s[1:]
	}
	exponent := 0
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		n, err := strconv.Atoi(s[i+1:])
		if err != nil || max(n, -n) > 1<<40 || n < -1<<40 {
			return literal // nobody writes it in two ways
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
