//go:build unix

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// endWithin is how long a server may take to shut down before it is killed.
const endWithin = time.Minute

// keep runs the process that dir describes until it gets SIGTERM or dir is deleted, for example with the whole
// checkout. As the parent it can signal its child safely, whereas a process id from a file may belong to another
// process by now.
func keep(dir string) error {
	p, err := readProcess(dir)
	if err != nil {
		return err
	}
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM)

	ids := os.NewFile(3, idsFile) // opened and locked by startKeeper
	child := exec.Command(p.Args[0], p.Args[1:]...)
	child.Dir = "/"
	child.Stdout, child.Stderr = os.Stdout, os.Stderr
	child.ExtraFiles = []*os.File{ids}
	child.SysProcAttr = &syscall.SysProcAttr{Credential: p.User}
	if err := child.Start(); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(ids, os.Getpid(), child.Process.Pid); err != nil {
		return errors.Join(err, child.Process.Kill())
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = child.Wait() // ProcessState has the result
	}()

	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ended:
			return fmt.Errorf("%s ended by itself: %s", p.Args[0], child.ProcessState)
		case <-asked:
			return end(child, p.Stop, ended)
		case <-tick.C:
			if _, err := os.Stat(filepath.Join(dir, processFile)); errors.Is(err, fs.ErrNotExist) {
				return errors.Join(end(child, p.Stop, ended), removeOutside(p))
			}
		}
	}
}

// end stops the child, and kills it if that takes too long. The exit code of a stopped process does not matter.
func end(child *exec.Cmd, stop syscall.Signal, ended <-chan struct{}) error {
	if err := child.Process.Signal(stop); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-ended:
		return nil
	case <-time.After(endWithin):
	}
	err := child.Process.Kill()
	<-ended
	return errors.Join(fmt.Errorf("%s had to be killed", child.Path), err)
}

func removeOutside(p process) error {
	if p.Outside == "" {
		return nil
	}
	return os.RemoveAll(p.Outside)
}
