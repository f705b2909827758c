package dashboard_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Words in quotation marks name a heading or a label, so they must occur in a page without the marks.
func TestQuotedWordsAreOnAPage(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob("templates/*.html")
	if err != nil || len(paths) == 0 {
		t.Fatalf("%d templates, %v", len(paths), err)
	}
	var all strings.Builder
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	marked := regexp.MustCompile("“([^”]*)”")
	pages := marked.ReplaceAllString(all.String(), "")
	for _, quoted := range marked.FindAllStringSubmatch(all.String(), -1) {
		if !strings.Contains(pages, quoted[1]) {
			t.Errorf("no page has the words “%s”", quoted[1])
		}
	}
}
