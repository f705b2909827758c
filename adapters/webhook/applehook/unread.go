package applehook

import (
	"encoding/json"
	"reflect"
	"strings"
)

// Unread is a field that has another form than this version expects, such as a number that became a string. The field
// of the struct is zero then.
type Unread struct {
	Path string          // such as "transaction.price"
	Raw  json.RawMessage // its value, as Apple signed it
	Err  error
}

// decodeFields decodes the members of raw that into has a field for, each by itself. It returns those that it could not
// read.
func decodeFields(raw json.RawMessage, into reflect.Value, path string) (unread []Unread) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		return []Unread{{Path: path, Raw: raw, Err: err}}
	}
	for i := range into.NumField() {
		name := into.Type().Field(i).Tag.Get("json")
		value := members[name]
		if name == "-" || value == nil || string(value) == "null" {
			continue
		}
		inner := strings.TrimPrefix(path+"."+name, "notification.")
		field := into.Field(i)
		if t := field.Type(); t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.Struct {
			part := reflect.New(t.Elem())
			faults := decodeFields(value, part.Elem(), inner)
			if len(faults) != 1 || faults[0].Path != inner { // it is an object
				field.Set(part)
			}
			unread = append(unread, faults...)
			continue
		}
		read := reflect.New(field.Type())
		if err := json.Unmarshal(value, read.Interface()); err != nil {
			unread = append(unread, Unread{Path: inner, Raw: value, Err: err})
			continue
		}
		field.Set(read.Elem())
	}
	return unread
}
