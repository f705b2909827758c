package modules_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const root = "github.com/txonce/txonce"

// A module of go.work.
type module struct {
	Path, Dir string
}

// modules returns all modules of the checkout.
func modules(t *testing.T) (all []module) {
	t.Helper()
	out := goCommand(t, "../../..", nil, "list", "-m", "-json")
	for dec := json.NewDecoder(strings.NewReader(out)); dec.More(); {
		var m module
		if err := dec.Decode(&m); err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	if len(all) < 10 {
		t.Fatalf("go list names only %d modules", len(all))
	}
	return all
}

// goCommand runs the go command in a folder, with additional variables, and returns what it prints.
func goCommand(t *testing.T, dir string, env []string, args ...string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.Env = dir, &stdout, &stderr, append(os.Environ(), env...)
	if err := cmd.Run(); err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return stdout.String()
}

// A program is an empty module with a cache of its own, which takes txonce's modules from the checkout.
type program struct {
	t          *testing.T
	dir, cache string
	env        []string
}

func newProgram(t *testing.T, require ...string) *program {
	t.Helper()
	dir := t.TempDir()
	p := &program{t: t, dir: filepath.Join(dir, "program"), cache: filepath.Join(dir, "cache")}
	// What this machine has downloaded before comes from there, and so nothing is downloaded again.
	proxy := strings.TrimSpace(goCommand(t, ".", nil, "env", "GOPROXY"))
	had := strings.TrimSpace(goCommand(t, ".", nil, "env", "GOMODCACHE"))
	p.env = []string{
		"GOWORK=off", "GOFLAGS=-modcacherw -mod=mod", "GOSUMDB=off", "GOMODCACHE=" + p.cache,
		"GOPROXY=file://" + filepath.ToSlash(had) + "/cache/download," + proxy,
	}
	text := "module example.com/program\n\ngo 1.26.0\n"
	for _, r := range require {
		text += "\nrequire " + r + "\n"
	}
	for _, m := range modules(t) {
		text += fmt.Sprintf("\nreplace %s => %s\n", m.Path, m.Dir)
	}
	p.write("go.mod", text)
	return p
}

func (p *program) write(name, text string) {
	p.t.Helper()
	if err := os.MkdirAll(p.dir, 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(p.dir, name), []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// imports makes the program import packages.
func (p *program) imports(packages ...string) {
	text := "package main\n\nimport (\n"
	for _, pkg := range packages {
		text += "\t_ \"" + pkg + "\"\n"
	}
	p.write("main.go", text+")\n\nfunc main() {}\n")
}

func (p *program) run(args ...string) string {
	p.t.Helper()
	return goCommand(p.t, p.dir, p.env, args...)
}
