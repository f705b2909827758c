// Package migrations holds the tables that txonce needs, as numbered SQL files per database.
//
// Three ways lead to the same schema, and a program chooses one:
//
//   - [Apply] brings a database up to date from within the program, at its start. Any number of nodes may do so at once.
//   - [FS] is the files as golang-migrate reads them: 0001_processed_messages.up.sql and .down.sql. On MySQL it needs
//     multiStatements=true in its DSN.
//   - [Goose] is the same files as goose reads them: one per number, with both directions annotated.
//
// Whichever applied them, the table txonce_schema says what is installed, because each file writes its own number
// there. Stores read it at start and name what is missing; they never change the schema by themselves.
//
// Files that were released do not change. A later file has a higher number. Its row in txonce_schema says in works_with
// the lowest version that a program must know to work with the new schema. Where that is the version before, because the file
// leaves the rows and columns that the release before reads as they were, a rolling deployment can apply it first.
package migrations

import (
	"archive/zip"
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

//go:embed postgres/*.sql sqlite/*.sql mysql/*.sql
var files embed.FS

// FS returns the files for db, "postgres", "sqlite" or "mysql", named as golang-migrate wants them.
func FS(db string) (fs.FS, error) {
	if _, err := steps(db); err != nil {
		return nil, err
	}
	return fs.Sub(files, db)
}

// Goose returns the files for db, "postgres", "sqlite" or "mysql", as goose wants them: both directions in one, annotated.
func Goose(db string) (fs.FS, error) {
	all, err := steps(db)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	w := zip.NewWriter(&b) // a zip.Reader is a whole fs.FS in memory
	for _, s := range all {
		f, err := w.Create(s.name + ".sql")
		if err != nil {
			return nil, fmt.Errorf("migrations: %w", err)
		}
		fmt.Fprintf(f, "-- +goose Up\n%s\n-- +goose Down\n%s", s.up, s.down)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("migrations: %w", err)
	}
	return zip.NewReader(bytes.NewReader(b.Bytes()), int64(b.Len()))
}

// Latest is the highest number among the files for db; 0 if there are none.
func Latest(db string) int {
	all, err := steps(db)
	if err != nil {
		return 0
	}
	return len(all)
}

// step is one number's files.
type step struct {
	name     string // 0001_processed_messages
	up, down string
}

// steps reads db's files, which are numbered from 1 without a gap.
func steps(db string) ([]step, error) {
	var all []step
	entries, err := files.ReadDir(db)
	if err != nil || strings.Contains(db, "/") || db == "." {
		return nil, fmt.Errorf("migrations: no files for database %q", db)
	}
	for _, e := range entries { // sorted by name
		name, isUp := strings.CutSuffix(e.Name(), ".up.sql")
		if !isUp {
			continue
		}
		digits, _, _ := strings.Cut(name, "_")
		if n, err := strconv.Atoi(digits); err != nil || n != len(all)+1 || len(digits) != 4 {
			return nil, fmt.Errorf("migrations: %s/%s is not number %d", db, name, len(all)+1)
		}
		up, err := files.ReadFile(db + "/" + name + ".up.sql")
		if err != nil {
			return nil, fmt.Errorf("migrations: %w", err)
		}
		down, err := files.ReadFile(db + "/" + name + ".down.sql")
		if err != nil {
			return nil, fmt.Errorf("migrations: %w", err)
		}
		all = append(all, step{name, string(up), string(down)})
	}
	return all, nil
}
