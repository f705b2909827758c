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

// startNative runs a server on this machine as the child of a keeper process. The channel receives the keeper's end.
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

// startKeeper starts this program as `services keep` in a new session, so that it outlives the terminal.
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
	defer ids.Close() // the keeper inherits the file and its lock

	keeper := exec.Command(self, "keep", dir) // without ctx, because it continues after up has returned
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

// stopNative stops the process that runs in dir, if there is one, and waits for its end.
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
		// The process ids in the file are valid only while the lock is held.
		var keeper, server int
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if _, err := fmt.Sscan(string(text), &keeper, &server); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		err = endAndWait(ctx, keeper, syscall.SIGTERM, path)
		if err != nil { // the keeper was killed, and its server still runs
			err = endAndWait(ctx, server, p.Stop, path)
		}
		if err != nil {
			return err
		}
	}
	return removeOutside(p)
}

// endAndWait signals a process and waits until no process holds the lock on the file.
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

// locked reports whether a process holds the file's lock.
func locked(ctx context.Context, path string) bool {
	ctx, cancel := context.WithCancel(ctx)
	cancel() // try once
	lock, err := lockFile(ctx, path)
	if err == nil {
		lock.Close()
	}
	return err != nil
}

// runner is a user and a folder for a server that refuses to run as root, such as PostgreSQL.
type runner struct {
	user    *syscall.Credential // nil if this process is not root
	dir     string              // owned by that user
	outside string              // dir, if it is not below .services
}

// unprivileged finds a user other than root and makes a folder that the user owns: in memory, or below dir, or in the
// system's folder for temporary files if the user cannot enter dir because the checkout is in root's home. names are
// preferred users, such as those of a server's package.
func unprivileged(dir string, names ...string) (runner, error) {
	run := runner{}
	if os.Getuid() == 0 {
		var err error
		if run.user, err = credential(append(names, "postgres", "nobody")); err != nil {
			return run, err
		}
	}
	data, outside, err := dataFolder(dir, filepath.Base(dir))
	switch {
	case err != nil:
	case outside != "":
		run.dir, run.outside = data, outside
	case run.user != nil && !reachable(dir):
		run.dir, err = os.MkdirTemp("", "txonce-"+filepath.Base(dir)+"-")
		run.outside = run.dir
	default:
		run.dir = filepath.Join(dir, "run")
		err = os.Mkdir(run.dir, 0o755)
	}
	if err != nil || run.user == nil {
		return run, err
	}
	return run, errors.Join(os.Chmod(run.dir, 0o755), os.Chown(run.dir, int(run.user.Uid), int(run.user.Gid)))
}

// credential returns the first of these users that exists.
func credential(names []string) (*syscall.Credential, error) {
	var owner *user.User
	var err error
	for _, name := range names {
		if owner, err = user.Lookup(name); err == nil {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	uid, err1 := strconv.ParseUint(owner.Uid, 10, 32)
	gid, err2 := strconv.ParseUint(owner.Gid, 10, 32)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, errors.Join(err1, err2)
}

// reachable reports whether every user may enter dir and all folders above it.
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
