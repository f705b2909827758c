// Package aliases writes consumer.Message.Aliases as one header value, and reads it.
package aliases

import (
	"encoding/json"
	"fmt"
)

// Join returns the header value for aliases, which are UTF-8. It is empty if there are none.
func Join(aliases []string) string {
	if len(aliases) == 0 {
		return ""
	}
	value, _ := json.Marshal(aliases) // strings have no error
	return string(value)
}

// Split is the inverse of Join.
func Split(value string) (aliases []string, err error) {
	if value == "" {
		return nil, nil
	}
	if err := json.Unmarshal([]byte(value), &aliases); err != nil {
		return nil, fmt.Errorf("want a JSON array of strings: %w", err)
	}
	return aliases, nil
}
