package wire

import (
	"math/rand/v2"
	"regexp"
	"sync"

	"github.com/txonce/txonce/internal/test/wireproxy"
)

// boundary is a kind of statement.
type boundary struct {
	name string
	is   *regexp.Regexp // matches its text
	need need           // what a case must do so that the statement is sent
	// the proxy cannot make the server fail it
	refuses bool
	silent  bool              // the server does not answer it
	none    map[string]string // the actions that are left out, as in "stall" or "answered: stall", and why
}

// possible reports whether the proxy can do this to the boundary's requests.
func (b boundary) possible(k wireproxy.Kind) bool {
	switch k {
	case wireproxy.CutLate:
		return b.name != wireproxy.Connect
	case wireproxy.Answer:
		return b.name != wireproxy.Connect && !b.refuses
	default:
		return true
	}
}

// need is what a case does so that the statement of its boundary is sent.
type need int

const (
	anything need = iota
	fresh         // new connections
	poison        // a message that fails for good
	failure       // a message that fails once
	twin          // a second delivery
)

const (
	commitBoundary = "COMMIT"
	other          = "anything else"
)

func text(pattern string) *regexp.Regexp { return regexp.MustCompile(`(?is)` + pattern) }

// cell is a boundary and an action.
type cell struct {
	boundary string
	answered bool // at the server's answer
	kind     wireproxy.Kind
	need     need
}

func (c cell) place() string {
	if c.answered {
		return c.boundary + ", answered"
	}
	return c.boundary
}

var (
	requestKinds = []wireproxy.Kind{wireproxy.CutBefore, wireproxy.CutAfter, wireproxy.CutLate, wireproxy.Stall, wireproxy.Answer}
	answerKinds  = []wireproxy.Kind{wireproxy.CutBefore, wireproxy.CutAfter, wireproxy.Stall}
)

// role is what the lanes of a kind send.
type role struct {
	name       string
	boundaries []boundary

	mu    sync.Mutex
	known map[string]string // the names of texts
}

// boundaryOf returns the name of a frame's boundary.
func (r *role) boundaryOf(f wireproxy.Frame) string {
	switch {
	case f.Commit:
		return commitBoundary
	case f.Statement == wireproxy.Connect, f.Statement == wireproxy.Cancel:
		return f.Statement
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	name, found := r.known[f.Statement]
	if !found {
		name = other
		for _, b := range r.boundaries {
			if b.is != nil && b.is.MatchString(f.Statement) {
				name = b.name
				break
			}
		}
		if r.known == nil {
			r.known = map[string]string{}
		}
		r.known[f.Statement] = name
	}
	return name
}

// cells returns those with and those without a reason to be left out. COMMIT's are there twice, so that they are drawn
// twice as often.
func (r *role) cells() (tried []cell, left map[cell]string) {
	left = map[cell]string{}
	for _, b := range r.boundaries {
		for _, answered := range []bool{false, true} {
			if answered && b.silent {
				continue
			}
			kinds := requestKinds
			if answered {
				kinds = answerKinds
			}
			for _, k := range kinds {
				c := cell{b.name, answered, k, b.need}
				reason, out := b.none[k.String()]
				if answered {
					reason, out = b.none["answered: "+k.String()]
				}
				switch {
				case !answered && !b.possible(k):
				case out:
					left[c] = reason
				case b.name == commitBoundary:
					tried = append(tried, c, c)
				default:
					tried = append(tried, c)
				}
			}
		}
	}
	return tried, left
}

// deck draws each cell once before it draws one again, in an order of the seed.
type deck struct {
	seed  uint64
	cells []cell
}

func (d deck) draw(n int) cell {
	round, at := n/len(d.cells), n%len(d.cells)
	return d.cells[rand.New(rand.NewPCG(d.seed, uint64(round))).Perm(len(d.cells))[at]]
}
