//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// lockFile opens a file and locks it, waiting until ctx ends. The lock ends with the last process that has the file
// open, however that process ends. A process id in a file would stay.
func lockFile(ctx context.Context, path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, ctx.Err()), f.Close())
		case <-tick.C:
		}
	}
}

// lockMachine excludes this user's other checkouts until unlock is called.
func lockMachine(ctx context.Context) (unlock func(), err error) {
	f, err := lockFile(ctx, filepath.Join(os.TempDir(), fmt.Sprintf("txonce-services-%d.lock", os.Getuid())))
	if err != nil {
		return nil, err
	}
	return func() { f.Close() }, nil
}
