package githubhook

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"

	"github.com/txonce/txonce/adapters/webhook/internal/strict"
)

const formPrefix = "payload="

// decode returns the JSON of a body. Whether the body is a form depends on the body and not on the header Content-Type,
// which is not signed.
func decode(body []byte) (payload []byte, isPing bool, err error) {
	payload = body
	if bytes.HasPrefix(body, []byte(formPrefix)) {
		form, err := url.ParseQuery(string(body))
		if err != nil {
			return nil, false, fmt.Errorf("the form: %w", err)
		}
		if len(form) != 1 || len(form["payload"]) != 1 {
			return nil, false, errors.New("the form has more than one field: want payload and nothing else")
		}
		payload = []byte(form.Get("payload"))
	}
	members, err := strict.Select(payload, "zen", "hook_id", "hook")
	if err != nil {
		return nil, false, err
	}
	return payload, len(members) == 3, nil
}
