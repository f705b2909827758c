package faults

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Classes returns all classes, in the order of the table.
func Classes() []Class {
	return []Class{
		connection, server, access, permission, deployment, contention, timeLimit, idleLimit, limit, resources, storage,
		internal, session,
		transaction, data, aborted, unknown,
	}
}

// Operations returns all operations, in the order of the table.
func Operations() []Operation {
	return []Operation{Register, Claim, Handler, Enqueue, Commit, Park, Lease, Settle, Defer, Sweep, Replay}
}

// Databases returns all databases.
func Databases() []Database { return []Database{Postgres, MySQL, SQLite} }

// Table returns the tables of this package in Markdown.
func Table() string {
	var b strings.Builder
	b.WriteString("| class | start | the handler's statements, `Enqueue`, COMMIT | claim, sweep, replay; lease of a relay | park | settle and defer of a relay |\n|---|---|---|---|---|---|\n")
	for _, c := range Classes() {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", name(c), cell(c, Register), cell(c, Handler),
			cell(c, Claim), cell(c, Park), cell(c, Settle))
	}
	b.WriteString("\n| class | PostgreSQL | MySQL and MariaDB | SQLite |\n|---|---|---|---|\n")
	for _, c := range Classes() {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", name(c), Codes(Postgres, c), Codes(MySQL, c), Codes(SQLite, c))
	}
	return b.String()
}

func name(c Class) string {
	if c == unknown {
		return "(no error of the database)"
	}
	return string(c)
}

// cell says what follows from c in o on each database.
func cell(c Class, o Operation) string {
	on := map[string][]string{}
	for _, d := range Databases() {
		v := d.After(c, o).String()
		on[v] = append(on[v], string(d))
	}
	if len(on) == 1 {
		return Postgres.After(c, o).String()
	}
	var parts []string
	for _, v := range slices.Sorted(maps.Keys(on)) {
		parts = append(parts, strings.Join(on[v], ", ")+": "+v)
	}
	return strings.Join(parts, "; ")
}

// Codes lists the codes of class c, or says why there are none.
func Codes(d Database, c Class) string {
	var codes []string
	switch d {
	case Any: // has no codes of its own
	case Postgres:
		for code, of := range postgresCodes {
			if of == c {
				codes = append(codes, code)
			}
		}
		for code, of := range postgresClasses {
			if of == c {
				codes = append(codes, code+"...")
			}
		}
	case MySQL:
		for _, n := range mysqlCodes[c] {
			codes = append(codes, fmt.Sprintf("%04d", n))
		}
	case SQLite:
		for code, of := range sqliteCodes {
			if of == c {
				codes = append(codes, strconv.Itoa(code))
			}
		}
		slices.SortFunc(codes, func(a, b string) int { return cmp.Or(len(a)-len(b), cmp.Compare(a, b)) })
	}
	if len(codes) > 0 {
		if d != SQLite {
			slices.Sort(codes)
		}
		return strings.Join(codes, ", ")
	}
	return without(d, c)
}

// without says why a database has no code of a class.
func without(d Database, c Class) string {
	switch {
	case c == data:
		return "all others"
	case c == unknown:
		return "no code"
	case d == SQLite && c == deployment:
		return "1, by its text"
	case d == SQLite && c == connection:
		return "none: no network"
	case d == SQLite && (c == timeLimit || c == idleLimit || c == limit):
		return "none: no such limits"
	case c == aborted:
		return "none: a failed statement undoes only itself"
	case c == transaction, c == internal, c == limit:
		return "none: these errors have other classes"
	}
	return "none"
}
