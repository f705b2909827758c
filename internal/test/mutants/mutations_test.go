package main

import (
	"os"
	"testing"
)

// Every mutation finds the text that it replaces. make mutants checks that the tests fail.
func TestMutationsFindTheirText(t *testing.T) {
	t.Chdir("../../..")
	for _, m := range mutations {
		if _, err := m.overlay(t.TempDir()); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
	}
}

func TestGuaranteesAreListed(t *testing.T) {
	page, err := os.ReadFile("../../../docs/guarantees.md")
	if err != nil || string(page) != guarantees() {
		t.Errorf("docs/guarantees.md is not up to date (%v); run: go run ./internal/test/mutants -list > docs/guarantees.md", err)
	}
}
