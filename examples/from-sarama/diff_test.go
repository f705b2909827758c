package fromsarama_test

import (
	"os"
	"strings"
	"testing"
)

// The README promises that an existing sarama handler needs at most ten changed lines.
func TestAtMostTenLines(t *testing.T) {
	read := func(path string) []string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Split(string(text), "\n")
	}
	before := map[string]int{}
	for _, line := range read("before/main.go") {
		before[line]++
	}
	var changed []string
	for _, line := range read("after/main.go") {
		if before[line]--; before[line] < 0 {
			changed = append(changed, line)
		}
	}
	if len(changed) > 10 {
		t.Errorf("%d lines are new:\n%s", len(changed), strings.Join(changed, "\n"))
	}
	if len(changed) == 0 {
		t.Error("nothing differs: this test compares the wrong files")
	}
}
