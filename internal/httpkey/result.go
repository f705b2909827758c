package httpkey

import (
	"crypto/sha256"
	"encoding/binary"
)

// A stored result begins with the version of its schema, the algorithm of its fingerprint, the fingerprint, and whether
// the rest is sealed. The rest is a response: its status, its headers and its body.
const (
	SchemaVersion = 1
	HMACSHA256    = 1 // of Config.Fingerprint's content
	Plain         = 0
	Sealed        = 1

	HeadSize = 3 + sha256.Size
)

// Response is what a stored result says without the secret.
type Response struct {
	Bytes  int  // of the whole result
	Status int  // 0: it is sealed
	Sealed bool // Config.Seal has encrypted it
}

// ReadResponse returns what a stored result says. ok is false if this version cannot read it.
func ReadResponse(result []byte) (r Response, ok bool) {
	if len(result) <= HeadSize || result[0] != SchemaVersion {
		return r, false
	}
	r.Bytes = len(result)
	switch result[HeadSize-1] {
	case Sealed:
		r.Sealed = true
		return r, true
	case Plain:
		status, size := binary.Uvarint(result[HeadSize:])
		r.Status = int(status)
		return r, size > 0 && status >= 200 && status <= 999
	}
	return r, false
}
