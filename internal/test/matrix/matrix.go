// Package matrix deals the cases of a suite out to the configurations of a database, so that each case and each
// configuration is tested without every pair of the two. TXONCE_TEST_ALL=1, which `make test-all` sets, asks for all
// pairs.
package matrix

import (
	"crypto/sha256"
	"encoding/binary"
	"os"
	"slices"
)

// All reports whether every combination runs.
func All() bool { return os.Getenv("TXONCE_TEST_ALL") != "" }

// Dealt reports whether configuration i of n runs this case. Exactly one of the n does, always the same one; with All
// each does.
func Dealt(name string, i, n int) bool { return All() || number(name)%n == i }

// pairs are the databases that share the cases, by the names that subtests have for them.
var pairs = [][]string{{"mariadb", "mysql"}, {"postgres15", "postgres18"}}

// RunsOn reports whether a database runs this case. Each database of a pair runs about half of the cases, and no case
// is left out; other databases run each.
func RunsOn(database, name string) bool {
	for _, pair := range pairs {
		if i := slices.Index(pair, database); i >= 0 {
			return Dealt(name, i, len(pair))
		}
	}
	return true
}

// number is as good as random, and always the same for a name.
func number(name string) int {
	sum := sha256.Sum256([]byte(name))
	return int(binary.BigEndian.Uint32(sum[:]))
}

// Levels are the isolation levels of a database. Its methods serve as deduptest.Harness.Select.
type Levels []string

// One selects every case, and of those that run at several levels one level each. Another i selects another level,
// until each of the levels has been selected once.
func (l Levels) One(i int) func(name, level string) bool {
	return func(name, level string) bool {
		return All() || level == "" || level == l[(number("the level of "+name)+i)%len(l)]
	}
}

// Rest selects what One(i) leaves out, and every case that runs at one level.
func (l Levels) Rest(i int) func(name, level string) bool {
	return func(name, level string) bool { return All() || level == "" || !l.One(i)(name, level) }
}

// Share is the part of configuration i of n, when each of two stores runs the suite: a case that runs at one level runs
// in one of the n configurations, and other cases run in each of them at one level.
func (l Levels) Share(i, n int) func(name, level string) bool {
	return func(name, level string) bool {
		return l.One(i)(name, level) && (level != "" || Dealt(name, i%n, n))
	}
}
