package hmachook

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/internal/strict"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
)

const (
	// maxScope leaves room for Name, Scope and slashes in a tenant of 255 bytes.
	maxScope = 60
	maxItems = 10_000
)

// events returns the events of d, whose signature is right.
func (p *plan) events(d *webhook.Delivery) ([]webhook.Event, error) {
	if !p.wholeBody && p.items == nil {
		event, err := p.event(d, d.Body)
		if err != nil {
			return nil, err
		}
		return []webhook.Event{event}, nil
	}
	var items []json.RawMessage
	array, err := strict.Lookup(d.Body, p.items)
	if err == nil {
		items, err = strict.Items(array)
	}
	if err != nil {
		return nil, webhook.Refuse(webhook.Malformed, "ItemsPath %s: %w", p.cfg.ItemsPath, err)
	}
	if len(items) > maxItems {
		return nil, webhook.Refuse(webhook.Malformed, "the batch has %d items, more than %d", len(items), maxItems)
	}
	if len(items) == 0 {
		sum := sha256.Sum256(d.Body)
		return []webhook.Event{{Drop: "batch without items", Message: consumer.Message{
			ID: "empty:" + hex.EncodeToString(sum[:]), Tenant: p.cfg.Name, Topic: p.cfg.Name, Payload: d.Body,
			Fingerprint: &dedup.Fingerprint{},
		}}}, nil
	}
	events := make([]webhook.Event, len(items))
	for i, item := range items {
		if events[i], err = p.event(d, item); err != nil {
			return nil, fmt.Errorf("item %d: %w", i, err)
		}
	}
	return events, nil
}

// event returns the event that payload is: the body, or an item of it.
func (p *plan) event(d *webhook.Delivery, payload []byte) (event webhook.Event, err error) {
	m := consumer.Message{Tenant: p.cfg.Name, Topic: p.cfg.Topic, Payload: payload, Fingerprint: &dedup.Fingerprint{}}
	malformed := func(what string, err error) (webhook.Event, error) {
		return webhook.Event{}, webhook.Refuse(webhook.Malformed, "the event's %s %w", what, err)
	}
	if p.cfg.TopicHeader != "" {
		m.Topic, err = strict.Header(d.Header, p.cfg.TopicHeader)
	} else if p.topic != nil {
		m.Topic, err = text(payload, p.topic)
	}
	if err == nil {
		err = strict.ID(m.Topic)
	}
	if err != nil {
		return malformed("type", err)
	}
	if m.Tenant, err = p.tenant(payload); err != nil {
		return malformed("scope", err)
	}
	if m.ID, err = p.id(d, m.Topic, payload); err != nil {
		return malformed("id", err)
	}
	if p.created != nil {
		if m.Time, err = p.time(payload, p.created, p.cfg.CreatedFormat); err == nil {
			err = strict.Storable(m.Time)
		}
		if err != nil {
			return malformed("creation time", err)
		}
	}
	if p.unsignedID() {
		alias := strict.BodyAlias(p.cfg.Name, "", m.Topic, payload)
		m.Aliases = []string{alias}
		// Without it, somebody who sends a captured body with the ID of another delivery first would make that delivery
		// a duplicate, and it would be lost.
		*m.Fingerprint = dedup.FingerprintOf([]byte(alias))
	}
	if p.fingerprint != nil {
		if *m.Fingerprint, err = p.contentHash(payload); err != nil {
			return malformed("content", err)
		}
	}
	return webhook.Event{Message: m}, nil
}

func (p *plan) tenant(payload []byte) (string, error) {
	tenant := p.cfg.Name
	if p.cfg.Scope != "" {
		tenant += "/" + p.cfg.Scope
	}
	if p.scope == nil {
		return tenant, nil
	}
	scope, err := text(payload, p.scope)
	if err == nil {
		err = strict.ID(scope)
	}
	if err != nil {
		return "", err
	}
	// With a separator that Scope cannot contain, two scopes never give the same tenant.
	if tenant += "/" + scope; len(tenant) > dedup.MaxTenant {
		return "", fmt.Errorf("is too long: with the name, %d bytes, more than %d", len(tenant), dedup.MaxTenant)
	}
	return tenant, nil
}

// unsignedID reports whether anybody can change the ID of a captured delivery.
func (p *plan) unsignedID() bool { return p.cfg.IDHeader != "" && !p.signed.signs(p.cfg.IDHeader) }

var escape = strings.NewReplacer(`\`, `\\`, `:`, `\:`)

func (p *plan) id(d *webhook.Delivery, topic string, payload []byte) (id string, err error) {
	if p.cfg.IDHeader != "" {
		if id, err = strict.Header(d.Header, p.cfg.IDHeader); err == nil {
			err = strict.ID(id)
		}
		if err == nil && p.unsignedID() {
			// With the topic, a delivery that is repeated to the endpoint of another topic does not take an ID from
			// that topic's events.
			id = escape.Replace(id) + ":" + topic
			err = strict.NotAlias(id)
		}
	} else if len(p.ids) == 1 {
		id, err = idPart(payload, p.ids[0], false)
	} else {
		parts := make([]string, len(p.ids))
		for i, path := range p.ids {
			if parts[i], err = idPart(payload, path, true); err != nil {
				return "", err
			}
			parts[i] = escape.Replace(parts[i])
		}
		id = strings.Join(parts, ":")
	}
	if err != nil {
		return "", err
	}
	return id, strict.ID(id)
}

// idPart is text, and takes true and false too if boolean is set. Different values give different results: a string
// that could be taken for another value keeps its quotes, so that 1 and "1" differ.
func idPart(payload []byte, path []string, boolean bool) (string, error) {
	raw, err := strict.Lookup(payload, path)
	if err != nil {
		return "", err
	}
	if s := string(raw); boolean && (s == "true" || s == "false") {
		return s, nil
	}
	s, err := strict.Scalar(raw)
	if err != nil {
		return "", err
	}
	if isString := s != string(raw); isString && (json.Valid([]byte(s)) || strings.HasPrefix(s, `"`)) {
		s = `"` + s + `"`
	}
	return s, strict.ID(s)
}

func text(payload []byte, path []string) (string, error) {
	raw, err := strict.Lookup(payload, path)
	if err != nil {
		return "", err
	}
	return strict.Scalar(raw)
}

func (p *plan) time(payload []byte, path []string, format TimeFormat) (time.Time, error) {
	s, err := text(payload, path)
	if err != nil {
		return time.Time{}, err
	}
	return parseTime(format, s)
}

// contentHash is the fingerprint of the fields at FingerprintPaths. White space within them does not matter.
func (p *plan) contentHash(payload []byte) (f dedup.Fingerprint, err error) {
	var content []byte
	for _, path := range p.fingerprint {
		raw, err := strict.Lookup(payload, path)
		if errors.Is(err, strict.ErrMissing) {
			raw = json.RawMessage("null")
		} else if err != nil {
			return f, err
		}
		var compact bytes.Buffer
		if err := json.Compact(&compact, raw); err != nil {
			return f, err
		}
		content = binary.AppendUvarint(content, uint64(compact.Len()))
		content = append(content, compact.Bytes()...)
	}
	return dedup.FingerprintOf(content), nil
}
