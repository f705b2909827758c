package strict

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
)

// Secret returns an error unless s can be a shared secret of at least least bytes. The error completes a sentence that
// begins with the name of the Config's field.
func Secret(s string, least int) error {
	switch err := Written(s); {
	case s == "":
		return errors.New("is empty: anybody could make its signatures")
	case strings.TrimSpace(s) == "":
		return errors.New("is only white space: anybody could make its signatures")
	case err != nil:
		return fmt.Errorf("%w: trim it, for example the newline of a file", err)
	case len(s) < least:
		return fmt.Errorf("is shorter than %d bytes", least)
	case strings.Count(s, s[:1]) == len(s):
		return errors.New("is one character again and again: it looks like a placeholder")
	default:
		return nil
	}
}

// Written returns an error if s is empty, or begins or ends with white space, such as the newline of a file. With an
// empty secret, anybody could make its signatures.
func Written(s string) error {
	switch trimmed := strings.TrimSpace(s); {
	case trimmed == "":
		return errors.New("is empty")
	case trimmed != s:
		return errors.New("begins or ends with white space")
	default:
		return nil
	}
}

// Key is Secret for a secret that was decoded: any bytes may be in it.
func Key(key []byte, least int) error {
	switch {
	case len(key) < least || len(key) == 0:
		return fmt.Errorf("has %d bytes, fewer than %d", len(key), max(least, 1))
	case bytes.Count(key, key[:1]) == len(key):
		return errors.New("is one byte again and again: it looks like a placeholder")
	default:
		return nil
	}
}
