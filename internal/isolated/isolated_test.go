package isolated_test

import (
	"runtime"
	"testing"

	"github.com/txonce/txonce/internal/isolated"
)

func TestCall(t *testing.T) {
	ran := false
	if !isolated.Call(func() { ran = true }) || !ran {
		t.Errorf("a function that returns: ran is %v, want true, and Call must report true", ran)
	}
	undone := false
	if isolated.Call(func() {
		defer func() { undone = true }()
		runtime.Goexit()
	}) {
		t.Error("a function that calls runtime.Goexit returned")
	}
	if !undone {
		t.Error("Call returned before the deferred functions had run")
	}
}
