package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/migrations"
)

func TestConfirm(t *testing.T) {
	for _, tc := range []struct {
		name, answer  string
		asks, yes, ok bool
	}{
		{"the word", "billing\n", true, false, true},
		{"the word without a line's end", "billing", true, false, true},
		{"another word", "yes\n", true, false, false},
		{"nothing", "", true, false, false},
		{"--yes", "", false, true, true},
		{"no terminal", "billing\n", false, false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var asked bytes.Buffer
			p := &printer{in: strings.NewReader(tc.answer), err: &asked, asks: tc.asks}
			err := p.confirm(t.Context(), "Type billing: ", "billing", tc.yes)
			if (err == nil) != tc.ok || err != nil && ExitCode(err) != ExitRefused {
				t.Errorf("%v (%d)", err, ExitCode(err))
			}
			if (asked.String() == "Type billing: ") != tc.asks {
				t.Errorf("asked %q", asked.String())
			}
		})
	}
}

// A script that left out --yes learns both flags that it needs.
func TestConfirmNamesExpect(t *testing.T) {
	p := &printer{in: strings.NewReader("billing\n"), err: io.Discard}
	err := p.confirmCount(t.Context(), "Type billing: ", "billing", 3)
	if ExitCode(err) != ExitRefused || !strings.HasSuffix(err.Error(), "--yes --expect 3") {
		t.Errorf("%v (%d)", err, ExitCode(err))
	}
}

// Ctrl-C ends a question that waits for its answer.
func TestConfirmIsInterrupted(t *testing.T) {
	in, terminal := io.Pipe()
	defer terminal.Close()
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	p := &printer{in: in, err: io.Discard, asks: true}
	if err := p.confirm(ctx, "Type billing: ", "billing", false); ExitCode(err) != ExitInterrupted {
		t.Errorf("%v (%d)", err, ExitCode(err))
	}
}

func TestProgress(t *testing.T) {
	var err bytes.Buffer
	p := newProgress(&printer{err: &err, bars: true}, "replayed", 60)
	p.show(20, 1)
	p.end()
	if want := "\r\x1b[K[##########                    ] 20 of 60 replayed, 1 failed\n"; err.String() != want {
		t.Errorf("bar %q, want %q", err.String(), want)
	}
	err.Reset()
	p = newProgress(&printer{err: &err}, "replayed", 60)
	p.show(20, 0)
	p.printed = p.printed.Add(-progressEvery)
	p.show(30, 0)
	p.show(31, 0)
	p.end()
	if want := "30 of 60 replayed\n"; err.String() != want {
		t.Errorf("lines %q, want %q", err.String(), want)
	}
}

