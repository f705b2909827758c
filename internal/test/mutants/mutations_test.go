package main

import "testing"

// Every mutation still finds the text that it replaces. Whether a test notices is what make mutants is for.
func TestMutationsFindTheirText(t *testing.T) {
	t.Chdir("../../..")
	for _, m := range mutations {
		if _, err := m.overlay(t.TempDir()); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
	}
}
