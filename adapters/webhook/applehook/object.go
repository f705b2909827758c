package applehook

import (
	"encoding/json"
	"fmt"

	"github.com/txonce/txonce/adapters/webhook/internal/strict"
)

// maxDepth limits the nesting of objects and arrays. Apple's payloads have 5 levels at most.
const maxDepth = 32

// object is a JSON object. Apple chooses all names in it.
type object strict.Members

func parseObject(b []byte) (object, error) {
	o, err := strict.Unambiguous(b, maxDepth)
	return object(o), err
}

// has reports whether o has a member that is not null.
func (o object) has(name string) bool { return strict.Members(o).Has(name) }

// text returns a string, or "" if it is missing or null.
func (o object) text(name string) (string, error) {
	if !o.has(name) {
		return "", nil
	}
	return strict.Members(o).String(name)
}

// integer returns a number, or 0 if it is missing or null.
func (o object) integer(name string) (int64, error) {
	if !o.has(name) {
		return 0, nil
	}
	return strict.Members(o).Int(name)
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
