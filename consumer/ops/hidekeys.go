package ops

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// HideKeys replaces business keys in what people and machines see, where keys name people. The zero value shows keys as
// they are.
type HideKeys struct {
	Secret []byte // the same secret always gives the same text for a key, so that it can be searched for
}

// Key returns key, or 16 hexadecimal digits that only the secret's owner can compare with a key.
func (h HideKeys) Key(key string) string {
	if len(h.Secret) == 0 || key == "" {
		return key
	}
	mac := hmac.New(sha256.New, h.Secret)
	mac.Write([]byte(key))
	return hex.EncodeToString(mac.Sum(nil)[:8])
}

// Position returns the position of a message without its ID: where a source has no offsets, the position ends with the
// ID. ids may be empty.
func (h HideKeys) Position(position string, ids ...string) string {
	if len(h.Secret) == 0 {
		return position
	}
	for _, id := range ids {
		if before, found := strings.CutSuffix(position, "/"+id); found && id != "" {
			return before + "/" + h.Key(id)
		}
	}
	return position
}
