package hmachook

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// The parts of a template that are not literal text.
const (
	partBody      = "{body}"
	partTimestamp = "{timestamp}"
	partURL       = "{url}"
)

// template is Config.Signed.
type template struct {
	parts []string

	// container says that the body must be a JSON object or array. Apart from white space, no beginning or end of such a text is one too, so
	// only one division of the signed text into parts is possible.
	container bool
}

var part = regexp.MustCompile(`\{[^{}]*\}|[^{}]+|[{}]`)

func newTemplate(text string) (template, error) {
	t := template{parts: part.FindAllString(text, -1)}
	for i, p := range t.parts {
		next := ""
		if i+1 < len(t.parts) {
			next = t.parts[i+1]
		}
		switch {
		case !strings.ContainsAny(p, "{}"):
			if next == partTimestamp && endsInDigit(p) {
				return t, fmt.Errorf("%q ends in a digit and %s follows, so that it is unclear where the timestamp begins", p, next)
			}
		case p != partBody && p != partTimestamp && p != partURL:
			return t, fmt.Errorf("%q is unknown: want {body}, {timestamp} and {url}, and other text without braces", p)
		case p == partTimestamp && beginsWithDigit(next):
			return t, fmt.Errorf("a digit follows {timestamp}, so that it is unclear where the timestamp ends")
		case p == partTimestamp && next == partURL || p == partURL && next == partTimestamp:
			return t, errors.New("{timestamp} is next to {url}, so that it is unclear where the timestamp ends")
		case p == partTimestamp && next == partBody || p == partBody && next == partTimestamp:
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

func (t template) has(p string) bool { return slices.Contains(t.parts, p) }

// text returns the text that is signed.
func (t template) text(body []byte, timestamp, url string) []byte {
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
func endsInDigit(s string) bool     { return s != "" && isDigit(s[len(s)-1]) }
func isDigit(c byte) bool           { return c >= '0' && c <= '9' }
