package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// marked is a part of the page that a run writes, between <!-- bench NAME --> and <!-- /bench -->.
var marked = regexp.MustCompile(`(?s)(<!-- bench ([a-z0-9-]+) -->\n).*?(<!-- /bench -->)`)

// writeDocs puts the measured tables into performance.md of this folder, and the charts next to it. Tables that this
// run has not measured stay as they are, and after a run of some sections so do the line "Last run" and the table of
// targets.
func (r *report) writeDocs(dir string) error {
	path := filepath.Join(dir, "performance.md")
	page, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	page, err = r.fill(page)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := r.writeCharts(dir); err != nil {
		return err
	}
	return os.WriteFile(path, page, 0o644)
}

// fill fails if a table has no place in the page.
func (r *report) fill(page []byte) ([]byte, error) {
	parts := map[string]string{}
	if r.Whole {
		parts["machine"], parts["gates"] = r.Machine.text(), gatesText(r.Gates)
	}
	for _, t := range r.Tables {
		parts[t.Name] = t.markdown(r.Machine.Date)
	}
	page = marked.ReplaceAllFunc(page, func(part []byte) []byte {
		m := marked.FindSubmatch(part)
		text, ok := parts[string(m[2])]
		if !ok {
			return part
		}
		delete(parts, string(m[2]))
		return bytes.Join([][]byte{m[1], m[3]}, []byte(text))
	})
	var missing []error
	for name := range parts {
		missing = append(missing, fmt.Errorf("there is no place for table %s: add <!-- bench %s --> and <!-- /bench -->", name, name))
	}
	return page, errors.Join(missing...)
}

func (m machine) text() string {
	return fmt.Sprintf("Last run: `make bench` of %s, on %d cores (%s), with %s and %s. A round trip to PostgreSQL took %s ms on loopback, and %s ms more over the longer network.\n",
		m.Date, m.Cores, m.CPU, m.Postgres, m.Go, number(m.Loopback), number(m.Further))
}

func (t *table) markdown(date string) string {
	var b strings.Builder
	for i, line := range t.lines() {
		if i > 0 {
			line[0] = label(line[0])
		}
		fmt.Fprintf(&b, "| %s |\n", strings.Join(line, " | "))
		if i == 0 {
			fmt.Fprintf(&b, "|%s\n", strings.Repeat("---|", len(line)))
		}
	}
	caption := t.caption()
	fmt.Fprintf(&b, "\n%s of %s.\n", strings.ToUpper(caption[:1])+caption[1:], date)
	for _, c := range charts {
		if c.table == t.Name && len(c.rows(t)) > 0 {
			fmt.Fprintf(&b, "\n![%s](%s)\n", c.title, c.file())
		}
	}
	return b.String()
}

func (t *table) caption() string {
	if t.Unit == "" {
		return "medians and quartiles"
	}
	return "in " + t.Unit + ", medians and quartiles"
}

var code = regexp.MustCompile(`\b(Process|ProcessBatch|Handle|HandleBatch|Pipeline|ClaimLate|Interleave|InTx|Attempt)\b`)

// label writes Go's names as code.
func label(text string) string { return code.ReplaceAllString(text, "`$1`") }

func gatesText(gates []verdict) string {
	var b strings.Builder
	b.WriteString("| target | | wanted | measured | |\n|---|---|---|---|---|\n")
	for _, v := range gates {
		bound, got := "≥", "-"
		if v.AtMost {
			bound = "≤"
		}
		if v.Measured {
			got = number(v.Got)
		}
		status := strings.ToLower(v.status())
		if v.Known != "" {
			status += ": " + v.Known + "; " + v.Worst
		}
		fmt.Fprintf(&b, "| %s | %s | %s %s | %s | %s |\n", v.Target, label(v.What), bound, number(v.Want), got, status)
	}
	return b.String()
}
