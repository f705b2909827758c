package stripehook

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/txonce/txonce/adapters/webhook/internal/strict"
)

// Event is the part of a Stripe event that does not depend on its type or API version. Handlers get it with Parse.
type Event struct {
	// ID is the event's own ID: evt_…. A thin event has another ID than the snapshot event of the same change, see Snapshot.
	ID string

	// Thin says that the payload names only the object: fetch it with Client.Get. Otherwise the payload has a copy of the object, as
	// it was when the event was created.
	Thin bool

	Type       string
	Created    time.Time
	Livemode   bool
	Account    string // the connected account, or empty
	Context    string // the path of accounts, or empty: acct_1 or acct_1/acct_2
	APIVersion string // of the copy in a snapshot event

	// Object is the ID of the object that changed, or empty if it has none. ObjectURL is its path in Stripe's API; only thin events
	// have it.
	Object    string
	ObjectURL string

	// Snapshot is the ID of the snapshot event that Stripe made of the same change, if this is a thin event that names one.
	Snapshot string
}

// LogicalID is the same for a thin event and the snapshot event of the same change: the ID of the latter.
func (e Event) LogicalID() string {
	if e.Snapshot != "" {
		return e.Snapshot
	}
	return e.ID
}

const (
	objectSnapshot = "event"
	objectThin     = "v2.core.event"
)

// fields are the wanted members of a JSON object.
type fields strict.Members

func read(object []byte, wanted ...string) (fields, error) {
	m, err := strict.Select(object, wanted...)
	return fields(m), err
}

func (f fields) null(name string) bool { return !strict.Members(f).Has(name) }

func (f fields) text(name string) (string, error) { return strict.Members(f).String(name) }

func (f fields) boolean(name string) (bool, error) { return strict.Members(f).Bool(name) }

// Parse reads a payload, such as consumer.Message.Payload. It verifies no signature. Its error says which field is at fault, and does not
// show the payload.
func Parse(payload []byte) (Event, error) {
	e, err := parse(payload)
	if err != nil {
		return Event{}, fmt.Errorf("stripehook: read the event: %w", err)
	}
	return e, nil
}

func parse(payload []byte) (e Event, err error) {
	fields, err := read(payload, "id", "object", "type", "created", "livemode", "account", "context", "api_version", "data",
		"related_object", "snapshot_event")
	if err != nil {
		return e, err
	}
	kind, err := fields.text("object")
	switch {
	case err != nil:
		return e, err
	case kind == objectThin:
		e.Thin = true
	case kind != objectSnapshot:
		return e, errors.New(`"object" is neither "event" nor "v2.core.event"`)
	}
	if e.ID, err = fields.identifier("id"); err != nil {
		return e, err
	}
	if e.Type, err = fields.identifier("type"); err != nil {
		return e, err
	}
	if e.Livemode, err = fields.boolean("livemode"); err != nil {
		return e, err
	}
	if e.Account, err = fields.scope("account"); err != nil {
		return e, err
	}
	if e.Context, err = fields.scope("context"); err != nil {
		return e, err
	}
	if e.Thin {
		return e, fields.thin(&e)
	}
	return e, fields.snapshot(&e)
}

func (f fields) snapshot(e *Event) (err error) {
	if e.Created, err = unixTime(f["created"]); err != nil {
		return err
	}
	_ = json.Unmarshal(f["api_version"], &e.APIVersion) // null, or a form of the future
	// An object without a readable ID is no reason to refuse the event.
	if data, err := read(f["data"], "object"); err == nil {
		if object, err := read(data["object"], "id"); err == nil {
			e.Object, _ = object.text("id")
		}
	}
	return nil
}

func (f fields) thin(e *Event) (err error) {
	if e.Created, err = f.rfc3339("created"); err != nil {
		return err
	}
	if !f.null("snapshot_event") {
		if e.Snapshot, err = f.identifier("snapshot_event"); err != nil {
			return err
		}
	}
	if related, err := read(f["related_object"], "id", "url"); err == nil {
		e.Object, _ = related.text("id")
		e.ObjectURL, _ = related.text("url")
	}
	return nil
}

// unixTime reads an integer. It refuses 1e9, 1.0 and strings, so that no two notations are read differently by others.
func unixTime(raw json.RawMessage) (time.Time, error) {
	t, err := strict.UnixSeconds(string(raw))
	if err != nil || t.Unix() == 0 {
		return time.Time{}, errors.New(`"created" is not a number of seconds since 1970`)
	}
	return t, nil
}

func (f fields) rfc3339(name string) (time.Time, error) {
	text, err := f.text(name)
	if err != nil {
		return time.Time{}, err
	}
	t, err := strict.RFC3339(text)
	if err != nil {
		return time.Time{}, fmt.Errorf("%q %w", name, err)
	}
	return t, nil
}

// identifier reads a string that becomes part of a key. What is not printable ASCII is refused, and never replaced or cut, so that two
// events cannot get one key: encoding/json replaces invalid UTF-8.
func (f fields) identifier(name string) (string, error) {
	text, err := f.text(name)
	if err != nil {
		return "", err
	}
	if err := strict.Token(text, ""); err != nil {
		return "", fmt.Errorf("%q %w", name, err)
	}
	return text, nil
}

// scope reads an account or a path of accounts, which may be missing.
func (f fields) scope(name string) (string, error) {
	if f.null(name) {
		return "", nil
	}
	text, err := f.text(name)
	if err == nil && text != "" && !validScope(text) {
		err = fmt.Errorf("%q is not the ID of an account, nor a path of such IDs", name)
	}
	return text, err
}

// validScope accepts the characters of IDs and paths. They do not contain the separator of keys.tenant.
func validScope(s string) bool {
	return s != "" && len(s) <= maxScope && strings.IndexFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '-' && r != '/'
	}) < 0
}
