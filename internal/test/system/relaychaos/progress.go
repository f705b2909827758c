//go:build unix

package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// progress prints lines. On a terminal it keeps a live line below them; elsewhere it prints the live line only rarely.
type progress struct {
	mu       sync.Mutex
	out      io.Writer
	start    time.Time
	rewrites bool
	shown    bool // a live line is on the screen
	last     time.Time
	faults   int
}

const (
	eraseLine = "\r\x1b[K"
	quiet     = 5 * time.Second // between two progress lines that are not rewritten
)

func newProgress(out io.Writer) *progress {
	p := &progress{out: out, start: time.Now()}
	if f, ok := out.(*os.File); ok {
		info, err := f.Stat()
		p.rewrites = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return p
}

// print prints a line.
func (p *progress) print(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
	fmt.Fprintf(p.out, "%6.1f s  %s\n", time.Since(p.start).Seconds(), fmt.Sprintf(format, args...))
}

// fault prints a line about a fault, with its number.
func (p *progress) fault(format string, args ...any) {
	p.mu.Lock()
	p.faults++
	n := p.faults
	p.mu.Unlock()
	p.print("%3d: %s", n, fmt.Sprintf(format, args...))
}

// live shows the progress.
func (p *progress) live(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	switch {
	case p.rewrites:
		fmt.Fprint(p.out, eraseLine, line)
		p.shown = true
	case now.Sub(p.last) >= quiet:
		p.last = now
		fmt.Fprintf(p.out, "%6.1f s  %s\n", now.Sub(p.start).Seconds(), line)
	}
}

func (p *progress) clear() {
	if p.shown {
		fmt.Fprint(p.out, eraseLine)
		p.shown = false
	}
}
