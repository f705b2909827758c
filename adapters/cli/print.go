package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf16"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/ops"
)

// printer writes the output of one command.
type printer struct {
	out, err io.Writer
	failed   error // the first one of writing to out
	in       io.Reader
	json     bool
	keys     ops.HideKeys

	asks, bars, screen bool // in, err and out are terminals
}

func (a *app) printer(cmd *cobra.Command) *printer {
	p := &printer{out: cmd.OutOrStdout(), err: cmd.ErrOrStderr(), in: cmd.InOrStdin(), json: a.json, keys: a.keys}
	p.asks, p.bars, p.screen = isTerminal(p.in), isTerminal(p.err), isTerminal(p.out)
	return p
}

// object prints v as JSON if --json is given, and calls text otherwise. v must be a struct that begins with version.
func (p *printer) object(v any, text func()) error {
	if !p.json {
		text()
		return p.failed
	}
	var encoded bytes.Buffer
	enc := json.NewEncoder(&encoded)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	p.printf("%s", harmlessJSON(encoded.String()))
	return p.failed
}

// harmlessJSON escapes what could control a terminal and is not escaped in JSON. Such characters are only in strings.
func harmlessJSON(text string) string {
	var b strings.Builder
	for _, r := range text {
		if r == '\n' || unicode.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	return b.String()
}

// version is the first field of every JSON object.
type version struct {
	V int `json:"v"`
}

func v1() version { return version{V: 1} }

func (p *printer) printf(format string, args ...any) {
	if _, err := fmt.Fprintf(p.out, format, args...); err != nil && p.failed == nil {
		p.failed = &coded{ExitUnreachable, fmt.Errorf("the output is not complete: %w", err)}
	}
}

// field prints a name and its value in a line.
func (p *printer) field(name, format string, args ...any) {
	p.printf("%-12s %s\n", name, Harmless(fmt.Sprintf(format, args...)))
}

// notef writes to the other stream, for progress and questions.
func (p *printer) notef(format string, args ...any) { fmt.Fprintf(p.err, format, args...) }

// A table shows so much of a text. A key may have a thousand characters, and would widen the column of all rows. The
// last column widens nothing: it has errors, whose end often names the cause.
const cellWidth, lastWidth = 80, 500

// table prints rows in columns. The first row has the headings.
func (p *printer) table(rows [][]string) {
	var text bytes.Buffer
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		for i, cell := range row {
			width := cellWidth
			if i == len(row)-1 {
				width = lastWidth
			}
			row[i] = shorten(cell, width)
			if row[i] == "" {
				row[i] = "-"
			}
		}
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	_ = w.Flush() // to a buffer
	p.printf("%s", text.String())
}

// key returns a business key, an ordering key or the ID of a message as it may be seen. An ID that the application has
// chosen may be a business key, and nothing tells it from one that txonce has derived.
func (p *printer) key(key string) string { return p.keys.Key(key) }

// position returns where l's message came from. It may end with a key.
func (p *printer) position(l *consumer.DeadLetter) string {
	return p.keys.Position(l.Message.Position, l.Record.Key.ID, l.Message.ID)
}

// Harmless makes text harmless for a terminal: text that other programs have chosen must not move the cursor or look
// like another line.
func Harmless(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\t', r == '\r':
			return ' '
		case !unicode.IsPrint(r):
			return '\uFFFD'
		}
		return r
	}, strings.TrimSpace(text))
}

// shorten cuts a text after n runes.
func shorten(text string, n int) string {
	r := []rune(Harmless(text))
	if len(r) <= n {
		return string(r)
	}
	return string(r[:n-1]) + "…"
}

// instant returns a time for people; empty for the zero time.
func instant(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05Z")
}

// ago returns a duration for people.
func ago(d time.Duration) string {
	switch {
	case d < time.Second:
		return "0s"
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd%02dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
}

// jsonTime is nil for the zero time.
func jsonTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

func isTerminal(f any) bool {
	file, ok := f.(*os.File)
	return ok && isatty.IsTerminal(file.Fd())
}

// count returns a number of things: "1 letter", "2 letters".
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// counted also has the verb: "1 letter is", "2 letters are".
func counted(n int, thing string) string {
	if n == 1 {
		return count(n, thing) + " is"
	}
	return count(n, thing) + " are"
}
