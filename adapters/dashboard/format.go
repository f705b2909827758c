package dashboard

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html/template"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/observe"
)

// funcs are what templates call.
func (d *Dashboard) funcs() template.FuncMap {
	return template.FuncMap{
		"num":         number,
		"count":       capped,
		"planned":     func() string { return number(maxPlanned) },
		"span":        span,
		"utc":         utc,
		"ago":         func(t time.Time) string { return ago(time.Since(t)) },
		"key":         func(s string) string { return visible(d.cfg.HideKeys.Key(s)) },
		"visible":     visible,
		"hidden":      func() bool { return len(d.cfg.HideKeys.Secret) > 0 },
		"position":    d.position,
		"fingerprint": fingerprint,
		"short":       short,
		"filter":      d.filterText,
		"note":        d.noteText,
		"query":       func(q string) template.URL { return template.URL(q) }, // made by url.Values.Encode
		"done":        func(a ops.Action) int { return a.Matched - a.Waiting },
		"failed":      func(a ops.Action) int { return a.Results[observe.Parked] },
		"runbook":     func(alert string) string { return d.cfg.Runbook + alert + ".md" },
	}
}

// position returns where the message of a letter was, without its key if Config.HideKeys hides that.
func (d *Dashboard) position(l consumer.DeadLetter) string {
	return visible(d.cfg.HideKeys.Position(l.Message.Position, l.Record.Key.ID, l.Message.ID))
}

// filterText returns the filter of an action, with its key as Config.HideKeys wants it. A position may contain a key.
func (d *Dashboard) filterText(filter string) string {
	fields := map[string]any{}
	if len(d.cfg.HideKeys.Secret) == 0 || json.Unmarshal([]byte(filter), &fields) != nil {
		return filter
	}
	for _, name := range []string{"message_id", "position"} {
		if key, ok := fields[name].(string); ok {
			fields[name] = d.cfg.HideKeys.Key(key)
		}
	}
	hidden, err := json.Marshal(fields)
	if err != nil {
		return ""
	}
	return string(hidden)
}

// noteText returns the note of an action. That of the outbox describes a filter, which may have a key.
func (d *Dashboard) noteText(a ops.Action) string {
	before, _, found := strings.Cut(a.Note, ", key ")
	if found && len(d.cfg.HideKeys.Secret) > 0 && (a.Kind == ops.Unpark || a.Kind == ops.Answer || a.Kind == ops.DiscardOutbox) {
		return before + ", a key"
	}
	return a.Note
}

// number writes 1204567 as 1,204,567.
func number(n any) string {
	digits := fmt.Sprintf("%d", n)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

func capped(n, limit int) string {
	if n > limit {
		return "more than " + number(limit)
	}
	return number(n)
}

// span writes a duration with its two largest units.
func span(d time.Duration) string {
	if d < 0 {
		return "-" + span(-d)
	}
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return two(int(d.Minutes()), "min", int(d.Seconds())%60, "s")
	case d < 48*time.Hour:
		return two(int(d.Hours()), "h", int(d.Minutes())%60, "min")
	default:
		return two(int(d.Hours())/24, "d", int(d.Hours())%24, "h")
	}
}

func two(a int, unit string, b int, smaller string) string {
	if b == 0 {
		return fmt.Sprintf("%d %s", a, unit)
	}
	return fmt.Sprintf("%d %s %d %s", a, unit, b, smaller)
}

func ago(d time.Duration) string {
	switch {
	case d > -time.Second && d < time.Second:
		return "now"
	case d < 0:
		return "in " + span(-d)
	default:
		return span(d) + " ago"
	}
}

func utc(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

func fingerprint(f dedup.Fingerprint) string {
	if f.IsZero() {
		return "unknown"
	}
	return hex.EncodeToString(f[:])
}

// visible returns s, or its Go syntax if a reader could not tell it from other text.
func visible(s string) string {
	if !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) ||
		strings.TrimSpace(s) != s {
		return strconv.Quote(s)
	}
	return s
}

// short returns the first line of an error, and not all of it if it is long: the page of the letter has the rest.
func short(s string) string {
	const most = 160
	line, rest, _ := strings.Cut(s, "\n")
	if runes := []rune(line); len(runes) > most {
		line, rest = string(runes[:most]), "…"
	}
	if rest != "" {
		line += " …"
	}
	return line
}

// maxPayload is how much of a payload a page shows.
const maxPayload = 64 << 10

// maxDepth is up to where JSON is indented: the indentation of deeper JSON grows with the square of its length.
const maxDepth = 64

// deep reports whether brackets are nested deeper than maxDepth. Those in strings count too.
func deep(json []byte) bool {
	depth, deepest := 0, 0
	for _, c := range json {
		switch c {
		case '[', '{':
			depth++
			deepest = max(deepest, depth)
		case ']', '}':
			depth--
		}
	}
	return deepest > maxDepth
}

// readable returns a payload for people: JSON indented, text as it is, bytes as a dump.
func readable(payload []byte, limit int) (text, form string) {
	part, cut := payload, ""
	if len(payload) > limit {
		part = wholeRunes(payload[:limit])
		cut = fmt.Sprintf("\n… %s bytes more", number(len(payload)-len(part)))
	}
	var indented strings.Builder
	if cut == "" && utf8.Valid(payload) && json.Valid(payload) && !deep(payload) {
		var raw json.RawMessage = payload
		encoder := json.NewEncoder(&indented)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		if encoder.Encode(raw) == nil {
			return strings.TrimSuffix(indented.String(), "\n"), "JSON"
		}
	}
	if utf8.Valid(part) && !bytes.ContainsFunc(part, unprintable) {
		return string(part) + cut, "text"
	}
	return hex.Dump(part) + cut, "bytes"
}

// wholeRunes returns text without the begin of a rune at its end.
func wholeRunes(text []byte) []byte {
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		if last := text[len(text)-n:]; utf8.RuneStart(last[0]) {
			if !utf8.FullRune(last) {
				return text[:len(text)-n]
			}
			break
		}
	}
	return text
}

func unprintable(r rune) bool {
	return !unicode.IsPrint(r) && r != '\n' && r != '\t' && r != '\r'
}
