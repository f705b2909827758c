package usercode_test

import (
	"runtime"
	"testing"

	"github.com/txonce/txonce/internal/usercode"
)

func TestRun(t *testing.T) {
	ran := false
	if usercode.Run(func() { ran = true }) != nil || !ran {
		t.Errorf("a function that returns: ran is %v, want true, and Run must return nil", ran)
	}
	undone := false
	if usercode.Run(func() {
		defer func() { undone = true }()
		runtime.Goexit()
	}) == nil {
		t.Error("a function that calls runtime.Goexit returned")
	}
	if !undone {
		t.Error("Run returned before the deferred functions had run")
	}
}
