package audit

import (
	"crypto/rand"
	"encoding/binary"
	mathrand "math/rand/v2"
	"time"

	"github.com/txonce/txonce/dedup"
)

// walk is the way through the claims. A walk over all begins at the first one. A sample begins at a random one, and
// jumps to another now and then.
type walk struct {
	all     bool
	whole   bool          // it has seen all claims
	after   dedup.KeyHash // the last claim of the page before
	began   dedup.KeyHash // where the walk began, or has jumped to
	wrapped bool
	inARow  int // pages since the last jump
	pages   int
}

// pagesInARow is how many pages a sample reads one after the other.
const pagesInARow = 10

func (w *walk) next() {
	w.pages++
	if w.all || w.pages > 1 && w.inARow < pagesInARow {
		w.inARow++
		return
	}
	w.wrapped, w.inARow = false, 1
	rand.Read(w.began[:]) // never fails
	if mathrand.IntN(2) == 0 {
		// Keys with a time begin with it, so that a random key would nearly always meet the first of them. See
		// dedup.Key.Hash.
		at := time.Now().Add(-time.Duration(mathrand.Int64N(int64(2 * dedup.DefaultWindow)))).UnixMilli()
		var ms [8]byte
		binary.BigEndian.PutUint64(ms[:], uint64(at))
		copy(w.began[:6], ms[2:])
	}
	w.after = w.began
}
