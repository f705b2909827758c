package main

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"
)

func TestEachOrderIsChargedOnce(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), &out, 20); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	if !strings.Contains(out.String(), "audit: 20 orders, 20 charges, 20 payments of 20 orders") {
		t.Errorf("%s", &out)
	}
}

var goBlock = regexp.MustCompile("(?s)```go\n(.*?)```")

// The code of docs/calls.md and README.md's section is that of this example.
func TestDocs(t *testing.T) {
	code, err := os.ReadFile("charge.go")
	if err != nil {
		t.Fatal(err)
	}
	squeeze := func(s string) string { return strings.Join(strings.Fields(s), " ") }
	page, err := os.ReadFile("../../docs/calls.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := goBlock.FindAllStringSubmatch(string(page), -1)
	if len(blocks) < 3 {
		t.Fatalf("%d blocks of code", len(blocks))
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(readme), "## Calls to other systems")
	blocks = append(blocks, goBlock.FindStringSubmatch(section))
	for _, block := range blocks {
		if !strings.Contains(squeeze(string(code)), squeeze(block[1])) {
			t.Errorf("charge.go does not contain\n%s", block[1])
		}
	}
}
