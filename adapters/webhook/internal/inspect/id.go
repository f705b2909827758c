package inspect

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

const maxID = 255

// ID returns an error if id cannot be a sender's id: if it is empty, longer than 255 bytes, or has a character that is not printable.
// The replacement character U+FFFD is refused too: readers of JSON put it where a string was not valid, so that different ids
// would be equal.
func ID(id string) error {
	switch {
	case id == "":
		return errors.New("is empty")
	case len(id) > maxID:
		return fmt.Errorf("has %d bytes, more than %d", len(id), maxID)
	case !utf8.ValidString(id) || strings.ContainsRune(id, utf8.RuneError):
		return errors.New("is not valid UTF-8")
	case strings.ContainsFunc(id, func(r rune) bool { return !unicode.IsPrint(r) }):
		return errors.New("has a character that is not printable")
	default:
		return nil
	}
}
