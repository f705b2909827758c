package fromsarama_test

import (
	"os"
	"strings"
	"testing"
)

// The README promises that a sarama handler needs at most ten changed lines.
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

// sarama's default settings lose messages, so after must replace and check them.
func TestSettingsAreChecked(t *testing.T) {
	text, err := os.ReadFile("after/main.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"cfg := kafka.NewConfig()", "kafka.Check(cfg)"} {
		if strings.Count(string(text), line) != 1 {
			t.Errorf("after/main.go has no line with %s", line)
		}
	}
}
