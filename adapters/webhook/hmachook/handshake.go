package hmachook

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/internal/strict"
	"github.com/txonce/txonce/consumer"
)

// Handshake describes the signed deliveries with which a sender tests an endpoint, and the answer that it expects. They
// are dropped.
type Handshake struct {
	// Path is a field that tells a handshake from an event, such as "challenge". Value is its text or integer; with an
	// empty Value, each delivery that has the field is a handshake.
	Path  string
	Value string

	// Reply is the answer. ReplyPath is a field whose text is the Reply's Body.
	Reply     webhook.Reply
	ReplyPath string
}

func (c *checker) handshake(p *plan) {
	h := &p.cfg.Handshake
	p.handshake, p.challenge = c.path("Handshake.Path", h.Path), c.path("Handshake.ReplyPath", h.ReplyPath)
	if h.Path == "" && (h.Value != "" || h.ReplyPath != "" || h.Reply.Status != 0 || h.Reply.ContentType != "" ||
		h.Reply.Body != nil) {
		c.refuse("Handshake.Path is required with the other fields of Handshake: name a field that only a handshake has")
	}
	if h.ReplyPath != "" && len(h.Reply.Body) > 0 {
		c.refuse("Handshake.ReplyPath and Handshake.Reply.Body are alternatives: set one of them")
	}
	body := h.Reply.Body
	if h.ReplyPath != "" {
		body = []byte("the text at ReplyPath")
	}
	if err := strict.Reply(h.Reply.Status, body); err != nil {
		c.refuse("Handshake.Reply%w", err)
	}
}

// readHandshake returns the dropped event of a handshake. ok is false for other deliveries.
func (p *plan) readHandshake(body []byte) (event webhook.Event, ok bool, err error) {
	h := p.cfg.Handshake
	if p.handshake == nil || !strict.IsObject(body) {
		return event, false, nil
	}
	raw, err := strict.Lookup(body, p.handshake)
	if errors.Is(err, strict.ErrMissing) {
		return event, false, nil
	}
	if err == nil && h.Value != "" && !isScalar(raw, h.Value) {
		return event, false, nil // an event
	}
	reply := h.Reply
	if err == nil && p.challenge != nil {
		var challenge string
		challenge, err = text(body, p.challenge)
		reply.Body = []byte(challenge)
	}
	if err != nil {
		return event, false, fmt.Errorf("the handshake's field %w", err)
	}
	return webhook.Event{
		Drop: "handshake: the sender tests the endpoint", Reply: &reply,
		Message: consumer.Message{Tenant: p.cfg.Name, Topic: p.cfg.Name, Payload: body},
	}, true, nil
}

func isScalar(raw json.RawMessage, value string) bool {
	s, err := strict.Scalar(raw)
	return err == nil && s == value
}
