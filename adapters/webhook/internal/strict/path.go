package strict

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Path splits a path such as "data.id". It refuses empty names.
func Path(path string) ([]string, error) {
	names := strings.Split(path, ".")
	for _, name := range names {
		if name == "" {
			return nil, fmt.Errorf("is %q: want names of fields with dots between them", path)
		}
	}
	return names, nil
}

// Lookup returns the value at a path, which names a member of an object in an object in … the Document doc. An empty
// path is doc itself.
func Lookup(doc []byte, path []string) (json.RawMessage, error) {
	for i, name := range path {
		object, err := read(doc)
		if err != nil {
			return nil, fmt.Errorf("%q is not in an object", strings.Join(path[:i+1], "."))
		}
		value, err := object.Field(name)
		if err != nil {
			return nil, fmt.Errorf("%q %w", strings.Join(path[:i+1], "."), err)
		}
		doc = value
	}
	return doc, nil
}

// Items returns the elements of the array doc, which is (part of) a Document.
func Items(doc []byte) ([]json.RawMessage, error) {
	if doc = bytes.TrimLeft(doc, " \t\r\n"); len(doc) == 0 || doc[0] != '[' { // json.Unmarshal takes null for an array
		return nil, errors.New("is not an array")
	}
	var items []json.RawMessage
	if err := json.Unmarshal(doc, &items); err != nil {
		return nil, err
	}
	return items, nil
}
