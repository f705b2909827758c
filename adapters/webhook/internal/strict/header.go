package strict

import (
	"errors"
	"fmt"
	"net/http"
)

const (
	// MaxText is the maximum length in bytes of an ID, a type or another short text of a sender.
	MaxText = 255

	// maxHeader is longer than any sender's signature, with room for several signatures while a secret is replaced.
	maxHeader = 4096
)

// Header returns the value of a header that must be there once and not be empty. Of two values, a proxy may check one
// and the application use the other.
func Header(h http.Header, name string) (string, error) {
	switch values := h.Values(name); {
	case len(values) == 0:
		return "", fmt.Errorf("header %s is missing", name)
	case len(values) > 1:
		return "", fmt.Errorf("header %s is there %d times", name, len(values))
	case values[0] == "":
		return "", fmt.Errorf("header %s is empty", name)
	case len(values[0]) > maxHeader:
		return "", fmt.Errorf("header %s has %d bytes, more than %d", name, len(values[0]), maxHeader)
	default:
		return values[0], nil
	}
}

// Token returns an error unless s has 1 to MaxText characters, each of them visible ASCII and none of them in without.
func Token(s, without string) error {
	if s == "" {
		return errors.New("is empty")
	}
	if len(s) > MaxText {
		return fmt.Errorf("has %d bytes, more than %d", len(s), MaxText)
	}
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c > '~' {
			return fmt.Errorf("contains a character that is not visible ASCII, at byte %d", i)
		}
		for j := range len(without) {
			if s[i] == without[j] {
				return fmt.Errorf("contains %q", without[j])
			}
		}
	}
	return nil
}
