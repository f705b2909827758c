package consumer

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// headerShortened is in the message of a dead letter that was shortened, because the database refused the whole one.
// See DeadLetter.Shortened.
const headerShortened = "txonce-shortened"

// Shortened says what a dead letter lacks because the database refused the whole message.
type Shortened struct {
	Fields        []string `json:"fields"`         // what is shortened: "payload", "headers", "key", "topic"
	PayloadBytes  int      `json:"payload_bytes"`  // how long the payload was when it was delivered
	PayloadSHA256 string   `json:"payload_sha256"` // of that payload, in hexadecimal digits
	Refused       string   `json:"refused"`        // what the database said about the whole letter
}

// Shortened returns what the letter lacks. ok is false if it has its whole message.
func (l DeadLetter) Shortened() (s Shortened, ok bool) {
	text, ok := l.Message.Headers[headerShortened] // parking has written it
	if err := json.Unmarshal([]byte(text), &s); ok && err != nil {
		return Shortened{Fields: []string{"payload"}, Refused: text}, true
	}
	if payload := l.Message.Payload; ok && len(payload) == s.PayloadBytes && sumOf(payload) == s.PayloadSHA256 {
		// an earlier letter had the whole one
		s.Fields = slices.DeleteFunc(s.Fields, func(field string) bool { return field == "payload" })
	}
	return s, ok && len(s.Fields) > 0
}

// WithoutContent returns the letter without what uses much memory: its payload, and the headers that its methods do not
// read.
func (l DeadLetter) WithoutContent() DeadLetter {
	own := map[string]string{}
	if aliases, found := l.Message.Headers[headerAliases]; found {
		own[headerAliases] = aliases
	}
	if _, shortened := l.Shortened(); shortened {
		own[headerShortened] = l.Message.Headers[headerShortened]
	}
	l.Message.Payload, l.Message.Headers = nil, own
	return l
}

func sumOf(payload []byte) string {
	sum := sha256.Sum256(payload)
	return hex.EncodeToString(sum[:])
}

func (s Shortened) String() string {
	if !slices.Contains(s.Fields, "payload") {
		return fmt.Sprintf("it is shortened (%s), because the database refused it: %s", strings.Join(s.Fields, ", "),
			s.Refused)
	}
	return fmt.Sprintf("it is shortened (%s), because the database refused it; the whole payload has %d bytes and the SHA-256 %s: %s",
		strings.Join(s.Fields, ", "), s.PayloadBytes, s.PayloadSHA256, s.Refused)
}

// shortenedError is the error of a replay of a letter that has not its whole message.
func (l DeadLetter) shortenedError() error {
	s, _ := l.Shortened()
	return fmt.Errorf("%w: %v. Read the message where the broker keeps it (topic %q, position %q) and replay it with a Repair that puts it in, or Discard the letter",
		ErrShortened, s, l.Message.Topic, l.Message.Position)
}

// lengths limits the parts of a letter, in bytes.
type lengths struct{ payload, headers, text int }

// shorter are the lengths of letters that are tried one after the other while the database refuses them.
var shorter = []lengths{{64 << 10, 16 << 10, 4 << 10}, {1 << 10, 0, 255}}

// shortened returns letter without what is longer than to. changed is false if nothing is. The ID stays that of the
// whole message.
func shortened(letter DeadLetter, to lengths, refused error) (short DeadLetter, changed bool) {
	s, again := letter.Shortened()
	if !again {
		s.PayloadBytes, s.PayloadSHA256 = len(letter.Message.Payload), sumOf(letter.Message.Payload)
	}
	s.Fields = slices.Clone(s.Fields)
	lack := func(field string) {
		if changed = true; !slices.Contains(s.Fields, field) {
			s.Fields = append(s.Fields, field)
		}
	}
	msg := &letter.Message
	if len(msg.Payload) > to.payload {
		msg.Payload = msg.Payload[:to.payload]
		lack("payload")
	}
	own := map[string]string{} // a replay needs them
	for _, name := range []string{headerParkedBy, headerAliases} {
		if value, ok := msg.Headers[name]; ok {
			own[name] = value
		}
	}
	bytes := 0
	for name, value := range msg.Headers {
		if _, keep := own[name]; !keep && name != headerShortened {
			bytes += len(name) + len(value)
		}
	}
	if msg.Headers = maps.Clone(msg.Headers); bytes > to.headers {
		msg.Headers = own
		lack("headers")
	}
	for _, f := range []struct {
		name string // empty: a replay does not need it
		text *string
	}{{"key", &msg.OrderingKey}, {"topic", &msg.Topic}, {"", &msg.Position}, {"", &letter.Error}} {
		if text := plainText(*f.text, to.text); text != *f.text {
			*f.text, changed = text, true
			if f.name != "" {
				lack(f.name)
			}
		}
	}
	s.Refused = plainText(refused.Error(), shorter[1].text)
	if text, err := json.Marshal(s); err == nil {
		msg.Headers = withReserved(msg.Headers, map[string]string{headerShortened: string(text)})
	}
	return letter, changed
}

// plainText returns the beginning of s, at most that many bytes before what cannot be stored as text is replaced.
func plainText(s string, most int) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s[:min(len(s), most)], "\uFFFD"), "\x00", "\uFFFD")
}

// letterError is an error of ParkingLot.Park.
type letterError struct{ error }

func (e letterError) Unwrap() error { return e.error }

// aboutLetter names letter in the log, and says what it lacks.
func aboutLetter(letter DeadLetter) []any {
	about := []any{"letter", letter.ID}
	if s, ok := letter.Shortened(); ok {
		about = append(about, "shortened", s.String())
	}
	return about
}
