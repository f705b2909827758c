package inspect

import (
	"fmt"

	"github.com/txonce/txonce/adapters/webhook"
)

// Reply returns an error if a sender would take r for a failure. Some senders drop an endpoint that answers with a redirect or 410.
func Reply(r webhook.Reply) error {
	if r.Status != 0 && (r.Status < 200 || r.Status > 299) {
		return fmt.Errorf(".Status is %d: want a status from 200 to 299, or 0 for 200", r.Status)
	}
	if r.Status == 204 && len(r.Body) > 0 {
		return fmt.Errorf(".Status is 204 and Body has %d bytes: a response with this status has no body", len(r.Body))
	}
	return nil
}
