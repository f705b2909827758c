package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// root is the checkout, for tests.
func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// Every row finds what it names, and its test exists. make mutants checks that the test fails.
func TestRowsFindWhatTheyName(t *testing.T) {
	promises := map[string]bool{}
	for _, r := range allRows() {
		if promises[r.promise] {
			t.Errorf("two rows have the promise %q", r.promise)
		}
		promises[r.promise] = true
		if (r.in == "") == (r.sql == "") || (r.in == "") != (r.body == "") || (r.sql == "") != (r.cut == "") {
			t.Errorf("the promise %q: a row has either in and body, or sql and cut", r.promise)
			continue
		}
		if r.simulates() && r.sim == 0 {
			t.Errorf("the promise %q: say in sim within how many cases the simulation notices", r.promise)
		}
		if _, err := r.files(root(t)); err != nil {
			t.Error(err)
		}
		test, folder := r.test()
		if name, _, _ := strings.Cut(test, "/"); !hasTest(root(t), folder, name) {
			t.Errorf("the promise %q: no test %s in %q: say in fails which test notices", r.promise, name, folder)
		}
	}
}

func hasTest(root, folder, name string) bool {
	files, err := filepath.Glob(filepath.Join(root, folder, "*_test.go"))
	if err != nil {
		return false
	}
	declared := regexp.MustCompile(`(?m)^func ` + regexp.QuoteMeta(name) + `\(`)
	for _, path := range files {
		if text, err := os.ReadFile(path); err == nil && declared.Match(text) {
			return true
		}
	}
	return false
}

func TestGuaranteesAreListed(t *testing.T) {
	page, err := os.ReadFile("../../../docs/guarantees.md")
	if err != nil || string(page) != guarantees() {
		t.Errorf("docs/guarantees.md is not up to date (%v); run\n"+
			"\tgo run ./internal/test/mutants -list > docs/guarantees.md", err)
	}
}
