package sim

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Trace has a line for each step of a run, and for what processes say between the steps. Its methods do nothing on nil.
type Trace struct {
	mu    sync.Mutex
	lines []string
	said  []said // since the last step
}

// said is what a process says. Several may say something at the same moment, in any order.
type said struct{ who, line string }

// step writes what happens where a goroutine parks.
func (t *Trace) step(w *World, p *parking, what string) {
	if t == nil {
		return
	}
	line := label(p.boundary, p.about)
	if what != "" {
		line += "  <-- " + what
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.flush()
	t.lines = append(t.lines, lineOf(w, p.by.Name, line))
}

func (t *Trace) note(w *World, who, what string) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.said = append(t.said, said{who, lineOf(w, who, what)})
}

func lineOf(w *World, who, what string) string {
	return fmt.Sprintf("%9.4f  %-15s  %s", time.Since(w.began).Seconds(), who, what)
}

// flush writes what was said since the last step, process by process.
func (t *Trace) flush() {
	slices.SortStableFunc(t.said, func(a, b said) int { return strings.Compare(a.who, b.who) })
	for _, s := range t.said {
		t.lines = append(t.lines, s.line)
	}
	t.said = t.said[:0]
}

// Lines returns the lines so far.
func (t *Trace) Lines() []string {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.flush()
	return slices.Clone(t.lines)
}

// About returns the lines that contain one of these words.
func (t *Trace) About(words ...string) (found []string) {
	for _, line := range t.Lines() {
		parts := strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(" ,:;()[]\"", r) })
		if slices.ContainsFunc(parts, func(part string) bool { return slices.Contains(words, part) }) {
			found = append(found, line)
		}
	}
	return found
}
