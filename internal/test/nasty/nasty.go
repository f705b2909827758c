// Package nasty has errors whose methods panic, end the goroutine, or go on for ever.
package nasty

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"runtime"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/outbox"
)

// Error is an error that harms whoever uses it without care.
type Error struct {
	Name string
	Err  error
	Text string // what a report about it must say
}

// Errors returns one of each kind.
func Errors() []Error {
	plain := errors.New("plain")
	loop := &wraps{text: "loop"}
	loop.err = loop
	return []Error{
		{"a nil *outbox.UnavailableError", (*outbox.UnavailableError)(nil), "nil *outbox.UnavailableError"},
		{"a nil *outbox.TopicError", (*outbox.TopicError)(nil), "nil *outbox.TopicError"},
		{"a nil *consumer.RetryError", (*consumer.RetryError)(nil), "nil *consumer.RetryError"},
		{"a nil *consumer.MessageError", (*consumer.MessageError)(nil), "nil *consumer.MessageError"},
		{"a nil *consumer.PanicError", (*consumer.PanicError)(nil), "nil *consumer.PanicError"},
		{"a nil *dedup.InDoubtError", (*dedup.InDoubtError)(nil), "nil *dedup.InDoubtError"},
		{"a nil *net.OpError", (*net.OpError)(nil), "<nil>"},
		{"a nil *fs.PathError", (*fs.PathError)(nil), "nil *fs.PathError"},
		{"a nil pointer of the user's", (*wraps)(nil), "nil *nasty.wraps"},
		{"a wrapped nil *outbox.TopicError", fmt.Errorf("publish: %w", (*outbox.TopicError)(nil)), "publish"},
		{
			"a joined nil *dedup.InDoubtError", errors.Join(plain, (*dedup.InDoubtError)(nil)),
			"*errors.joinError panicked",
		},
		{"a *outbox.TopicError without an error", &outbox.TopicError{}, "*outbox.TopicError panicked"},
		{
			"a *outbox.UnavailableError of a nil pointer", &outbox.UnavailableError{Err: (*outbox.TopicError)(nil)},
			"broker unavailable",
		},
		{
			"a *consumer.RetryError without an error", &consumer.RetryError{After: time.Millisecond},
			"*consumer.RetryError panicked",
		},
		{
			"a *consumer.RetryError of a nil pointer", &consumer.RetryError{Err: (*wraps)(nil)},
			"*consumer.RetryError panicked",
		},
		{"a *consumer.MessageError without an error", &consumer.MessageError{}, "*consumer.MessageError panicked"},
		{"a *dedup.InDoubtError of the user's", &dedup.InDoubtError{}, "*dedup.InDoubtError panicked"},
		{"Error panics", misbehaves{error: func() string { panic("no text") }}, "no text"},
		{"Error panics with itself", &itself{}, "*nasty.itself panicked"},
		{
			"Error ends the goroutine",
			misbehaves{error: func() string { runtime.Goexit(); return "" }},
			"runtime.Goexit",
		},
		{
			"Error ends the goroutine of a wrapped error", fmt.Errorf("%w, then %w", plain, unwrapPanics{}),
			"plain, then",
		},
		{"Unwrap panics", unwrapPanics{}, "no cause"},
		{"Unwrap ends the goroutine", unwrapExits{}, "runtime.Goexit"},
		{"Unwrap returns its receiver", loop, "loop"},
		{"Unwrap returns more and more", endless{0}, "wraps more than"},
		{"Unwrap returns two each time", twice{}, "wraps more than"},
		{"Is panics", isPanics{}, "is panics"},
		{"Is ends the goroutine", isExits{}, "is exits"},
		{"As panics", asPanics{}, "as panics"},
		{"As sets what it does not have", asNil{}, "as nil"},
		{"cannot be compared", uncomparable{any: []string{"x"}}, "uncomparable"},
		{"wraps an error that cannot be compared", fmt.Errorf("outer: %w", uncomparable{any: []string{"x"}}), "outer"},
	}
}

type wraps struct {
	text string
	err  error
}

func (e *wraps) Error() string { return e.text }
func (e *wraps) Unwrap() error { return e.err }

type misbehaves struct{ error func() string }

func (e misbehaves) Error() string { return e.error() }

type itself struct{}

func (e *itself) Error() string { panic(e) }

type unwrapPanics struct{}

func (unwrapPanics) Error() string { return "unwrap panics" }
func (unwrapPanics) Unwrap() error { panic("no cause") }

type unwrapExits struct{}

func (unwrapExits) Error() string { return "unwrap exits" }
func (unwrapExits) Unwrap() error { runtime.Goexit(); return nil }

type endless struct{ n int }

func (e endless) Error() string { return "endless" }
func (e endless) Unwrap() error { return endless{e.n + 1} }

type twice struct{}

func (twice) Error() string   { return "twice" }
func (twice) Unwrap() []error { return []error{twice{}, twice{}} }

type isPanics struct{}

func (isPanics) Error() string { return "is panics" }
func (isPanics) Is(error) bool { panic("is") }

type isExits struct{}

func (isExits) Error() string { return "is exits" }
func (isExits) Is(error) bool { runtime.Goexit(); return false }

type asPanics struct{}

func (asPanics) Error() string { return "as panics" }
func (asPanics) As(any) bool   { panic("as") }

type asNil struct{}

func (asNil) Error() string { return "as nil" }
func (asNil) As(any) bool   { return true }

type uncomparable struct{ any any }

func (uncomparable) Error() string { return "uncomparable" }
