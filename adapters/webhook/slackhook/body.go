package slackhook

import (
	"errors"
	"fmt"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/internal/strict"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
)

const maxApp = 128

// read reads a signed body.
func read(body []byte) (webhook.Event, error) {
	members, err := strict.Select(body, "type", "challenge", "event_id", "api_app_id", "team_id", "event_time", "event")
	if errors.Is(err, strict.ErrNotObject) && len(body) > 0 && body[0] != '{' {
		return webhook.Event{}, errors.New("the body is not JSON: this endpoint takes requests of the Events API, " +
			"and no slash commands and interactions, which have no event_id; give them a URL and a handler of their own")
	}
	if err != nil {
		return webhook.Event{}, fmt.Errorf("the body: %w", err)
	}
	kind, err := text(members, "type")
	if err != nil {
		return webhook.Event{}, err
	}
	switch kind {
	case "url_verification":
		challenge, err := text(members, "challenge")
		if err != nil {
			return webhook.Event{}, err
		}
		return webhook.Event{
			Message: consumer.Message{Tenant: source, Topic: kind, Payload: body},
			Drop:    "Slack's check of the URL",
			Reply:   &webhook.Reply{ContentType: "text/plain; charset=utf-8", Body: []byte(challenge)},
		}, nil
	case "app_rate_limited":
		return webhook.Event{
			Message: consumer.Message{Tenant: source, Topic: kind, Payload: body},
			Drop:    "app_rate_limited: Slack holds back events of the app, because there are too many",
		}, nil
	}
	msg, err := message(body, members)
	return webhook.Event{Message: msg}, err
}

func message(body []byte, members strict.Members) (consumer.Message, error) {
	id, err := text(members, "event_id")
	if err != nil {
		return consumer.Message{}, err
	}
	app, err := text(members, "api_app_id")
	if err != nil {
		return consumer.Message{}, err
	}
	if len(app) > maxApp { // with it, the tenant would be longer than a key's tenant may be
		return consumer.Message{}, fmt.Errorf("the body's api_app_id has %d bytes, more than %d", len(app), maxApp)
	}
	// A team is missing if an event belongs to an organization.
	team, _ := strict.Text(members["team_id"])
	created, err := strict.UnixSeconds(string(members["event_time"]))
	if err != nil {
		return consumer.Message{}, fmt.Errorf("the body's event_time: %w", err)
	}
	inner, err := strict.Select(members["event"], "type")
	if err != nil {
		return consumer.Message{}, fmt.Errorf("the body's event: %w", err)
	}
	topic, err := text(inner, "type")
	if err != nil {
		return consumer.Message{}, fmt.Errorf("the body's event: %w", err)
	}
	fingerprint := dedup.FingerprintOf([]byte(topic + "\x00" + team)) // neither contains a NUL
	return consumer.Message{
		ID:          id,
		Tenant:      source + "/" + app,
		Topic:       topic,
		Payload:     body,
		Time:        created,
		Fingerprint: &fingerprint,
	}, nil
}

func text(members strict.Members, name string) (string, error) {
	value, there := members[name]
	if !there {
		return "", fmt.Errorf("the body has no %s", name)
	}
	s, err := strict.Text(value)
	if err != nil {
		return "", fmt.Errorf("the body's %s: %w", name, err)
	}
	return s, nil
}
