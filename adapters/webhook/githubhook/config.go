package githubhook

import (
	"errors"
	"fmt"

	"github.com/txonce/txonce/adapters/webhook/internal/bodymac"
	"github.com/txonce/txonce/adapters/webhook/internal/strict"
)

// Config configures a Verifier.
type Config struct {
	// Endpoint names the hook or the app that sends to this endpoint, such as "releases-hook". It is part of each
	// event's key, because GitHub sends one event to several hooks and apps with the same ID. Each hook and each app
	// needs its own. A new name makes all events new. Required.
	Endpoint string

	// Secrets are the hook's secrets. Any of them may have made a signature: configure the old and the new secret while
	// you change it. Each has 16 bytes or more. Required.
	Secrets []string

	// Topic is the type of the events that this endpoint takes, such as "release". A delivery whose header
	// X-GitHub-Event names another is refused. Required, unless TrustTopicHeader is set.
	Topic string

	// TrustTopicHeader takes the type of each event from the header X-GitHub-Event, for a hook that sends several
	// types. The header is not signed: somebody who has captured a delivery can send its body once for each other type,
	// and each of them runs. Set it only if handlers check that the body is of the type that they expect.
	//
	// Defaults to false: Topic is required.
	TrustTopicHeader bool
}

// minSecret is short for an HMAC-SHA256, but people choose these secrets.
const minSecret = 16

// validate returns one error that names all fields at fault.
func (c Config) validate() error {
	var wrong []error
	refuse := func(format string, args ...any) {
		wrong = append(wrong, fmt.Errorf("githubhook: Config."+format, args...))
	}
	if err := bodymac.CheckEndpoint(c.Endpoint, "name the hook or the app, such as \"releases-hook\""); err != nil {
		refuse("Endpoint %w", err)
	}
	if len(c.Secrets) == 0 {
		refuse("Secrets is required: set a secret in the settings of the hook or the app, and configure it here")
	}
	for i, secret := range c.Secrets {
		if err := strict.Secret(secret, minSecret); err != nil {
			refuse("Secrets[%d] %w; set a random secret in the settings of the hook or the app, and configure it here", i, err)
		}
	}
	if err := bodymac.CheckTopic(c.Topic, c.TrustTopicHeader, "=",
		"name the one event that the hook sends, such as \"release\", "+
			"because the header X-GitHub-Event is not signed; or set TrustTopicHeader if handlers check the body"); err != nil {
		refuse("Topic %w", err)
	}
	return errors.Join(wrong...)
}
