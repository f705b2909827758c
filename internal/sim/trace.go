package sim

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// Trace has a line for each step of a run. Its methods do nothing on nil.
type Trace struct {
	mu    sync.Mutex
	lines []string
}

// step writes what happens where a goroutine parks.
func (t *Trace) step(w *World, p *parking, what string) {
	if t == nil {
		return
	}
	line := label(p.boundary, p.about)
	if what != "" {
		line += "  <-- " + what
	}
	t.note(w, p.by.Name, line)
}

func (t *Trace) note(w *World, who, what string) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lines = append(t.lines, fmt.Sprintf("%9.4f  %-14s  %s", time.Since(w.began).Seconds(), who, what))
}

// Lines returns the lines so far.
func (t *Trace) Lines() []string {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]string{}, t.lines...)
}

// About returns the lines that contain one of these words.
func (t *Trace) About(words ...string) (found []string) {
	for _, line := range t.Lines() {
		fields := strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(" ,:;()[]", r) })
		for _, f := range fields {
			if contains(words, f) {
				found = append(found, line)
				break
			}
		}
	}
	return found
}

func contains(words []string, f string) bool {
	for _, word := range words {
		if word == f {
			return true
		}
	}
	return false
}
