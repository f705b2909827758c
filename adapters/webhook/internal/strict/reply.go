package strict

import "fmt"

// Reply returns an error if a sender would take a response with this status for a failure. Some senders drop an
// endpoint that answers with a redirect or 410. The error completes the name of a field of type webhook.Reply.
func Reply(status int, body []byte) error {
	if status != 0 && (status < 200 || status > 299) {
		return fmt.Errorf(".Status is %d: want a status from 200 to 299, or 0 for 200", status)
	}
	if status == 204 && len(body) > 0 {
		return fmt.Errorf(".Status is 204 and Body has %d bytes: a response with this status has no body", len(body))
	}
	return nil
}
