package strict

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"
)

// Unambiguous returns all members of a JSON object, for a sender who chooses all names in it. It refuses a name that
// occurs twice in one object at any depth, in the same or in other letters. Select does not, because users may choose
// names: those in an order's metadata, for example, may differ in case only.
func Unambiguous(object []byte, maxDepth int) (Members, error) {
	if deeper(object, maxDepth) { // before json.Valid, which refuses very deep nesting as wrong syntax
		return nil, fmt.Errorf("nested deeper than %d levels", maxDepth)
	}
	if !json.Valid(object) {
		return nil, fmt.Errorf("%w: its syntax is wrong", ErrNotObject)
	}
	if err := check(object, maxDepth); err != nil {
		return nil, err
	}
	if err := checkNames(object); err != nil {
		return nil, err
	}
	if string(bytes.TrimSpace(object)) == "null" {
		return nil, fmt.Errorf("%w, but null", ErrNotObject)
	}
	o, err := read(object)
	if err != nil {
		return nil, err
	}
	m := make(Members, len(o))
	for _, member := range o {
		m[member.name] = member.value
	}
	return m, nil
}

// level is an object or array that is being read.
type level struct {
	names map[string]bool // nil: it is an array
	value bool            // the next token is a member's value, not its name
}

// checkNames looks for repeated names. It takes valid JSON.
func checkNames(doc []byte) error {
	dec := json.NewDecoder(bytes.NewReader(doc))
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
