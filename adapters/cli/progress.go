package cli

import (
	"fmt"
	"strings"
	"time"
)

// progress shows how far long work is: a bar on a terminal, and a line every ten seconds otherwise. It writes to the
// stream of errors.
type progress struct {
	out      *printer
	what     string
	total    int // 0: unknown
	terminal bool
	printed  time.Time
	shown    bool
}

func newProgress(out *printer, what string, total int) *progress {
	return &progress{out: out, what: what, total: total, terminal: out.bars, printed: time.Now()}
}

const (
	barWidth      = 30
	progressEvery = 10 * time.Second
)

func (p *progress) show(done, failed int) {
	text := fmt.Sprintf("%d %s", done, p.what)
	if p.total > 0 {
		text = fmt.Sprintf("%d of %d %s", done, p.total, p.what)
	}
	if failed > 0 {
		text += fmt.Sprintf(", %d failed", failed)
	}
	switch {
	case p.terminal && p.total > 0:
		full := min(barWidth*done/p.total, barWidth)
		p.out.notef("\r\x1b[K[%s%s] %s", strings.Repeat("#", full), strings.Repeat(" ", barWidth-full), text)
		p.shown = true
	case p.terminal:
		p.out.notef("\r\x1b[K%s", text)
		p.shown = true
	case time.Since(p.printed) >= progressEvery:
		p.printed = time.Now()
		p.out.notef("%s\n", text)
	}
}

// end leaves the line of the bar.
func (p *progress) end() {
	if p.shown {
		p.out.notef("\n")
		p.shown = false
	}
}
