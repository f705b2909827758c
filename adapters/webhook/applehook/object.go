package applehook

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxDepth limits the nesting of objects and arrays. Apple's payloads have 5 levels at most.
const maxDepth = 32

// object is a JSON object whose members are found by their exact names, unlike the fields of a struct, which encoding/json also finds
// by names of another case.
type object map[string]json.RawMessage

// parseObject reads a JSON object. It refuses what two parsers may read differently: a name that occurs twice in one object, in the same
// or another case, invalid UTF-8, and deep nesting.
func parseObject(b []byte) (object, error) {
	if !utf8.Valid(b) {
		return nil, errors.New("it is not valid UTF-8")
	}
	if err := checkTokens(b); err != nil {
		return nil, err
	}
	var o object
	if err := json.Unmarshal(b, &o); err != nil {
		return nil, err
	}
	if o == nil {
		return nil, errors.New("it is null, not an object")
	}
	return o, nil
}

// level is an object or array that is being read.
type level struct {
	names map[string]bool // nil: it is an array
	value bool            // the next token is a member's value, not its name
}

// checkTokens looks for repeated names and deep nesting. Other errors of syntax are json.Unmarshal's.
func checkTokens(b []byte) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	var open []level
	for {
		token, err := dec.Token()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		delim, _ := token.(json.Delim)
		if n := len(open) - 1; n >= 0 && open[n].names != nil && delim != '}' {
			top := &open[n]
			if name, isName := token.(string); isName && !top.value {
				folded := fold(name)
				if top.names[folded] {
					return fmt.Errorf("the name %.50q occurs twice in one object", name)
				}
				top.names[folded] = true
			}
			top.value = !top.value
		}
		switch delim {
		case '{':
			open = append(open, level{names: map[string]bool{}})
		case '[':
			open = append(open, level{})
		case '}', ']':
			open = open[:len(open)-1]
		}
		if len(open) > maxDepth {
			return fmt.Errorf("it is nested deeper than %d levels", maxDepth)
		}
	}
}

// fold returns the same string for all strings that encoding/json takes for the same name.
func fold(s string) string {
	return strings.Map(func(r rune) rune {
		least := r
		for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
			least = min(least, f)
		}
		return least
	}, s)
}

// has reports whether o has a member that is not null.
func (o object) has(name string) bool {
	raw, ok := o[name]
	return ok && string(raw) != "null"
}

// text returns a string, or "" if it is missing or null.
func (o object) text(name string) (s string, err error) {
	if !o.has(name) {
		return "", nil
	}
	if err := json.Unmarshal(o[name], &s); err != nil {
		return "", fmt.Errorf("%s is not a string", name)
	}
	return s, nil
}

// integer returns a number without sign, fraction and exponent, or 0 if it is missing or null. It is never read as a float, which
// would change a large one.
func (o object) integer(name string) (int64, error) {
	if !o.has(name) {
		return 0, nil
	}
	raw := string(o[name])
	if len(raw) > 18 || strings.Trim(raw, "0123456789") != "" {
		return 0, fmt.Errorf("%s is not an integer of at most 18 digits", name)
	}
	return strconv.ParseInt(raw, 10, 64)
}

// object returns an object, or nil if it is missing or null.
func (o object) object(name string) (inner object, err error) {
	if !o.has(name) {
		return nil, nil
	}
	if err := json.Unmarshal(o[name], &inner); err != nil || inner == nil {
		return nil, fmt.Errorf("%s is not an object", name)
	}
	return inner, nil
}
