package inspect

import (
	"fmt"
	"net/http"
)

// maxHeader is longer than any sender's signature, with room for several signatures while a secret is replaced.
const maxHeader = 4096

// Header returns the value of a field that must occur once and must not be empty.
func Header(h http.Header, name string) (string, error) {
	switch values := h.Values(name); {
	case len(values) == 0 || len(values) == 1 && values[0] == "":
		return "", fmt.Errorf("the header %s is missing or empty", name)
	case len(values) > 1:
		return "", fmt.Errorf("the header %s occurs %d times", name, len(values))
	case len(values[0]) > maxHeader:
		return "", fmt.Errorf("the header %s has %d bytes, more than %d", name, len(values[0]), maxHeader)
	default:
		return values[0], nil
	}
}
