package testdb

import (
	"context"
	"fmt"
	"regexp"
	"sync"
	"testing"
)

// A place is a schema or a database that tests of this process use one after the other. To make one with txonce's
// tables and to drop it costs a server more than most tests do. After a test its tables are emptied; if the test has
// changed them, the place is made anew. Its name is reserved on the server until this process ends, and another process
// then uses it again.
type place struct {
	name string
	made string            // identifies the definitions of its tables
	rows map[string]string // a checksum for each table, where that costs less than to insert its rows again
}

// maker makes the places of one kind on one server.
type maker interface {
	// reserve reports whether the name is this process's until it ends. It is not called twice for a name.
	reserve(ctx context.Context, name string) (bool, error)
	// create drops the place, if it exists, and makes it with its tables.
	create(ctx context.Context, name string) (place, error)
	// empty waits until no transaction on the place's tables is open, and restores the rows that create has inserted.
	// It reports false if the tables are not as create has made them.
	empty(ctx context.Context, p place) (same bool, err error)
}

var reused = struct {
	mu       sync.Mutex
	idle     map[string][]place // by kind
	reserved map[string]bool    // by server and name
}{idle: map[string][]place{}, reserved: map[string]bool{}}

// reuse returns the name of a place that starts with prefix, and empties the place when the test ends. Places of the
// same kind have the same tables on the same server.
func reuse(t testing.TB, server, prefix, tables string, m maker) (name string) {
	t.Helper()
	kind := server + "\n" + prefix + "\n" + tables
	p, err := takePlace(t, kind, server, prefix, m)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := CleanUpContext(t)
		defer cancel()
		same, err := m.empty(ctx, p)
		if err == nil && !same {
			p, err = m.create(ctx, p.name)
		}
		if err != nil {
			t.Error(err) // nothing uses this place again
			return
		}
		reused.mu.Lock()
		defer reused.mu.Unlock()
		reused.idle[kind] = append(reused.idle[kind], p)
	})
	return p.name
}

func takePlace(t testing.TB, kind, server, prefix string, m maker) (place, error) {
	ctx, cancel := CleanUpContext(t)
	defer cancel()
	reused.mu.Lock()
	if idle := reused.idle[kind]; len(idle) > 0 {
		reused.idle[kind] = idle[1:] // the one that has rested longest
		reused.mu.Unlock()
		return idle[0], nil
	}
	name, err := reserveName(ctx, server, prefix, m)
	reused.mu.Unlock()
	if err != nil {
		return place{}, err
	}
	return m.create(ctx, name)
}

// reserveName returns the first name that no process uses. The caller holds reused.mu.
func reserveName(ctx context.Context, server, prefix string, m maker) (string, error) {
	for n := range 1000 {
		name := fmt.Sprint(prefix, n)
		if reused.reserved[server+"\n"+name] {
			continue
		}
		ok, err := m.reserve(ctx, name)
		if err != nil {
			return "", err
		}
		if ok {
			reused.reserved[server+"\n"+name] = true
			return name, nil
		}
	}
	return "", fmt.Errorf("all schemas from %s0 to %s999 are in use", prefix, prefix)
}

// insert is a statement that inserts the rows of a new table.
type insert struct{ statement, table string }

// inserts returns such statements in sql.
func inserts(sql string) (all []insert) {
	for _, found := range insertStatement.FindAllStringSubmatch(sql, -1) {
		all = append(all, insert{found[0] + "\n", found[1]})
	}
	return all
}

var insertStatement = regexp.MustCompile(`(?s)INSERT INTO (\w+).*?;`)