func TestTextIsHarmless(t *testing.T) {
	for text, want := range map[string]string{
		"a\nb\tc": "a b c", "\x1b[2Jgone": "\uFFFD[2Jgone", "  padded ": "padded", "überweisung": "überweisung",
		"\u202Eback": "\uFFFDback",
	} {
		if got := Harmless(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if got := payloadText([]byte("\x1b]0;x\x07")); strings.ContainsRune(got, '\x1b') {
		t.Errorf("payload %q", got)
	}
	if got := payloadText([]byte{0xff, 0x00}); got != "ff00" {
		t.Errorf("payload %q", got)
	}
}

// JSON stays the same text, and cannot control a terminal either.
func TestJSONIsHarmless(t *testing.T) {
	type text struct{ Text string }
	want := text{"\u009b2Jgone \u202eback\x7f \U000E0001 überweisung \"<&>\"\n"}
	var out bytes.Buffer
	if err := (&printer{out: &out, json: true}).object(want, nil); err != nil {
		t.Fatal(err)
	}
	for _, r := range strings.TrimSuffix(out.String(), "\n") {
		if !unicode.IsPrint(r) {
			t.Errorf("%q has %U", out.String(), r)
		}
	}
	var got text
	if err := json.Unmarshal(out.Bytes(), &got); err != nil || got != want || !strings.Contains(out.String(),
		"überweisung") {
		t.Errorf("%q, %v", out.String(), err)
	}
}

// A key of a thousand characters does not widen the table.
func TestTableIsNarrow(t *testing.T) {
	var out bytes.Buffer
	(&printer{out: &out}).table([][]string{{"KEY", "CAUSE"}, {strings.Repeat("k", 1000), "panic"}})
	for line := range strings.Lines(out.String()) {
		if len(line) > 100 {
			t.Errorf("%d characters: %s", len(line), line)
		}
	}
}

// The end of an error often names its cause, and the last column widens no other.
func TestTableShowsErrors(t *testing.T) {
	var out bytes.Buffer
	text := "kafka: topic \"charges\": charges: kafka server: Request was for a topic or partition that does not exist on this broker"
	(&printer{out: &out}).table([][]string{{"TOPIC", "ERROR"}, {"charges", text}})
	if !strings.Contains(out.String(), text) {
		t.Errorf("the error is cut:\n%s", out.String())
	}
}

func TestTimes(t *testing.T) {
	at, now := time.Date(2026, 11, 24, 10, 7, 0, 0, time.UTC), time.Now()
	for _, text := range []string{"2026-11-24T10:07:00Z", "2026-11-24T15:37:00+05:30", instant(at)} {
		if got, err := parseTime("--since", text, now); err != nil || !got.Equal(at) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	if got, err := parseTime("--since", "90m", now); err != nil || !got.Equal(now.Add(-90*time.Minute)) {
		t.Errorf("%v, %v", got, err)
	}
	for _, text := range []string{"yesterday", "-2h", "0s", "2026-11-24"} {
		if _, err := parseTime("--since", text, now); ExitCode(err) != ExitUsage {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestDurations(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 90 * time.Second: "90s", 5*time.Minute + 3*time.Second: "5m03s", 26 * time.Hour: "26h00m",
		15 * 24 * time.Hour: "15d00h",
	} {
		if got := ago(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}

func TestSweepText(t *testing.T) {
	now := time.Date(2026, 11, 24, 10, 7, 0, 0, time.UTC)
	got := sweep(ops.Status{Now: now, Sweep: ops.SweepStatus{Owner: "host/1", LeaseUntil: now.Add(time.Minute), Keys: -1}})
	if want := "no pass has ended yet, sweeper host/1 has the lease until 2026-11-24 10:08:00Z"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestExitCodes(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tc := range []struct {
		ctx  context.Context
		err  error
		want int
	}{
		{t.Context(), nil, ExitFine},
		{t.Context(), finding("x"), ExitFinding},
		{t.Context(), Usage(errors.New("x")), ExitUsage},
		{t.Context(), errors.New("connection refused"), ExitUnreachable},
		{t.Context(), context.DeadlineExceeded, ExitUnreachable},
		{t.Context(), fmt.Errorf("x: %w", ops.ErrExpected), ExitRefused},
		{t.Context(), ops.ErrNoAction, ExitRefused},
		{t.Context(), consumer.ErrNotParked, ExitRefused},
		{t.Context(), dedup.ErrSchema, ExitRefused},
		{t.Context(), migrations.ErrNewer, ExitRefused},
		{t.Context(), fmt.Errorf("x: %w", denied{}), ExitRefused},
		{ended, context.Canceled, ExitInterrupted},
		{ended, errors.New("connection closed"), ExitInterrupted},
		{ended, finding("letters failed"), ExitFinding},
		{ended, interrupted("nothing was changed"), ExitInterrupted},
	} {
		if got := ExitCode(classify(tc.ctx, time.Second, tc.err)); got != tc.want {
			t.Errorf("%v: %d, want %d", tc.err, got, tc.want)
		}
	}
	if err := classify(t.Context(), time.Second, context.DeadlineExceeded); !strings.Contains(err.Error(),
		"no answer within 1s (--timeout)") {
		t.Error(err)
	}
	if ExitCode(errors.New(`unknown command "x"`)) != ExitUsage {
		t.Error("an error of cobra is none of usage")
	}
}

// denied is an answer of PostgreSQL to a user without the right.
type denied struct{}

func (denied) Error() string    { return "permission denied for table operator_actions" }
func (denied) SQLState() string { return "42501" }
