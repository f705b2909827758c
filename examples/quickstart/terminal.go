package main

import (
	"fmt"
	"io"
	"os"
	"time"
)

// terminal prints lines. On a real terminal it keeps a live line below them; elsewhere it prints the live line only
// rarely.
type terminal struct {
	out      io.Writer
	rewrites bool
	shown    bool // a live line is on the screen
	last     time.Time
}

func newTerminal(out io.Writer) *terminal {
	t := &terminal{out: out, last: time.Now()}
	if f, ok := out.(*os.File); ok {
		info, err := f.Stat()
		t.rewrites = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return t
}

const (
	eraseLine = "\r\x1b[K"
	quiet     = 2 * time.Second // between two progress lines that are not rewritten
)

// print prints a line.
func (t *terminal) print(format string, args ...any) {
	t.clear()
	fmt.Fprintf(t.out, format+"\n", args...)
}

// live shows the progress.
func (t *terminal) live(line string) {
	if t.rewrites {
		fmt.Fprint(t.out, eraseLine, line)
		t.shown = true
		return
	}
	if now := time.Now(); now.Sub(t.last) >= quiet {
		t.last = now
		fmt.Fprintln(t.out, line)
	}
}

// clear removes the live line.
func (t *terminal) clear() {
	if t.shown {
		fmt.Fprint(t.out, eraseLine)
		t.shown = false
	}
}
