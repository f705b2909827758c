package httpidem

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/txonce/txonce/internal/httpkey"
	"github.com/txonce/txonce/internal/idtime"
)

// defaultHeader is the header of the IETF draft.
const defaultHeader = "Idempotency-Key"

// maxKey is the longest key, in bytes. It is what Stripe allows.
const maxKey = 255

var errNoKey = errors.New("the header with the key is missing")

// readKey returns the key of a request, without quotes. A key without quotes is an error if strict is true. name is
// canonical.
func readKey(h http.Header, name string, strict bool) (string, error) {
	values := h[name]
	switch len(values) {
	case 0:
		return "", errNoKey
	case 1:
	default:
		return "", fmt.Errorf("there are several headers %s: send one", name)
	}
	key, err := httpkey.Parse(strings.Trim(values[0], " \t"), strict)
	switch {
	case err != nil:
		return "", err
	case strings.Trim(key, " ") == "":
		return "", errors.New("the key is empty")
	case len(key) > maxKey:
		return "", fmt.Errorf("the key has %d bytes: want %d at most", len(key), maxKey)
	}
	return key, nil
}

// UUIDv7Time is a Config.KeyTime for keys that are UUIDs of version 7, which begin with the time when they were made.
// It returns the zero time for other keys.
func UUIDv7Time(key string) time.Time {
	if ms := idtime.UUID(key); ms > 0 && len(key) == 36 {
		return time.UnixMilli(int64(ms))
	}
	return time.Time{}
}
