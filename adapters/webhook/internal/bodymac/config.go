package bodymac

import (
	"errors"
	"fmt"

	"github.com/txonce/txonce/adapters/webhook/internal/strict"
)

// maxEndpoint leaves room for the source in a Tenant.
const maxEndpoint = 128

// CheckEndpoint checks Config.Endpoint. fix says what to name. The error completes a sentence that begins with the
// field's name.
func CheckEndpoint(endpoint, fix string) error {
	if endpoint == "" {
		return errors.New("is required: it is part of each event's key; " + fix)
	}
	if len(endpoint) > maxEndpoint {
		return fmt.Errorf("has %d bytes, more than %d", len(endpoint), maxEndpoint)
	}
	return strict.Token(endpoint, "")
}

// CheckTopic checks Config.Topic, which has no character of without, and Config.TrustTopicHeader. fix says what to do
// if neither is set. The error completes a sentence that begins with the field's name.
func CheckTopic(topic string, trustHeader bool, without, fix string) error {
	switch {
	case topic == "" && !trustHeader:
		return errors.New("is required: " + fix)
	case topic != "" && trustHeader:
		return errors.New("and TrustTopicHeader are both set: set one of them")
	case topic == "":
		return nil
	default:
		return strict.Token(topic, without)
	}
}
