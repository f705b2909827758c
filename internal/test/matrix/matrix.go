// Package matrix deals the cases of a suite out to the configurations of a database, so that each case and each configuration is
// tested without every pair of the two. TXONCE_TEST_ALL=1, which `make test-all` sets, asks for all pairs.
package matrix

import (
	"hash/fnv"
	"os"
	"slices"
)

// All reports whether every combination runs.
func All() bool { return os.Getenv("TXONCE_TEST_ALL") != "" }

// Dealt reports whether configuration i of n runs this case. Exactly one of the n does, always the same one; with All each does.
func Dealt(name string, i, n int) bool {
	if All() {
		return true
	}
	hash := fnv.New32a()
	hash.Write([]byte(name))
	return int(hash.Sum32()%uint32(n)) == i
}

// Levels are the isolation levels of a database, its default first. Its methods serve as deduptest.Harness.Select.
type Levels []string

// Default selects every case, at the default level.
func (l Levels) Default(_, level string) bool { return All() || level == "" || level == l[0] }

// DefaultAndOther returns the selection of Others(1), and beside it every case at the default level, which most programs use.
func (l Levels) DefaultAndOther(name, level string) bool {
	return l.Default(name, level) || l.Others(1)(name, level)
}

// Others returns one of two selections, i is 0 or 1. Each has every case at one of the other two levels; together they have both.
func (l Levels) Others(i int) func(name, level string) bool {
	return func(name, level string) bool {
		at := slices.Index(l, level)
		return All() || level == "" || at > 0 && Dealt(name, (at+i)%2, 2)
	}
}
