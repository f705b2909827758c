package strict

import (
	"crypto/hmac"
	"crypto/subtle"
	"hash"
)

// MAC returns the HMAC of parts, one after another.
func MAC(newHash func() hash.Hash, secret []byte, parts ...[]byte) []byte {
	mac := hmac.New(newHash, secret)
	for _, part := range parts {
		mac.Write(part)
	}
	return mac.Sum(nil)
}

// AnyEqual reports whether one of got equals one of want. It compares all of them in constant time, so that the time
// does not tell which secret of several made a signature, nor how much of a forgery is right.
//
// Where a sender writes signatures in one form only, compare that text and not the decoded bytes: then a truncated or
// padded one is never equal.
func AnyEqual[S ~string | ~[]byte](want, got []S) bool {
	equal := 0
	for _, w := range want {
		for _, g := range got {
			equal |= subtle.ConstantTimeCompare([]byte(w), []byte(g))
		}
	}
	return equal == 1
}

// Signed reports whether one of secrets made one of macs over one of contents. It takes the same time whichever of them
// match.
func Signed(newHash func() hash.Hash, secrets, contents, macs [][]byte) bool {
	var want [][]byte
	for _, secret := range secrets {
		for _, content := range contents {
			want = append(want, MAC(newHash, secret, content))
		}
	}
	return AnyEqual(want, macs)
}
