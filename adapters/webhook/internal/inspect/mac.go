package inspect

import (
	"crypto/hmac"
	"encoding/base64"
	"errors"
	"fmt"
	"hash"
	"strings"
)

// Signed reports whether one of keys made one of macs over one of contents. Its time does not depend on which of them match.
func Signed(newHash func() hash.Hash, keys, contents, macs [][]byte) bool {
	signed := false
	for _, key := range keys {
		for _, content := range contents {
			mac := hmac.New(newHash, key)
			mac.Write(content)
			sum := mac.Sum(nil)
			for _, m := range macs {
				if hmac.Equal(sum, m) { // no return: it would show which key matched
					signed = true
				}
			}
		}
	}
	return signed
}

// Base64 decodes standard base64 with padding. Unlike encoding/base64 it refuses line breaks.
func Base64(s string) ([]byte, error) {
	if strings.ContainsAny(s, "\r\n") {
		return nil, errors.New("base64 with a line break")
	}
	return base64.StdEncoding.Strict().DecodeString(s)
}

// Secret returns an error, without the secret in it, if s cannot be a secret of at least least bytes.
func Secret(s string, least int) error {
	switch {
	case strings.TrimSpace(s) == "":
		return errors.New("is empty")
	case strings.TrimSpace(s) != s:
		return errors.New("begins or ends with white space")
	case len(s) < least:
		return fmt.Errorf("is shorter than %d bytes", least)
	default:
		return nil
	}
}
