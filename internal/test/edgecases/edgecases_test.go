// Package edgecases has only a test: it checks that each numbered abuse case of the HTTP edge has a test.
//
// The cases are a list of 75 ways to misuse an Idempotency-Key middleware or a webhook receiver, and 26 faults (E1 to
// E26) that an attack on a prototype found. The tests in adapters/httpidem and adapters/webhook have the numbers in
// their names, as in "case 47: no signature" or "E22: a time far in the future".
package edgecases_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const (
	cases  = 75
	faults = 26
)

// without lists the cases that have no test, with the reason.
var without = map[string]string{
	"61": "PayPal: there is no verifier for it. Its signature covers only a CRC-32 of the body",
}

func TestEachCaseHasATest(t *testing.T) {
	found := map[string]string{} // a number, and a file
	for _, dir := range []string{"adapters/httpidem", "adapters/webhook", "internal/test/system"} {
		err := filepath.WalkDir(filepath.Join("..", "..", "..", dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			for _, number := range numbers(string(text)) {
				found[number] = path
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	var all []string
	for n := range cases {
		all = append(all, strconv.Itoa(n+1))
	}
	for n := range faults {
		all = append(all, fmt.Sprint("E", n+1))
	}
	for _, number := range all {
		switch path, reason := found[number], without[number]; {
		case path == "" && reason == "":
			t.Errorf("case %s has no test", number)
		case path != "" && reason != "":
			t.Errorf("case %s has a test in %s, and a reason not to have one: %s", number, path, reason)
		}
	}
}

var (
	literal = regexp.MustCompile(`"[^"\n]*"`)
	list    = regexp.MustCompile(`\bcases? (\d+(?:(?:, | and | to |-)\d+)*)`)
	part    = regexp.MustCompile(`(\d+)(?:(?: to |-)(\d+))?`)
	fault   = regexp.MustCompile(`\bE\d+\b`)
)

// numbers returns the numbers of cases in the string literals of a test's source: "case 1", "cases 1 and 2", "cases 3
// to 5", "E6".
func numbers(source string) (found []string) {
	for _, text := range literal.FindAllString(source, -1) {
		found = append(found, fault.FindAllString(text, -1)...)
		for _, of := range list.FindAllStringSubmatch(text, -1) {
			for _, p := range part.FindAllStringSubmatch(of[1], -1) {
				first, _ := strconv.Atoi(p[1])
				last, err := strconv.Atoi(p[2])
				if err != nil {
					last = first
				}
				for n := first; n <= last && n <= cases; n++ {
					found = append(found, strconv.Itoa(n))
				}
			}
		}
	}
	return found
}

func TestNumbers(t *testing.T) {
	source := "// case 1\n" + `t.Run("case 2: x", f); t.Run("cases 3, 4 and 6 to 8, E9", f); t.Run("showcase 10", f)`
	if got := fmt.Sprint(numbers(source)); got != "[2 E9 3 4 6 7 8]" {
		t.Errorf("numbers = %s", got)
	}
}
