package dashboard

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/observe"
)

// choice is a filter of dead letters as a form has it. The same names are in addresses, in forms and in the hidden
// fields of actions.
type choice struct {
	Consumer, Cause, Topic, Key, Tenant, Error, Since, Until, ID string
}

// choiceOf reads the filter of a request.
func choiceOf(r *http.Request) choice {
	text := func(name string) string { return strings.TrimSpace(r.FormValue(name)) }
	return choice{
		Consumer: r.FormValue("consumer"), Cause: text("cause"), Topic: r.FormValue("topic"), Key: r.FormValue("key"),
		Tenant: r.FormValue("tenant"),
		Error:  r.FormValue("error"), Since: text("since"), Until: text("until"), ID: text("id"),
	}
}

// filter returns the filter, or which field is wrong.
func (c choice) filter() (f consumer.DeadLetterFilter, err error) {
	f = consumer.DeadLetterFilter{
		Consumer: c.Consumer, Cause: observe.Cause(c.Cause), Topic: c.Topic, MessageID: c.Key, Tenant: c.Tenant,
		Error: c.Error,
	}
	if c.ID != "" {
		if f.ID, err = consumer.ParseDeadLetterID(c.ID); err != nil {
			return f, err
		}
	}
	if f.Since, err = parseTime("since", c.Since); err != nil {
		return f, err
	}
	f.Until, err = parseTime("until", c.Until)
	return f, err
}

// parseTime accepts RFC 3339, and what a browser's field for a time sends, which is read as UTC.
func parseTime(field, s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{
		time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04:05",
		"2006-01-02",
	} {
		if t, err := time.Parse(layout, s); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, fmt.Errorf("%s is %q: want a time such as 2026-11-24T10:00, in UTC", field, s)
}

// Query returns the choice as the query of an address, with further names and values.
func (c choice) Query(more ...string) string {
	q := url.Values{}
	for name, value := range map[string]string{
		"consumer": c.Consumer, "cause": c.Cause, "topic": c.Topic, "key": c.Key, "tenant": c.Tenant, "error": c.Error,
		"since": c.Since, "until": c.Until, "id": c.ID,
	} {
		if value != "" {
			q.Set(name, value)
		}
	}
	for i := 0; i+1 < len(more); i += 2 {
		q.Set(more[i], more[i+1])
	}
	return q.Encode()
}

func lettersOf(name string) string { return "letters?" + choice{Consumer: name}.Query() }

// cursorText writes a position among letters for an address. One without an ID is before all letters of its time.
func cursorText(c consumer.DeadLetterCursor) string {
	if c.ID == (consumer.DeadLetterID{}) {
		return strconv.FormatInt(c.First.UnixMicro(), 10)
	}
	return strconv.FormatInt(c.First.UnixMicro(), 10) + "." + c.ID.String()
}

func parseCursor(s string) (c consumer.DeadLetterCursor, err error) {
	if s == "" {
		return c, nil
	}
	micros, id, named := strings.Cut(s, ".")
	n, err := strconv.ParseInt(micros, 10, 64)
	if c.First = time.UnixMicro(n).UTC(); err == nil && named {
		c.ID, err = consumer.ParseDeadLetterID(id)
	}
	if err != nil {
		return c, fmt.Errorf("after is %q: follow a link of the page before", s)
	}
	return c, nil
}

// whole reads a field that is a whole number, not negative.
func whole(r *http.Request, field string, otherwise int) (int, error) {
	s := strings.TrimSpace(r.FormValue(field))
	if s == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%s is %q: want a whole number", field, s)
	}
	return n, nil
}
