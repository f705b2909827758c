package hooks_test

import (
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/adapters/httpidem"
	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/outbox/relay"
)

// Each hook of two Traces is called, the first one first. A hook that Then forgets would silently count nothing.
func TestThenCallsEachHook(t *testing.T) {
	t.Run("consumer.Trace", func(t *testing.T) { callsBoth(t, (*consumer.Trace).Then) })
	t.Run("driver.SourceTrace", func(t *testing.T) { callsBoth(t, (*driver.SourceTrace).Then) })
	t.Run("httpidem.Trace", func(t *testing.T) { callsBoth(t, (*httpidem.Trace).Then) })
	t.Run("webhook.Trace", func(t *testing.T) { callsBoth(t, (*webhook.Trace).Then) })
	t.Run("relay.Trace", func(t *testing.T) { callsBoth(t, (*relay.Trace).Then) })
}

func callsBoth[T any](t *testing.T, then func(first, second *T) *T) {
	t.Helper()
	var calls, want []string
	trace := func(whose string) *T {
		all := new(T)
		v := reflect.ValueOf(all).Elem()
		for i := range v.NumField() {
			f := v.Field(i)
			name := v.Type().Field(i).Name
			f.Set(reflect.MakeFunc(f.Type(), func([]reflect.Value) (results []reflect.Value) {
				calls = append(calls, whose+" "+name)
				for i := range f.Type().NumOut() {
					results = append(results, reflect.Zero(f.Type().Out(i)))
				}
				return results
			}))
		}
		return all
	}
	both := reflect.ValueOf(then(trace("first"), trace("second"))).Elem()
	for i := range both.NumField() {
		f := both.Field(i)
		args := make([]reflect.Value, f.Type().NumIn())
		for i := range args {
			args[i] = reflect.Zero(f.Type().In(i))
		}
		f.Call(args)
		name := both.Type().Field(i).Name
		want = append(want, "first "+name, "second "+name)
	}
	if diff := cmp.Diff(want, calls); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}
