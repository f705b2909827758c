package usercode

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
)

// Error returns err as an error that is safe to keep, to print and to ask: its methods never panic, end the goroutine
// or go on for ever. The methods of err are the user's code: a typed nil pointer has no fields, Unwrap may return its
// receiver, and Is may panic. Call Error once, where an error enters; what comes after needs no care.
//
// The text is that of err at this moment. errors.Is and errors.As find what they find in err, except nil pointers. An
// error of this module that has a field Err, such as a *consumer.RetryError, is found as a copy whose Err is safe.
// There is no Unwrap, because its result would be the user's code again.
func Error(err error) error {
	if err == nil {
		return nil
	}
	switch reflect.TypeOf(err) {
	case plain, safe, deadline:
		if !isNil(err) {
			return err
		}
	}
	s := &snapshot{}
	s.text = textOf(err)
	if ended := Run(func() { s.walk(err) }); ended != nil {
		s.note("Unwrap", err, ended)
	}
	return s
}

var (
	plain    = reflect.TypeOf(errors.New(""))
	safe     = reflect.TypeFor[*snapshot]()
	deadline = reflect.TypeOf(context.DeadlineExceeded)
)

// Text returns the text of v, the value of a panic.
func Text(v any) string {
	if err, ok := v.(error); ok {
		return Error(err).Error()
	}
	return printed(v)
}

// snapshot is an error of the user and those that it wraps.
type snapshot struct {
	text  string
	nodes []node // in the order of errors.Is
}

type node struct {
	err error
	nil bool // a nil pointer: no method of it is called, and errors.As does not find it
}

// mostNodes limits how many errors one error wraps: Unwrap may return its receiver.
const mostNodes = 1000

// textOf returns the text of err, or says that it has none.
func textOf(err error) (text string) {
	ended := Run(func() { text = err.Error() })
	switch {
	case ended == nil:
		return text
	case isNil(err):
		return fmt.Sprintf("a nil %T was returned as an error", err)
	}
	return fmt.Sprintf("an error without text: the method Error of %T %v", err, ended)
}

func (s *snapshot) note(method string, err error, ended *Ended) {
	s.text += fmt.Sprintf(" (the method %s of %T %v)", method, err, ended)
}

// walk adds err and what it wraps.
func (s *snapshot) walk(err error) {
	if err == nil {
		return
	}
	if len(s.nodes) == mostNodes {
		s.text += fmt.Sprintf(" (it wraps more than %d errors: does an Unwrap return its receiver?)", mostNodes)
	}
	if len(s.nodes) >= mostNodes {
		s.nodes = append(s.nodes, node{err, true}) // nothing is called any more
		return
	}
	if inner, ok := err.(*snapshot); ok && inner != nil { //nolint:errorlint // walk itself follows wrapped errors
		s.nodes = append(s.nodes, inner.nodes...)
		return
	}
	n := node{err, isNil(err)}
	s.nodes = append(s.nodes, n)
	if n.nil {
		return
	}
	var more []error
	ended := Here(func() {
		switch err := err.(type) { //nolint:errorlint // walk itself follows wrapped errors
		case interface{ Unwrap() error }:
			more = []error{err.Unwrap()}
		case interface{ Unwrap() []error }:
			more = err.Unwrap()
		}
	})
	if ended != nil {
		s.note("Unwrap", err, ended)
	}
	for _, err := range more {
		s.walk(err)
		if len(s.nodes) > mostNodes {
			return
		}
	}
}

func (s *snapshot) Error() string { return s.text }

// Is is called by errors.Is.
func (s *snapshot) Is(target error) (is bool) {
	if target == nil {
		return false
	}
	comparable := reflect.TypeOf(target).Comparable()
	for _, n := range s.nodes {
		if comparable {
			_ = Here(func() { is = n.err == target }) // the fields of comparable types may hold values that are not
		}
		if is {
			return true
		}
		asked, ok := n.err.(interface{ Is(error) bool })
		if !ok || n.nil {
			continue
		}
		answer := false
		if Run(func() { answer = asked.Is(target) }) == nil && answer {
			return true
		}
	}
	return false
}

// As is called by errors.As and errors.AsType.
func (s *snapshot) As(target any) bool {
	to := reflect.ValueOf(target).Elem()
	for _, n := range s.nodes {
		if n.nil {
			continue
		}
		if reflect.TypeOf(n.err).AssignableTo(to.Type()) {
			to.Set(reflect.ValueOf(withSafeErr(n.err)))
			return true
		}
		asked, ok := n.err.(interface{ As(any) bool })
		if !ok {
			continue
		}
		own := reflect.New(to.Type()) // a method that panics may have set it
		answer := false
		if Run(func() { answer = asked.As(own.Interface()) }) != nil || !answer {
			continue
		}
		found := own.Elem().Interface()
		if found == nil || isNil(found) {
			continue
		}
		if err, ok := found.(error); ok {
			found = withSafeErr(err)
		}
		to.Set(reflect.ValueOf(found))
		return true
	}
	return false
}

// module is the path of this module and those below it.
const module = "github.com/txonce/txonce/"

// withSafeErr returns a copy of err with a safe field Err, if err is a pointer to a struct of this module that has that
// field.
func withSafeErr(err error) error {
	v := reflect.ValueOf(err)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct ||
		!strings.HasPrefix(v.Elem().Type().PkgPath()+"/", module) {
		return err
	}
	field := v.Elem().FieldByName("Err")
	if !field.IsValid() || field.Type() != reflect.TypeFor[error]() || !field.CanSet() {
		return err
	}
	inner, _ := field.Interface().(error)
	if inner == nil {
		inner = fmt.Errorf("a %T without an error", err)
	}
	own := reflect.New(v.Elem().Type())
	own.Elem().Set(v.Elem())
	own.Elem().FieldByName("Err").Set(reflect.ValueOf(Error(inner)))
	return own.Interface().(error) // it has the type of err
}

// Wrapped returns err and the errors that it wraps, in the order of errors.Is, if err is what Error has returned. It is
// for code that looks at errors itself.
func Wrapped(err error) (all []error, ok bool) {
	s, ok := err.(*snapshot) //nolint:errorlint // the caller follows Unwrap
	if !ok {
		return nil, false
	}
	for _, n := range s.nodes {
		if !n.nil {
			all = append(all, n.err)
		}
	}
	return all, true
}

// isNil reports whether err is an interface with a nil pointer.
func isNil(err any) bool {
	switch v := reflect.ValueOf(err); v.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Slice, reflect.Func, reflect.Chan:
		return v.IsNil()
	default:
		return false
	}
}
