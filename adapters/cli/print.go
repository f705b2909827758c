package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/ops"
)

// printer writes the output of one command.
type printer struct {
	out, err io.Writer
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
		return nil
	}
	enc := json.NewEncoder(p.out)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// version is the first field of every JSON object.
type version struct {
	V int `json:"v"`
}

func v1() version { return version{V: 1} }

func (p *printer) printf(format string, args ...any) { fmt.Fprintf(p.out, format, args...) }

// notef writes to the other stream, for progress and questions.
func (p *printer) notef(format string, args ...any) { fmt.Fprintf(p.err, format, args...) }

// table prints rows in columns. The first row has the headings.
func (p *printer) table(rows [][]string) {
	w := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		for i, cell := range row {
			row[i] = oneLine(cell)
			if row[i] == "" {
				row[i] = "-"
			}
		}
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	_ = w.Flush() // as for fmt.Fprint
}

// key returns a natural key as it may be seen.
func (p *printer) key(key string) string { return p.keys.Key(key) }

// position returns where l's message came from. It may end with a key.
func (p *printer) position(l *consumer.DeadLetter) string {
	return p.keys.Position(l.Message.Position, l.Record.Key.ID, l.Message.ID)
}

// oneLine makes text harmless for a terminal: a line that other programs have chosen must not move the cursor or look like another line.
func oneLine(text string) string {
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

func quote(s string) string { return strconv.Quote(s) }

// shorten cuts a text after n runes.
func shorten(text string, n int) string {
	r := []rune(oneLine(text))
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

// isTerminal reports whether f is a terminal, or another device of characters.
func isTerminal(f any) bool {
	file, ok := f.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
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
