// Package docs_test checks the pages for people.
package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../../.."

var (
	link    = regexp.MustCompile(`\[([^\]]*)\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	code    = regexp.MustCompile("(?s)```.*?```")
	dropped = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// Each link to a file of the repository leads to one, and each link to a part of a page to its heading. A link whose
// text is a name in backquotes and whose target is a Go file, such as that of a test, leads to a file with that name.
func TestLinks(t *testing.T) {
	t.Parallel()
	links, all := 0, pages(t)
	for _, page := range all {
		for _, l := range link.FindAllStringSubmatch(code.ReplaceAllString(read(t, page), ""), -1) {
			if strings.Contains(l[2], "://") || strings.HasPrefix(l[2], "mailto:") {
				continue
			}
			links++
			if fault := follow(t, page, l[1], l[2]); fault != "" {
				t.Errorf("%s: [%s](%s): %s", strings.TrimPrefix(page, root+"/"), l[1], l[2], fault)
			}
		}
	}
	if len(all) < 20 || links < 140 {
		t.Errorf("%d links on %d pages: where are the others?", links, len(all))
	}
}

// pages returns the pages for people.
func pages(t *testing.T) (pages []string) {
	t.Helper()
	for _, pattern := range []string{
		"*.md", "docs/*.md", "docs/*/*.md", "adapters/*/README.md",
		"adapters/*/*/README.md",
	} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, found...)
	}
	return pages
}

// follow returns what is wrong with a link; empty: nothing is.
func follow(t *testing.T, page, text, target string) string {
	t.Helper()
	path, part, _ := strings.Cut(target, "#")
	file := page
	if path != "" {
		file = filepath.Join(filepath.Dir(page), path)
	}
	if _, err := os.Stat(file); err != nil {
		return "there is no such file"
	}
	if name, found := strings.CutPrefix(text, "`"); found && strings.HasSuffix(path, ".go") &&
		!strings.Contains(read(t, file), strings.TrimSuffix(name, "`")) {
		return "the file does not have this name"
	}
	if part == "" || !strings.HasSuffix(file, ".md") {
		return ""
	}
	for _, h := range heading.FindAllStringSubmatch(code.ReplaceAllString(read(t, file), ""), -1) {
		if anchor(h[1]) == part {
			return ""
		}
	}
	return "the page has no such heading"
}

// anchor is the part of an address that GitHub gives a heading.
func anchor(heading string) string {
	text := link.ReplaceAllString(heading, "$1")
	return strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(text), ""), " ", "-")
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
