package httpkey

import (
	"errors"
	"fmt"
	"strings"
)

// Parse returns the key that a header has as its value, without quotes. A key without quotes is an error if strict is
// true.
func Parse(value string, strict bool) (string, error) {
	if strings.HasPrefix(value, `"`) {
		key, rest, err := parseString(value)
		if err != nil {
			return "", err
		}
		return key, parseParameters(rest)
	}
	if strict && value != "" {
		return "", errors.New("the key is not in double quotes")
	}
	for i := range len(value) {
		if c := value[i]; c <= ' ' || c > '~' || c == ',' {
			return "", fmt.Errorf("the key has the byte %#x: want visible ASCII characters, without a comma unless the key is in double quotes", c)
		}
	}
	return value, nil
}

// parseString reads a String of RFC 9651 from the beginning of s.
func parseString(s string) (text, rest string, err error) {
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			return b.String(), s[i+1:], nil
		case c == '\\':
			i++
			if i == len(s) || s[i] != '"' && s[i] != '\\' {
				return "", "", errors.New(`the key has a backslash that is followed by neither " nor \`)
			}
			b.WriteByte(s[i])
		case c < ' ' || c > '~':
			return "", "", fmt.Errorf("the key has the byte %#x: want printable ASCII characters", c)
		default:
			b.WriteByte(c)
		}
	}
	return "", "", errors.New("the key has no closing double quote")
}

// parseParameters accepts the parameters that RFC 9651 allows behind an Item. They mean nothing here.
func parseParameters(s string) error {
	for s != "" {
		if s[0] != ';' {
			return errors.New("there is something behind the key: send one key")
		}
		s = strings.TrimLeft(s[1:], " ")
		end := strings.IndexFunc(s, func(c rune) bool { return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyz0123456789_-.*", c) })
		if end < 0 {
			end = len(s)
		}
		if end == 0 || strings.ContainsRune("0123456789_-.", rune(s[0])) {
			return errors.New("a parameter behind the key has no name")
		}
		s = s[end:]
		if !strings.HasPrefix(s, "=") {
			continue
		}
		if s = s[1:]; strings.HasPrefix(s, `"`) {
			var err error
			if _, s, err = parseString(s); err != nil {
				return err
			}
			continue
		}
		end = strings.IndexFunc(s, func(c rune) bool { return c <= ' ' || c > '~' || strings.ContainsRune(`;,"`, c) })
		if end < 0 {
			end = len(s)
		}
		if end == 0 {
			return errors.New("a parameter behind the key has no value")
		}
		s = s[end:]
	}
	return nil
}
