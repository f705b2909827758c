package hmachook

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/txonce/txonce/adapters/webhook/internal/strict"
)

// The parts of a template that are not literal text. A header is "{header:", its name and "}".
const (
	partBody      = "{body}"
	partTimestamp = "{timestamp}"
	partURL       = "{url}"
	headerPrefix  = "{header:"
)

// template is Config.Signed.
type template struct {
	parts []string

	// container says that the body must be a JSON object or array. Apart from white space, no beginning or end of such
	// a text is one too, so only one division of the signed text into parts is possible.
	container bool

	// without has, for each {header:X}, the characters that its value must not have, because they say where the value
	// begins and ends.
	without map[string]string
}

var part = regexp.MustCompile(`\{[^{}]*\}|[^{}]+|[{}]`)

// newTemplate reads Config.Signed. format is how {timestamp} is written.
func newTemplate(text string, format TimeFormat) (template, error) {
	t := template{parts: part.FindAllString(text, -1), without: map[string]string{}}
	for i, p := range t.parts {
		before, next := t.at(i-1), t.at(i+1)
		switch name, isHeader := headerName(p); {
		case isHeader:
			if err := t.header(i, name, format); err != nil {
				return t, err
			}
		case !strings.ContainsAny(p, "{}"):
			if next == partTimestamp && endsInDigit(p) {
				return t, fmt.Errorf("%q ends in a digit and %s follows, so that it is unclear where the timestamp begins", p, next)
			}
		case p != partBody && p != partTimestamp && p != partURL:
			return t, fmt.Errorf("%q is unknown: want {body}, {timestamp}, {url} and {header:Name}, and other text without braces", p)
		case p == partTimestamp && beginsWithDigit(next):
			return t, fmt.Errorf("a digit follows {timestamp}, so that it is unclear where the timestamp ends")
		case p == partTimestamp && (next == partURL || before == partURL):
			return t, errors.New("{timestamp} is next to {url}, so that it is unclear where the timestamp ends")
		case p == partTimestamp && (next == partBody || before == partBody):
			t.container = true
		}
	}
	for _, p := range []string{partBody, partTimestamp, partURL} {
		if n := count(t.parts, p); n > 1 || p == partBody && n == 0 {
			return t, fmt.Errorf("%s occurs %d times: want it once", p, n)
		}
	}
	t.container = t.container || t.has(partURL)
	return t, nil
}

// header checks that it is clear where the value of the header at part i begins and ends. Visible characters without
// braces and brackets cannot be taken for the begin or end of a body that is a container. Literal text beside the value
// separates it, if the value does not have the character that it touches.
func (t *template) header(i int, name string, format TimeFormat) error {
	p, before, next := t.parts[i], t.at(i-1), t.at(i+1)
	if !fieldName.MatchString(name) {
		return fmt.Errorf("%q: want the name of a header after the colon", p)
	}
	if _, twice := t.without[name]; twice {
		return fmt.Errorf("%s occurs twice: want it once", p)
	}
	without := "{}[]"
	for _, side := range []struct {
		part  string
		touch func(string) byte
		end   bool // the part is the first or last one, so that its place is known
	}{{before, lastByte, i == 1}, {next, firstByte, i+2 == len(t.parts)}} {
		_, isHeader := headerName(side.part)
		switch {
		case side.part == "" || side.part == partBody:
			t.container = t.container || side.part == partBody
		case side.part == partTimestamp && next == partTimestamp && format == RFC3339 && t.at(i+2) == partBody:
			// A timestamp in this form is never the end of another one, and it ends where the body begins.
		case isHeader || side.part == partURL || side.part == partTimestamp:
			return fmt.Errorf("%s and %s touch, so that it is unclear where one of them ends", p, side.part)
		case !side.end:
			without += string(side.touch(side.part))
		}
	}
	t.without[name] = without
	return nil
}

// headerName returns the name in a {header:Name}, as http.Header has it.
func headerName(p string) (name string, ok bool) {
	name, ok = strings.CutPrefix(p, headerPrefix)
	return http.CanonicalHeaderKey(strings.TrimSuffix(name, "}")), ok
}

// at returns a part, or "" if there is none.
func (t template) at(i int) string {
	if i < 0 || i >= len(t.parts) {
		return ""
	}
	return t.parts[i]
}

func (t template) has(p string) bool { return slices.Contains(t.parts, p) }

// signs reports whether the header of that name is a part of the signed text.
func (t template) signs(name string) bool {
	_, found := t.without[http.CanonicalHeaderKey(name)]
	return found
}

// check returns an error unless each header that is signed is there once, and can be told from the parts beside it.
func (t template) check(h http.Header) error {
	for _, p := range t.parts {
		name, isHeader := headerName(p)
		if !isHeader {
			continue
		}
		value, err := strict.Header(h, name)
		if err != nil {
			return err
		}
		if err := strict.Token(value, t.without[name]); err != nil {
			return fmt.Errorf("header %s %w", name, err)
		}
	}
	return nil
}

// text returns the text that is signed.
func (t template) text(h http.Header, body []byte, timestamp, url string) []byte {
	var text []byte
	for _, p := range t.parts {
		switch p {
		case partBody:
			text = append(text, body...)
		case partTimestamp:
			text = append(text, timestamp...)
		case partURL:
			text = append(text, url...)
		default:
			if name, isHeader := headerName(p); isHeader {
				p = h.Get(name)
			}
			text = append(text, p...)
		}
	}
	return text
}

func count(parts []string, p string) (n int) {
	for _, q := range parts {
		if q == p {
			n++
		}
	}
	return n
}

func beginsWithDigit(s string) bool { return s != "" && isDigit(s[0]) }
func endsInDigit(s string) bool     { return s != "" && isDigit(lastByte(s)) }
func isDigit(c byte) bool           { return c >= '0' && c <= '9' }
func firstByte(s string) byte       { return s[0] }
func lastByte(s string) byte        { return s[len(s)-1] }
