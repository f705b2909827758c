package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A test that fails every second time is counted, with the sub-test that caused it. A test that never fails is not
// listed.
func TestWhatFailsIsCounted(t *testing.T) {
	dir := t.TempDir()
	state := filepath.Join(t.TempDir(), "state")
	write := func(file, text string) {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module example.com/flaky\n\ngo 1.26\n")
	write("flaky_test.go", `package flaky

import (
	"os"
	"testing"
)

func TestFlaky(t *testing.T) {
	t.Run("sub", func(t *testing.T) {
		if os.Remove("`+state+`") == nil {
			t.Error("each second time")
			return
		}
		os.WriteFile("`+state+`", nil, 0o600)
	})
}

func TestSound(t *testing.T) {}
`)
	t.Chdir(dir)
	s := settings{runs: 4, timeout: time.Minute}
	counts := newTally()
	if err := s.tryPackage(t.Context(), ".", t.TempDir(), counts); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	counts.print(&out)
	want := "failures  runs  package  test\n2         4     .        TestFlaky/sub\n"
	if out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
}

func TestAPackageThatFailsOutsideItsTests(t *testing.T) {
	counts := newTally()
	out := []byte("{\"Action\":\"run\",\"Test\":\"TestA\"}\n{\"Action\":\"pass\",\"Test\":\"TestA\"}\n{\"Action\":\"fail\"}\n")
	if n, err := counts.add("./a", out); n == 0 || err != nil {
		t.Fatalf("%d tests, %v", n, err)
	}
	counts.missed("./a", out)
	if !counts.failed() {
		t.Error("the failure is not counted")
	}
	if n, err := counts.add("./b", nil); n != 0 || err != nil {
		t.Errorf("%d tests in no output, %v", n, err)
	}
}
