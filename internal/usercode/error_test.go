package usercode_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/test/nasty"
	"github.com/txonce/txonce/internal/usercode"
	"github.com/txonce/txonce/outbox"
)

// Whatever an error does, its snapshot can be printed and asked.
func TestErrorIsSafe(t *testing.T) {
	for _, test := range nasty.Errors() {
		t.Run(test.Name, func(t *testing.T) {
			safe := usercode.Error(test.Err)
			for _, err := range []error{
				safe, usercode.Error(safe), fmt.Errorf("around: %w", safe),
				errors.Join(io.EOF, safe),
			} {
				if !strings.Contains(err.Error(), test.Text) {
					t.Errorf("%q does not say %q", err, test.Text)
				}
				_, _, _ = fmt.Sprintf("%+v %#v", err, err), errors.Is(err, dedup.ErrInFlight), errors.Is(err, test.Err)
				if e, ok := errors.AsType[*consumer.RetryError](err); ok && (e == nil || e.Err.Error() == "") {
					t.Error("found a RetryError that cannot be used")
				}
				if e, ok := errors.AsType[*outbox.UnavailableError](err); ok && (e == nil || e.Error() == "") {
					t.Error("found an UnavailableError that cannot be used")
				}
				if e, ok := errors.AsType[*outbox.TopicError](err); ok && (e == nil || e.Error() == "") {
					t.Error("found a TopicError that cannot be used")
				}
				if e, ok := errors.AsType[*dedup.InDoubtError](err); ok && (e == nil || e.Error() == "") {
					t.Error("found an InDoubtError that cannot be used")
				}
				var network net.Error
				if errors.As(err, &network) && network == nil {
					t.Error("found a nil net.Error")
				}
				_ = consumer.IsPermanent(err) || outbox.IsPermanent(err)
			}
		})
	}
}

type coded struct{ code int }

func (c coded) Error() string { return fmt.Sprint("code ", c.code) }

func (c coded) Is(target error) bool { return target == io.EOF && c.code == 7 }

// An error that behaves stays what it is, for errors.Is and errors.As.
func TestErrorKeepsWhatItIs(t *testing.T) {
	inner := errors.New("inner")
	for _, err := range []error{nil, inner, context.Canceled, context.DeadlineExceeded} {
		if usercode.Error(err) != err { // the very same
			t.Errorf("%v is another error", err)
		}
	}
	safe := usercode.Error(fmt.Errorf("outer: %w, %w", consumer.RetryAfter(consumer.Permanent(inner), 7), coded{7}))
	if !errors.Is(safe, inner) || !errors.Is(safe, io.EOF) || errors.Is(safe, io.ErrUnexpectedEOF) {
		t.Error("errors.Is")
	}
	if c, ok := errors.AsType[coded](safe); !ok || c.code != 7 {
		t.Error("errors.As of a value")
	}
	if r, ok := errors.AsType[*consumer.RetryError](safe); !ok || r.After != 7 || !errors.Is(r, inner) ||
		!consumer.IsPermanent(r) {
		t.Error("errors.As of a RetryError")
	}
	if !consumer.IsPermanent(safe) || safe.Error() != "outer: inner, code 7" {
		t.Errorf("%v", safe)
	}
}
