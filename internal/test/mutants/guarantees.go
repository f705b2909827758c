package main

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// guarantees returns docs/guarantees.md.
func guarantees() string {
	var b strings.Builder
	b.WriteString(`# Guarantees and the tests that prove them

Each row is a promise of the code and the test that fails when the promise is broken. ` + "`make mutants`" + ` breaks one promise after
another in the code and runs the test named beside it. This page is generated: ` + "`go run ./internal/test/mutants -list > docs/guarantees.md`" + `.
`)
	byFolder := map[string][]mutation{}
	for _, m := range mutations {
		folder := path.Dir(m.file)
		byFolder[folder] = append(byFolder[folder], m)
	}
	folders := make([]string, 0, len(byFolder))
	for folder := range byFolder {
		folders = append(folders, folder)
	}
	slices.Sort(folders)
	for _, folder := range folders {
		fmt.Fprintf(&b, "\n## %s\n\n| promise | test |\n|---|---|\n", folder)
		for _, m := range byFolder[folder] {
			fmt.Fprintf(&b, "| %s | `%s` in %s |\n", strings.ReplaceAll(m.name, "|", "\\|"), m.fails, m.pkg)
		}
	}
	return b.String()
}
