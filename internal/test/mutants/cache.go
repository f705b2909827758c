package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// buildCache is the folder where go test caches what it builds for mutants. It is not the user's cache, to which a
// whole run would add many GB.
type buildCache string

// folder is where the cache is, below the root of the checkout. It stays after a run: the next one begins sooner.
const folder = ".mutants"

func openCache() (buildCache, error) {
	dir, err := filepath.Abs(folder)
	return buildCache(dir), err
}

// build builds the tests of a package without a mutation, so that the cache has everything that its mutants share.
func (c buildCache) build(ctx context.Context, module, pkg string) error {
	if out, err := c.command(ctx, module, "list", "-export", "-deps", "-test", pkg).CombinedOutput(); err != nil {
		return fmt.Errorf("build the tests of %s without a mutation: %w\n%s", pkg, err, out)
	}
	return nil
}

// command returns a go command that runs in the folder of a module and uses the cache.
func (c buildCache) command(ctx context.Context, module string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = module
	cmd.Env = append(os.Environ(), "GOCACHE="+string(c))
	return cmd
}

// forget deletes what was cached since then: what was built for one mutant.
func (c buildCache) forget(then time.Time) error {
	return filepath.WalkDir(string(c), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		if info, err := entry.Info(); err != nil || info.ModTime().Before(then) {
			return err
		}
		return os.Remove(path)
	})
}
