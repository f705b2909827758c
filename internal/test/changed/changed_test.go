package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const module = "github.com/txonce/txonce"

// Only the tests of package b import a. c and d import nothing. a embeds a file of its testdata. d is a module of its
// own.
func TestChanged(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	write := func(file, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	git := func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "git",
			append([]string{"-c", "user.name=t", "-c", "user.email=t@example.com"}, args...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	write("go.work", "go 1.26\n\nuse (\n\t.\n\t./d\n)\n")
	write("go.mod", "module "+module+"\n\ngo 1.26\n")
	write("d/go.mod", "module "+module+"/d\n\ngo 1.26\n")
	write("d/d_test.go", "package d\n\nimport \"testing\"\n\nfunc TestD(t *testing.T) {}\n")
	write("a/a.go", "package a\n\nconst A = 1\n")
	write("a/a_test.go", "package a\n\nimport \"testing\"\n\nfunc TestA(t *testing.T) {}\n")
	write("a/testdata/x.txt", "x")
	write("b/b.go", "package b\n")
	write("b/b_test.go", "package b_test\n\nimport (\n\t\"testing\"\n\n\t\"github.com/txonce/txonce/a\"\n)\n\nfunc TestB(t *testing.T) { _ = a.A }\n")
	write("c/c_test.go", "package c\n\nimport \"testing\"\n\nfunc TestC(t *testing.T) {}\n")
	write("README.md", "x")
	git("init", "-q", "-b", "main")
	git("add", "-A")
	git("commit", "-qm", "first")

	for _, step := range []struct {
		change string
		want   []string
	}{
		{"README.md", nil},
		{"c/new.go", []string{"c"}},
		{"b/b.go", []string{"b"}},
		{"a/testdata/x.txt", []string{"a", "b"}},
		{"a/a.go", []string{"a", "b"}},
		{"go.mod", []string{"a", "b", "c", "d"}},
		{"d/go.mod", []string{"d"}},
	} {
		text, _ := os.ReadFile(step.change)
		switch {
		case strings.HasSuffix(step.change, "new.go"):
			write(step.change, "package c\n")
		default:
			write(step.change, string(text)+"\n")
		}
		got, err := changed(t.Context(), "main")
		if err != nil {
			t.Fatal(err)
		}
		for i := range got {
			got[i] = strings.TrimPrefix(got[i], module+"/")
		}
		if diff := cmp.Diff(step.want, got); diff != "" && len(step.want)+len(got) > 0 {
			t.Errorf("%s changed (-want +got):\n%s", step.change, diff)
		}
		git("add", "-A")
		git("stash", "-q")
	}
}
