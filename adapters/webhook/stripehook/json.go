package stripehook

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// maxDepth is far more than Stripe nests, and far less than encoding/json allows.
const maxDepth = 200

// checkDepth refuses a text that nests too deep, in one pass and without memory.
func checkDepth(text []byte) error {
	depth, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{', c == '[':
			if depth++; depth > maxDepth {
				return fmt.Errorf("it is nested deeper than %d", maxDepth)
			}
		case c == '}', c == ']':
			depth--
		}
	}
	return nil
}

// fields are the wanted members of a JSON object. A missing member is nil.
type fields map[string]json.RawMessage

// members reads the wanted members of one JSON object. It refuses an object in which a wanted name occurs twice, or once with other
// letters that encoding/json takes for the same name (ID for id): a handler could read another value than we do.
func members(text []byte, wanted ...string) (fields, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	if start, err := dec.Token(); err != nil || start != json.Delim('{') {
		return nil, errors.New("it is not a JSON object")
	}
	found := make(fields, len(wanted))
	for dec.More() {
		token, err := dec.Token()
		name, isName := token.(string)
		if err != nil || !isName {
			return nil, errors.New("it is not valid JSON")
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, errors.New("it is not valid JSON")
		}
		i := slices.IndexFunc(wanted, func(w string) bool { return strings.EqualFold(w, name) })
		if i < 0 {
			continue
		}
		if _, twice := found[wanted[i]]; twice || name != wanted[i] {
			return nil, fmt.Errorf("it has several members that may be read as %q, or one in other letters", wanted[i])
		}
		found[name] = value
	}
	if _, err := dec.Token(); err != nil { // the closing brace
		return nil, errors.New("it is not valid JSON")
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the JSON object")
	}
	return found, nil
}

// null reports whether a member is missing or null.
func (f fields) null(name string) bool { return f[name] == nil || string(f[name]) == "null" }

// text reads a string. Numbers are refused, so that no long ID is rounded.
func (f fields) text(name string) (string, error) {
	var s *string
	if err := json.Unmarshal(f[name], &s); err != nil || s == nil {
		return "", fmt.Errorf("%q is missing, or not a string", name)
	}
	return *s, nil
}

func (f fields) boolean(name string) (bool, error) {
	switch string(f[name]) {
	case "true":
		return true, nil
	case "false":
		return false, nil
	default:
		return false, fmt.Errorf("%q is missing, or neither true nor false", name)
	}
}
