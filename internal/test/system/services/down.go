//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// down concurrently stops the servers that this checkout started, and removes their data. It does not touch other
// servers.
func down(ctx context.Context, servers []server) error {
	failures := make([]error, len(servers))
	var side sync.WaitGroup
	for i, s := range servers {
		side.Go(func() {
			if _, err := os.Stat(filepath.Join(state, s.About().Name)); err != nil {
				say(s, "was not started from here")
				return
			}
			if err := stop(ctx, s); err != nil {
				failures[i] = fmt.Errorf("%s: %w", s.About().Name, err)
				return
			}
			say(s, "stopped, its data removed")
		})
	}
	side.Wait()
	return errors.Join(append(failures, forget(servers))...)
}

// stop stops a server if this checkout started it, and removes its folder. After an error it keeps the folder, so that
// the next attempt still knows what to stop.
func stop(ctx context.Context, s server) error {
	dir, err := dirOf(s)
	if err != nil {
		return err
	}
	if err := errors.Join(stopNative(ctx, dir), stopDocker(ctx, s, dir)); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

// forget removes servers from .services/env, and removes .services if it is empty.
func forget(servers []server) error {
	lines, err := envWithout(servers)
	if err != nil {
		return err
	}
	env := filepath.Join(state, "env")
	if len(lines) > 0 {
		return os.WriteFile(env, []byte(strings.Join(append(lines, ""), "\n")), 0o644)
	}
	for _, file := range []string{env, filepath.Join(state, elasticMQFile)} {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
