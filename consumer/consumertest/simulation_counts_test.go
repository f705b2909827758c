package consumertest_test

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/txonce/txonce/consumer/consumertest"
)

// number returns a number of the environment.
func number(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// cell counts the faults of an action at a boundary.
type cell struct {
	Boundary string `json:"boundary"`
	Action   string `json:"action"`
	Faults   int    `json:"faults"`
	Cases    int    `json:"cases"`

	latest int
}

// counts are the cells of the menu.
type counts map[[2]string]*cell

func newCounts() counts {
	c := counts{}
	for boundary, choice := range consumertest.SimulationMenu {
		for _, action := range choice.Actions {
			c[[2]string{boundary, action}] = &cell{Boundary: boundary, Action: action, latest: -1}
		}
	}
	return c
}

func (c counts) add(n int, boundary, action string) {
	at := c[[2]string{boundary, action}]
	at.Faults++
	if at.latest != n {
		at.Cases++
		at.latest = n
	}
}

func (c counts) sorted() []*cell {
	return slices.SortedFunc(maps.Values(c), func(a, b *cell) int {
		return strings.Compare(a.Boundary+"\x00"+a.Action, b.Boundary+"\x00"+b.Action)
	})
}

func writeCounts(t *testing.T, path string, cases int, cells counts) {
	t.Helper()
	text, err := json.MarshalIndent(struct {
		Cases int     `json:"cases"`
		Cells []*cell `json:"cells"`
	}{cases, cells.sorted()}, "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}
