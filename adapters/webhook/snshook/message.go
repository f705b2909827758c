package snshook

import (
	"bytes"
	"crypto"
	_ "crypto/sha1"   // for crypto.SHA1
	_ "crypto/sha256" // for crypto.SHA256
	"encoding/base64"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/internal/strict"
)

// The types of messages.
const (
	notification             = "Notification"
	subscriptionConfirmation = "SubscriptionConfirmation"
	unsubscribeConfirmation  = "UnsubscribeConfirmation"
)

const rawDelivery = "raw message delivery must be off, because raw messages have no signature"

// message is a message of SNS, as it was read.
type message struct {
	kind        string
	fields      map[string]string
	timestamp   time.Time
	hash        crypto.Hash
	signature   []byte
	certificate string // its URL
}

// uuid is the form of a MessageId.
var uuid = regexp.MustCompile(`^[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$`)

// certificateURL is matched by the whole URL as it is, so that no two parsers can disagree about its host.
var certificateURL = regexp.MustCompile(`^https://sns\.[a-zA-Z0-9-]{3,63}\.amazonaws\.com(\.cn)?/SimpleNotificationService-[0-9a-f]{1,64}\.pem$`)

// signedFields returns the names of the signed fields, in the order of the signed text. Subject may be missing.
func signedFields(kind string) []string {
	if kind == notification {
		return []string{"Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type"}
	}
	return []string{"Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"}
}

// readMessage reads body. Nothing in the result can be trusted before its signature was verified.
func (v *Verifier) readMessage(body []byte) (m message, err error) {
	object, err := strict.Parse(body)
	if err != nil {
		return m, webhook.Refuse(webhook.Unsigned, "the body is not a message of SNS: %w; "+rawDelivery, err)
	}
	m.fields = map[string]string{}
	read := func(name string) (string, error) {
		raw, err := object.Field(name)
		if err == nil && name == "Subject" && bytes.Equal(raw, []byte("null")) {
			return "", strict.ErrMissing
		}
		if err != nil {
			return "", err
		}
		return strict.String(raw)
	}
	if m.kind, err = read("Type"); err != nil {
		return m, webhook.Refuse(webhook.Unsigned, "the body is not a message of SNS: Type %w; "+rawDelivery, err)
	}
	if !slices.Contains([]string{notification, subscriptionConfirmation, unsubscribeConfirmation}, m.kind) {
		return m, webhook.Refuse(webhook.Unsigned, "Type is %.40q, so it is unknown which fields are signed", m.kind)
	}
	for _, name := range append(signedFields(m.kind), "SignatureVersion", "Signature", "SigningCertURL") {
		value, err := read(name)
		switch {
		case errors.Is(err, strict.ErrMissing) && name == "Subject":
			continue
		case err != nil:
			return m, webhook.Refuse(webhook.Unsigned, "%s %w", name, err)
		case name != "Message" && strings.ContainsFunc(value, unicode.IsControl):
			// The signed text has a line for each name and value. With line breaks only in Message, its first field,
			// the text can be divided into fields in one way only.
			return m, webhook.Refuse(webhook.Unsigned, "%s has a control character", name)
		}
		m.fields[name] = value
	}
	return m, v.checkClaims(&m)
}

// checkClaims checks all that a forger must get right before anything is fetched.
func (v *Verifier) checkClaims(m *message) (err error) {
	if arn := m.fields["TopicArn"]; !slices.Contains(v.cfg.TopicArns, arn) {
		return webhook.Refuse(webhook.WrongApp, "TopicArn %.256q is not among Config.TopicArns", arn)
	}
	if !uuid.MatchString(m.fields["MessageId"]) {
		return webhook.Refuse(webhook.Unsigned, "MessageId is not a UUID")
	}
	if m.timestamp, err = strict.RFC3339(m.fields["Timestamp"]); err != nil {
		return webhook.Refuse(webhook.Unsigned, "Timestamp is %.40q: want RFC 3339", m.fields["Timestamp"])
	}
	switch version := m.fields["SignatureVersion"]; {
	case version == "2":
		m.hash = crypto.SHA256
	case version == "1" && slices.Contains(v.cfg.AcceptedRisks, RiskSHA1):
		m.hash = crypto.SHA1
	default:
		return webhook.Refuse(webhook.BadSignature,
			"SignatureVersion is %.40q: set the topic's attribute SignatureVersion to 2", version)
	}
	if m.signature, err = strict.Base64(base64.StdEncoding, m.fields["Signature"]); err != nil ||
		len(m.signature) < minKey/8 || len(m.signature) > maxKey/8 {
		return webhook.Refuse(webhook.Unsigned, "Signature is not the base64 of a signature")
	}
	if m.certificate = m.fields["SigningCertURL"]; !certificateURL.MatchString(m.certificate) {
		return webhook.Refuse(webhook.BadSignature,
			"SigningCertURL is %.256q, which is not the URL of a certificate of SNS", m.certificate)
	}
	return nil
}

// signedText returns the text that SNS signs: the names and values of the signed fields, each with a line break after
// it.
func signedText(kind string, fields map[string]string) []byte {
	var text []byte
	for _, name := range signedFields(kind) {
		if value, ok := fields[name]; ok {
			text = fmt.Appendf(text, "%s\n%s\n", name, value)
		}
	}
	return text
}
