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

// FS returns the files for golang-migrate. db is "postgres", "sqlite" or "mysql"; any other name is an error.
func FS(db string) (fs.FS, error) {
	if _, err := steps(db); err != nil {
		return nil, err
	}
	return fs.Sub(files, db)
}

// Goose returns the files for goose, each with both directions. db is "postgres", "sqlite" or "mysql"; any other name
// is an error.
func Goose(db string) (fs.FS, error) {
	all, err := steps(db)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	w := zip.NewWriter(&b) // a zip.Reader is an fs.FS in memory
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

// Latest returns the number of the latest migration for db, or 0 if there is none.
func Latest(db string) int {
	all, err := steps(db)
	if err != nil {
		return 0
	}
	return len(all)
}

// step is the pair of files with one number.
type step struct {
	name     string // 0001_processed_messages
	up, down string
}

// steps reads the files for db, which are numbered from 1 without gaps.
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
