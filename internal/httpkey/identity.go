// Package httpkey says how httpidem names a request in the database, for httpidem and for the command line, which finds
// a request again.
package httpkey

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"strings"
)

// Source is the source of messages that httpidem records for the name of a Guard. It shows that the keys of that name
// are HMACs of requests.
const Source = "HTTP requests"

// Identity is what makes two requests the same one: all of its fields are equal.
type Identity struct{ Name, Principal, Method, Target, Key string }

func (i Identity) fields() []string { return []string{i.Name, i.Principal, i.Method, i.Target, i.Key} }

// Under returns the identity as it is stored in the database: an HMAC, so that without the secret nobody can guess a
// key or a principal.
func (i Identity) Under(secret []byte) string {
	mac := hmac.New(sha256.New, secret)
	Write(mac, "txonce httpidem identity 1", i.fields()...)
	return hex.EncodeToString(mac.Sum(nil))
}

// Derive returns a hash that is the same in each attempt and under each secret, for systems behind the handler.
func (i Identity) Derive(purpose, label string) []byte {
	sum := sha256.New()
	Write(sum, "txonce httpidem "+purpose+" 1", append(i.fields(), label)...)
	return sum.Sum(nil)
}

// Write writes each field with its length, so that ("ab", "c") and ("a", "bc") differ.
func Write(h hash.Hash, purpose string, fields ...string) {
	var size [8]byte
	for _, f := range append([]string{purpose}, fields...) {
		binary.BigEndian.PutUint64(size[:], uint64(len(f)))
		h.Write(size[:])
		h.Write([]byte(f))
	}
}

// IsHash reports whether id has the form of an identity in the database.
func IsHash(id string) bool {
	if len(id) != 2*sha256.Size {
		return false
	}
	_, err := hex.DecodeString(id)
	return err == nil && strings.ToLower(id) == id
}

// Target returns a request's target in origin form, without scheme and host. "/a%2Fb" and "/a/b" are different
// resources, and so are "/a" and "/a/", and two orders of the query.
func Target(uri string) string {
	if strings.HasPrefix(uri, "/") {
		return uri
	}
	_, rest, absolute := strings.Cut(uri, "://")
	if !absolute {
		return uri // "*"
	}
	path := strings.IndexAny(rest, "/?")
	switch {
	case path < 0:
		return "/"
	case rest[path] == '?':
		return "/" + rest[path:]
	}
	return rest[path:]
}
