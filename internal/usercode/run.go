package usercode

import (
	"fmt"
	"runtime/debug"
)

// An Ended says how a call of the user's code ended without returning.
type Ended struct {
	Value any    // of the panic, whose methods are the user's code too; nil: it called runtime.Goexit
	Stack []byte // of the panic
	text  string
}

// Error says how the call ended, such as "panicked: no such account". Prefix it with the name of the function.
func (e *Ended) Error() string { return e.text }

// Of returns an error that begins with the name of the function that ended.
func (e *Ended) Of(what string) error { return fmt.Errorf("%s %w", what, e) }

const goexit = "ended its goroutine instead of returning: it called runtime.Goexit, or FailNow of a test"

// Run calls f on another goroutine, and waits until f returns, panics, or ends that goroutine. It returns nil if f
// returned.
func Run(f func()) (ended *Ended) {
	done := make(chan struct{})
	returned := false
	go func() {
		defer close(done)
		defer func() {
			if returned {
				return
			}
			ended = &Ended{text: goexit} // also what stays if the value of the panic ends the goroutine
			if v := recover(); v != nil {
				ended = panicked(v)
			}
		}()
		growStack()
		f()
		returned = true
	}()
	<-done
	return ended
}

// Here calls f, which may only panic, on the goroutine of the caller. If f calls runtime.Goexit, the caller ends too.
// It is for code that Run surrounds, and costs less.
func Here(f func()) (ended *Ended) {
	defer func() {
		if v := recover(); v != nil {
			ended = panicked(v)
		}
	}()
	f()
	return nil
}

// Or returns what f returns. If f does not return, Or returns what instead returns.
func Or[R any](f func() R, instead func(*Ended) R) (r R) {
	if ended := Run(func() { r = f() }); ended != nil {
		return instead(ended)
	}
	return r
}

// Err calls f, which is called what in the error if it does not return. The error is safe.
func Err(what string, f func() error) error {
	var err error
	if ended := Run(func() { err = f() }); ended != nil {
		return ended.Of(what)
	}
	return Error(err)
}

// panicked is called while a panic with v is recovered.
func panicked(v any) *Ended {
	return &Ended{v, debug.Stack(), "panicked: " + printed(v)}
}

// printed returns v as fmt.Sprint does, whatever the methods of v do.
func printed(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	if isNil(v) {
		return fmt.Sprintf("a nil %T", v)
	}
	text := "a value that cannot be printed"
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { _ = recover() }() // fmt recovers the panic of a method, but not one while it prints that panic
		text = fmt.Sprint(v)
	}()
	<-done
	return text
}

// growStack makes the runtime give the goroutine a stack that a call of a database driver fits into. A new stack has 2
// kB, and the runtime would otherwise double it several times and copy it each time, which costs more than the
// goroutine itself.
//
//go:noinline
func growStack() {
	var room [8 << 10]byte
	use(&room)
}

//go:noinline
func use(*[8 << 10]byte) {}
