//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// startNative runs a server on this machine, as the child of a keeper of its own. The channel says when that ended.
func startNative(ctx context.Context, s server) (<-chan error, error) {
	dir, err := dirOf(s)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	p, err := s.Prepare(ctx, dir)
	if err == nil {
		err = writeProcess(dir, p)
	}
	if err != nil {
		return nil, errors.Join(err, removeOutside(p))
	}
	return startKeeper(ctx, dir)
}

// startKeeper starts this program again, as `services keep`, in a session of its own so that it outlives the terminal.
func startKeeper(ctx context.Context, dir string) (<-chan error, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	log, err := os.OpenFile(filepath.Join(dir, logFile), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	ids, err := lockFile(ctx, filepath.Join(dir, idsFile))
	if err != nil {
		return nil, err
	}
	defer ids.Close() // the keeper inherits it, and with it the lock

	keeper := exec.Command(self, "keep", dir) // without ctx: it stays when up returns
	keeper.Dir = "/"
	keeper.Stdout, keeper.Stderr = log, log
	keeper.ExtraFiles = []*os.File{ids}
	keeper.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := keeper.Start(); err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- keeper.Wait() }()
	return ended, nil
}

// stopNative ends what runs in dir, if anything does, and waits for it.
func stopNative(ctx context.Context, dir string) error {
	p, err := readProcess(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	path := filepath.Join(dir, idsFile)
	if locked(ctx, path) {
		// Only while the lock is held are the numbers in the file certain to be ours.
		var keeper, server int
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if _, err := fmt.Sscan(string(text), &keeper, &server); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		err = endAndWait(ctx, keeper, syscall.SIGTERM, path)
		if err != nil { // somebody killed the keeper, and left its server
			err = endAndWait(ctx, server, p.Stop, path)
		}
		if err != nil {
			return err
		}
	}
	return removeOutside(p)
}

// endAndWait signals a process and waits until nobody holds the lock on the file any more.
func endAndWait(ctx context.Context, pid int, signal syscall.Signal, path string) error {
	if err := syscall.Kill(pid, signal); err != nil {
		return fmt.Errorf("end process %d: %w", pid, err)
	}
	ctx, cancel := context.WithTimeout(ctx, endWithin+30*time.Second)
	defer cancel()
	lock, err := lockFile(ctx, path)
	if err != nil {
		return fmt.Errorf("process %d does not end: %w", pid, err)
	}
	return lock.Close()
}

// locked says whether a living process holds the file's lock.
func locked(ctx context.Context, path string) bool {
	ctx, cancel := context.WithCancel(ctx)
	cancel() // one try
	lock, err := lockFile(ctx, path)
	if err == nil {
		lock.Close()
	}
	return err != nil
}

// runner is the user and the folder for a server that refuses to run as root, as PostgreSQL does.
type runner struct {
	user    *syscall.Credential // nil when we are not root
	dir     string              // belongs to that user
	outside string              // dir, when it had to lie beyond .services
}

// unprivileged finds a user other than root and makes a folder of theirs: below dir, or, where they cannot get there
// because the checkout lies below root's home, in the system's folder for temporary files. names are users to look for
// first, those that a server's package makes.
func unprivileged(dir string, names ...string) (runner, error) {
	if os.Getuid() != 0 {
		run := filepath.Join(dir, "run")
		return runner{dir: run}, os.Mkdir(run, 0o755)
	}
	var owner *user.User
	var err error
	for _, name := range append(names, "postgres", "nobody") {
		if owner, err = user.Lookup(name); err == nil {
			break
		}
	}
	if err != nil {
		return runner{}, err
	}
	uid, err1 := strconv.ParseUint(owner.Uid, 10, 32)
	gid, err2 := strconv.ParseUint(owner.Gid, 10, 32)
	if err := errors.Join(err1, err2); err != nil {
		return runner{}, err
	}
	run := runner{user: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	if reachable(dir) {
		run.dir = filepath.Join(dir, "run")
		err = os.Mkdir(run.dir, 0o755)
	} else {
		run.dir, err = os.MkdirTemp("", "txonce-"+filepath.Base(dir)+"-")
		run.outside = run.dir
	}
	if err != nil {
		return runner{}, err
	}
	return run, errors.Join(os.Chmod(run.dir, 0o755), os.Chown(run.dir, int(uid), int(gid)))
}

// reachable says whether everybody may pass through dir and all folders above it.
func reachable(dir string) bool {
	for {
		info, err := os.Stat(dir)
		if err != nil || info.Mode()&0o001 == 0 {
			return false
		}
		if dir == filepath.Dir(dir) {
			return true
		}
		dir = filepath.Dir(dir)
	}
}
