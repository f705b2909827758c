package modules_test

import (
	"archive/zip"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const mebibyte = 1 << 20

// What go mod tidy downloads for a program that imports a package: the library's own tests decide that too, because go
// mod tidy also loads the tests of imported packages.
func TestDownloads(t *testing.T) {
	if testing.Short() {
		t.Skip("may download modules; -short runs only what needs nothing but Go")
	}
	for _, test := range []struct {
		name  string
		most  int64
		paths []string
	}{
		{"pgxstore", 12 * mebibyte, []string{"/consumer", "/adapters/pgxstore"}}, // pgx alone: 9
		{"pgxstore and kafka", 100 * mebibyte, []string{"/consumer", "/adapters/pgxstore", "/adapters/kafka"}},
		{"without a database", 3 * mebibyte, []string{"/consumer", "/outbox/relay", "/adapters/webhook/stripehook", "/adapters/httpidem", "/adapters/sqlstore"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := newProgram(t)
			for i, path := range test.paths {
				test.paths[i] = root + path
			}
			p.imports(test.paths...)
			p.run("mod", "tidy")
			got := size(t, filepath.Join(p.cache, "cache", "download"))
			needed := p.run("list", "-m", "all")
			for _, m := range modules(t) {
				if strings.Contains(needed, "\n"+m.Path+" ") {
					got += zipped(t, m.Dir) // comes from the checkout here, and from a proxy for users
				}
			}
			t.Logf("%.1f MiB", float64(got)/mebibyte)
			if got > test.most {
				t.Errorf("go mod tidy downloads %.1f MiB, want %d at the most", float64(got)/mebibyte,
					test.most/mebibyte)
			}
		})
	}
}

func size(t *testing.T, dir string) (n int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		n += info.Size()
		return err
	})
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return n
}

type counter int64

func (c *counter) Write(b []byte) (int, error) {
	*c += counter(len(b))
	return len(b), nil
}

// zipped returns the size of a module's zip file: its regular files, without modules within it and without what git
// ignores at its top.
func zipped(t *testing.T, dir string) int64 {
	t.Helper()
	var n counter
	archive := zip.NewWriter(&n)
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			_, nested := os.Stat(filepath.Join(path, "go.mod"))
			if path != dir && (nested == nil || strings.HasPrefix(entry.Name(), ".")) {
				return fs.SkipDir
			}
			return nil
		}
		if !entry.Type().IsRegular() {
			return nil
		}
		to, err := archive.Create(path)
		if err != nil {
			return err
		}
		from, err := os.Open(path)
		if err != nil {
			return err
		}
		defer from.Close()
		_, err = io.Copy(to, from)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	return int64(n)
}

// A program with older versions of libraries that the imported modules do not need keeps them.
func TestUnrelatedRequirementsStay(t *testing.T) {
	if testing.Short() {
		t.Skip("may download modules; -short runs only what needs nothing but Go")
	}
	neighbours := []string{
		"github.com/ThreeDotsLabs/watermill v1.3.5", "github.com/aws/aws-sdk-go-v2 v1.25.0",
		"github.com/go-sql-driver/mysql v1.7.1",
		"github.com/prometheus/client_golang v1.18.0", "github.com/spf13/cobra v1.7.0",
		"go.opentelemetry.io/otel v1.24.0",
	}
	for _, adapters := range [][]string{{"/adapters/pgxstore"}, {"/adapters/pgxstore", "/adapters/kafka"}} {
		require := append([]string{root + " v0.1.0"}, neighbours...)
		for _, path := range adapters {
			require = append(require, root+path+" v0.1.0")
		}
		chosen := newProgram(t, require...).run("list", "-m", "all")
		for _, n := range neighbours {
			if !strings.Contains(chosen, "\n"+n+"\n") {
				t.Errorf("with %v, %s is not kept:\n%s", adapters, n, chosen)
			}
		}
	}
}
