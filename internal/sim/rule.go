package sim

import (
	"regexp"
	"strings"
)

var (
	numbered = regexp.MustCompile(`\b(consumer|relay|server|member) \d+`) // processes
	several  = regexp.MustCompile(`\S*\d\S*`)
	repeated = regexp.MustCompile(`#([ ,]+#)+`)
)

// Rule returns what is the same in all failures by one rule: the beginning of err's text, without names of processes,
// names that have digits, and numbers other than 0 and 1. So "lost" and "twice" differ, and "twice" and "three times"
// do not. nil: "".
func Rule(err error) string {
	if err == nil {
		return ""
	}
	text := err.Error()
	for _, end := range []string{": ", "; ", "\n"} {
		text, _, _ = strings.Cut(text, end)
	}
	text = numbered.ReplaceAllString(text, "$1")
	text = several.ReplaceAllStringFunc(text, func(s string) string {
		if n := strings.Trim(s, ",."); n == "0" || n == "1" {
			return s
		}
		return "#"
	})
	return repeated.ReplaceAllString(text, "#")
}
