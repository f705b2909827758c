package faults_test

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/txonce/txonce/internal/faults"
)

var write = flag.Bool("write", false, "write the table into docs/operations.md")

// docs/operations.md has the table of this package. After a change: go test ./internal/faults -run TestTable -write
func TestTable(t *testing.T) {
	const file, begin, end = "../../docs/operations.md", "<!-- the table of internal/faults -->\n",
		"<!-- end of the table -->\n"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), begin)
	shown, after, ended := strings.Cut(rest, end)
	switch {
	case !found || !ended:
		t.Fatalf("%s has no table", file)
	case shown == faults.Table():
	case *write:
		if err := os.WriteFile(file, []byte(before+begin+faults.Table()+end+after), 0o600); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s shows another table than the code has: go test ./internal/faults -run TestTable -write", file)
	}
}
