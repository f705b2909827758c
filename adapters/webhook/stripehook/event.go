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
	// ID is the event's own ID: evt_…. A thin event has another ID than the snapshot event of the same change, see
	// Snapshot.
	ID string

	// Thin says that the payload names only the object: fetch it with Client.Get. Otherwise the payload has a copy of
	// the object, as it was when the event was created.
	Thin bool

	Type       string
	Created    time.Time
	Livemode   bool
	Account    string // the connected account, or empty; user_id in old API versions
	Context    string // the path of accounts, or empty: acct_1 or acct_1/acct_2
	APIVersion string // of the copy in a snapshot event

	// Object is the ID of the object that changed, or empty if it has none. ObjectURL is its path in Stripe's API; only
	// thin events have it.
	Object    string
	ObjectURL string

	// Snapshot is the ID of the snapshot event that Stripe made of the same change, if this is a thin event that names
	// one.
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

// Parse reads a payload, such as consumer.Message.Payload. It verifies no signature. Its error names all fields at
// fault, and does not show the payload.
func Parse(payload []byte) (Event, error) {
	e, err := parse(payload)
	if err != nil {
		return Event{}, fmt.Errorf("stripehook: read the event: %w", err)
	}
	return e, nil
}

func parse(payload []byte) (e Event, err error) {
	f, err := read(payload, "id", "object", "type", "created", "livemode", "account", "user_id", "context",
		"api_version", "data",
		"related_object", "snapshot_event")
	if err != nil {
		return e, err
	}
	var wrong faults
	kind, err := f.text("object")
	if wrong.add(err); err == nil && kind != objectThin && kind != objectSnapshot {
		wrong.add(errors.New(`"object" is neither "event" nor "v2.core.event"`))
	}
	e.ID, err = f.identifier("id")
	wrong.add(err)
	e.Type, err = f.identifier("type")
	wrong.add(err)
	e.Livemode, err = f.boolean("livemode")
	wrong.add(err)
	e.Account, err = f.account()
	wrong.add(err)
	e.Context, err = f.scope("context")
	wrong.add(err)
	switch kind {
	case objectThin:
		e.Thin = true
		wrong.add(f.thin(&e))
	case objectSnapshot:
		wrong.add(f.snapshot(&e))
	default: // only the object says how the time is written
		if f.null("created") {
			wrong.add(errNoTime)
		}
	}
	return e, wrong.err()
}

// faults are the errors of the fields of one event.
type faults []string

func (f *faults) add(err error) {
	if err != nil {
		*f = append(*f, err.Error())
	}
}

func (f faults) err() error {
	if len(f) == 0 {
		return nil
	}
	return errors.New(strings.Join(f, "; "))
}

// account reads the connected account. Events of API versions before 2017-05-25 have user_id instead of account.
func (f fields) account() (string, error) {
	account, err := f.scope("account")
	if err != nil {
		return "", err
	}
	user, err := f.scope("user_id")
	switch {
	case err != nil || account == "" || user == account:
		return user, err
	case user != "":
		return "", errors.New(`"account" and "user_id" are different accounts`)
	}
	return account, nil
}

func (f fields) snapshot(e *Event) (err error) {
	_ = json.Unmarshal(f["api_version"], &e.APIVersion) // null, or a form of the future
	// An object without a readable ID is no reason to refuse the event.
	if data, err := read(f["data"], "object"); err == nil {
		if object, err := read(data["object"], "id"); err == nil {
			e.Object, _ = object.text("id")
		}
	}
	e.Created, err = unixTime(f["created"])
	return err
}

func (f fields) thin(e *Event) (err error) {
	var wrong faults
	e.Created, err = f.rfc3339("created")
	wrong.add(err)
	if !f.null("snapshot_event") {
		e.Snapshot, err = f.identifier("snapshot_event")
		wrong.add(err)
	}
	if related, err := read(f["related_object"], "id", "url"); err == nil {
		e.Object, _ = related.text("id")
		e.ObjectURL, _ = related.text("url")
	}
	return wrong.err()
}

var errNoTime = errors.New(`"created" is missing`)

// unixTime reads an integer. It refuses 1e9, 1.0 and strings, so that no two notations are read differently by others.
func unixTime(raw json.RawMessage) (time.Time, error) {
	if raw == nil {
		return time.Time{}, errNoTime
	}
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

// identifier reads a string that becomes part of a key. What is not printable ASCII is refused, and never replaced or
// cut, so that two events cannot get one key: encoding/json replaces invalid UTF-8.
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
