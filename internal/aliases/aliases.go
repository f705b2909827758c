// Package aliases writes consumer.Message.Aliases as one header value, and reads it.
package aliases

import "strings"

// separator occurs in no alias that can be claimed: dedup.Key.Validate refuses it.
const separator = "\x00"

// Join returns the header value for aliases that can be claimed. It is empty if there are none.
func Join(aliases []string) string { return strings.Join(aliases, separator) }

// Split is the inverse of Join.
func Split(value string) []string {
	if value == "" {
		return nil
	}
	return strings.Split(value, separator)
}
