package strict

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// ID returns an error if id cannot be a sender's id: if it is empty, longer than MaxText, or has a character that is
// not printable. The replacement character U+FFFD is refused too: readers of JSON put it where a string was not valid,
// so that different ids would be equal.
func ID(id string) error {
	switch {
	case id == "":
		return errors.New("is empty")
	case len(id) > MaxText:
		return fmt.Errorf("has %d bytes, more than %d", len(id), MaxText)
	case !utf8.ValidString(id) || strings.ContainsRune(id, utf8.RuneError):
		return errors.New("is not valid UTF-8")
	case strings.ContainsFunc(id, func(r rune) bool { return !unicode.IsPrint(r) }):
		return errors.New("has a character that is not printable")
	default:
		return nil
	}
}

const (
	aliasPrefix = "body:"
	bodyHash    = aliasPrefix + "sha256="
)

// NotAlias returns an error if id could be a BodyAlias. IDs and aliases are keys of one kind: with such an ID, somebody
// could make a later event look like a replay. An ID that is a Token without "=" needs no such check.
func NotAlias(id string) error {
	if len(id) >= len(aliasPrefix) && strings.EqualFold(id[:len(aliasPrefix)], aliasPrefix) {
		// a database may ignore case
		return fmt.Errorf("begins with %s, as aliases do", aliasPrefix)
	}
	return nil
}

// BodyAlias returns the alias of an event whose ID is not signed: it is the same for each delivery of the same body to
// the same endpoint and topic. Refuse IDs that contain "=", or those that NotAlias refuses.
func BodyAlias(source, endpoint, topic string, body []byte) string {
	content := sha256.Sum256(body)
	return Alias(bodyHash, "txonce webhook body 1", source, endpoint, topic, string(content[:]))
}

// Alias returns the alias of an event that has these fields. No ID may begin with prefix.
func Alias(prefix string, fields ...string) string {
	var b []byte
	for _, field := range fields {
		b = binary.AppendUvarint(b, uint64(len(field))) // with the lengths, ("ab","c") and ("a","bc") differ
		b = append(b, field...)
	}
	sum := sha256.Sum256(b)
	return prefix + hex.EncodeToString(sum[:])
}
