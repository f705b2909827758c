package strict

import (
	"errors"
	"fmt"
	"strings"
)

// Secret returns an error unless s can be a shared secret of at least least bytes. The error completes a sentence that begins with
// the name of the Config's field.
func Secret(s string, least int) error {
	switch trimmed := strings.TrimSpace(s); {
	case s == "":
		return errors.New("is empty: anybody could make its signatures")
	case trimmed == "":
		return errors.New("is only white space: anybody could make its signatures")
	case trimmed != s:
		return errors.New("begins or ends with white space: trim it, for example the newline of a file")
	case len(s) < least:
		return fmt.Errorf("is shorter than %d bytes", least)
	case strings.Count(s, s[:1]) == len(s):
		return errors.New("is one character again and again: it looks like a placeholder")
	default:
		return nil
	}
}
