// Package testlog collects what the code under test logs.
package testlog

import (
	"log/slog"
	"strings"
	"sync"
	"testing"
)

// Log collects lines. The zero value is ready to use. It is safe for concurrent use.
type Log struct {
	mu   sync.Mutex
	text strings.Builder
}

// New returns a Log that is shown if the test fails.
func New(t testing.TB) *Log {
	l := &Log{}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log("the log:\n" + l.String())
		}
	})
	return l
}

// Logger returns a Logger that writes to l.
func (l *Log) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// Write implements io.Writer.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String returns all lines.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Count returns how many lines contain text.
func (l *Log) Count(text string) (n int) {
	for line := range strings.Lines(l.String()) {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}
