// Package isolated calls a user's function so that runtime.Goexit in it does not end the goroutine of the caller.
package isolated

// Call calls f on another goroutine and waits until that goroutine ends. It reports whether f returned. If not, f called
// runtime.Goexit, as FailNow of a test does. f must recover its panics.
func Call(f func()) (returned bool) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		growStack()
		f()
		returned = true
	}()
	<-done
	return returned
}

// growStack makes the runtime give the goroutine a stack that a call of a database driver fits into. A new stack has 2 kB, and the
// runtime would otherwise double it several times and copy it each time, which costs more than the goroutine itself.
//
//go:noinline
func growStack() {
	var room [8 << 10]byte
	use(&room)
}

//go:noinline
func use(*[8 << 10]byte) {}
