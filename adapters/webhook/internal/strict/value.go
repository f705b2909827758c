package strict

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// String returns the string that a JSON value is.
func String(value json.RawMessage) (s string, err error) {
	if len(value) == 0 || value[0] != '"' { // json.Unmarshal takes null for an empty string
		return "", errors.New("is not a string")
	}
	if err := json.Unmarshal(value, &s); err != nil {
		return "", errors.New("is not a string")
	}
	return s, nil
}

// Text returns a JSON string that can be part of a key. It refuses other types, an empty or long string, control
// characters, and text that is not Unicode, because encoding/json replaces all invalid bytes by the same character.
func Text(value json.RawMessage) (string, error) {
	s, err := String(value)
	switch {
	case err != nil:
		return "", err
	case s == "":
		return "", errors.New("is empty")
	case len(s) > MaxText:
		return "", fmt.Errorf("has %d bytes, more than %d", len(s), MaxText)
	case strings.ContainsRune(s, utf8.RuneError):
		return "", errors.New("is not Unicode")
	case strings.ContainsFunc(s, unicode.IsControl):
		return "", errors.New("contains a control character")
	default:
		return s, nil
	}
}

var integer = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)

// Scalar returns the string that a JSON value is, or the digits of an integer, which may have any size: a float would
// round it.
func Scalar(value json.RawMessage) (string, error) {
	if integer.Match(value) {
		return string(value), nil
	}
	s, err := String(value)
	if err != nil {
		return "", errors.New("is neither a string nor an integer")
	}
	return s, nil
}
