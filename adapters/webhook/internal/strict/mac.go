package strict

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"encoding/hex"
)

// MAC returns the HMAC-SHA256 of parts, one after another.
func MAC(secret []byte, parts ...[]byte) []byte {
	mac := hmac.New(sha256.New, secret)
	for _, part := range parts {
		mac.Write(part)
	}
	return mac.Sum(nil)
}

// AnyEqual reports whether one of got equals one of want. It compares all of them in constant time, so that the time does not
// tell which secret of several made a signature, nor how much of a forgery is right.
//
// Compare the encoded text of signatures and not the decoded bytes: then each signature has one form only, and a truncated or
// padded one is never equal.
func AnyEqual(want, got []string) bool {
	equal := 0
	for _, w := range want {
		for _, g := range got {
			equal |= subtle.ConstantTimeCompare([]byte(w), []byte(g))
		}
	}
	return equal == 1
}

// BodyAlias returns the alias of an event whose ID is not signed: it is the same for each delivery of the same body to the same
// endpoint and topic. It contains "=", which the IDs of such events must not contain.
func BodyAlias(source, endpoint, topic string, body []byte) string {
	var b []byte
	for _, field := range [...]string{"txonce webhook body 1", source, endpoint, topic} {
		b = binary.AppendUvarint(b, uint64(len(field))) // with the lengths, ("ab","c") and ("a","bc") differ
		b = append(b, field...)
	}
	content := sha256.Sum256(body)
	sum := sha256.Sum256(append(b, content[:]...))
	return "body-sha256=" + hex.EncodeToString(sum[:])
}
