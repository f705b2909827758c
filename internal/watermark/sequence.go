package watermark

import "slices"

// sequence is the watermark of the sequence.
type sequence struct {
	server  int64    // see Marks.Move; 0: not known yet
	passed  int64    // all seqs up to it are committed, or never will be
	next    int64    // the next value of passed; 0: none
	writers []string // open transactions that may commit a seq up to next
	epoch   int      // how often the watermark was dropped
}

// outdated reports whether the sequence was set back, or may have been: since the server has started again, the
// sequence may have passed next again.
func (s *sequence) outdated(server, last int64) bool {
	return s.server != 0 && s.server != server || last < s.next
}

// behind reports whether there may be messages above the watermark that are committed.
func (s *sequence) behind() bool { return s.passed < s.next || s.server == 0 }

// move updates the watermark. last is the last seq, and writers are the transactions that were writing after last was
// read.
func (s *sequence) move(server, last int64, writers []string) {
	s.server = server
	if s.next > 0 {
		s.writers = slices.DeleteFunc(s.writers, func(writer string) bool { return !slices.Contains(writers, writer) })
		if len(s.writers) > 0 {
			return
		}
		s.passed = s.next
	}
	s.next, s.writers = last, writers
	if len(writers) == 0 {
		s.passed = last
	}
}
