package strict

import (
	"encoding/base64"
	"errors"
	"strings"
)

// Base64 decodes s, and refuses all but one text for each value: encoding/base64 skips line breaks, and without Strict
// also the bits after the last byte.
func Base64(enc *base64.Encoding, s string) ([]byte, error) {
	if strings.ContainsAny(s, "\r\n") {
		return nil, errors.New("is not base64: it has a line break")
	}
	b, err := enc.Strict().DecodeString(s)
	if err != nil {
		return nil, errors.New("is not base64")
	}
	return b, nil
}
