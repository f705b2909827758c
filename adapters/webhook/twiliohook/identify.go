package twiliohook

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
)

var (
	sid    = regexp.MustCompile(`^[A-Z]{2}[0-9a-f]{32}$`)
	status = regexp.MustCompile(`^[a-z][a-z_-]{0,31}$`)
)

// StatusOf is the default of Config.Identify. The ID is a message's MessageSid and MessageStatus (or SmsStatus), or a
// call's CallSid and CallStatus, with a colon between them. A form without these is refused, as is one that has them in
// another form than Twilio's.
func StatusOf(form url.Values) (Identity, error) {
	for _, event := range []struct {
		topic, sid string
		status     []string
	}{
		{"message", "MessageSid", []string{"MessageStatus", "SmsStatus"}},
		{"call", "CallSid", []string{"CallStatus"}},
	} {
		if !form.Has(event.sid) {
			continue
		}
		id, err := single(form, event.sid, sid)
		if err != nil {
			return Identity{}, err
		}
		for _, name := range event.status {
			if !form.Has(name) {
				continue
			}
			now, err := single(form, name, status)
			if err != nil {
				return Identity{}, err
			}
			return Identity{ID: id + ":" + now, Topic: event.topic + "." + now}, nil
		}
	}
	return Identity{}, errors.New("the form has neither MessageSid and MessageStatus nor CallSid and CallStatus: " +
		"set Config.Identify for other forms")
}

func single(form url.Values, name string, pattern *regexp.Regexp) (string, error) {
	switch values := form[name]; {
	case len(values) != 1:
		return "", fmt.Errorf("%s has %d different values", name, len(values))
	case !pattern.MatchString(values[0]):
		return "", fmt.Errorf("%s does not have the form %s", name, pattern)
	default:
		return values[0], nil
	}
}
