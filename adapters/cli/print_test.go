package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

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
		"a\nb\tc": "a b c", "\x1b[2Jgone": "\uFFFD[2Jgone", "  padded ": "padded", "überweisung": "überweisung", "\u202Eback": "\uFFFDback",
	} {
		if got := oneLine(text); got != want {
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

func TestDurations(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 90 * time.Second: "90s", 5*time.Minute + 3*time.Second: "5m03s", 26 * time.Hour: "26h00m", 15 * 24 * time.Hour: "15d00h",
	} {
		if got := ago(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
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
		{t.Context(), usage(errors.New("x")), ExitUsage},
		{t.Context(), errors.New("connection refused"), ExitUnreachable},
		{t.Context(), context.DeadlineExceeded, ExitUnreachable},
		{t.Context(), fmt.Errorf("x: %w", ops.ErrExpected), ExitRefused},
		{t.Context(), ops.ErrNoAction, ExitRefused},
		{t.Context(), consumer.ErrNotParked, ExitRefused},
		{t.Context(), dedup.ErrSchema, ExitRefused},
		{t.Context(), migrations.ErrNewer, ExitRefused},
		{ended, context.Canceled, ExitInterrupted},
		{ended, errors.New("connection closed"), ExitInterrupted},
		{ended, finding("letters failed"), ExitFinding},
	} {
		if got := ExitCode(classify(tc.ctx, time.Second, tc.err)); got != tc.want {
			t.Errorf("%v: %d, want %d", tc.err, got, tc.want)
		}
	}
	if ExitCode(errors.New(`unknown command "x"`)) != ExitUsage {
		t.Error("an error of cobra is none of usage")
	}
}
