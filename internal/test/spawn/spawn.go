// Package spawn runs this program again, as a worker that can be killed and frozen. The worker reads its settings from
// the first line of its standard input, and orders from further lines. The input stays open while the parent lives:
// when it ends, the worker ends. The worker writes its reports to its standard output, a line of JSON each. What it has
// not reported when it is killed stays unknown.
package spawn

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
)

// Process is a worker that reports values of type R. The zero value can be started.
type Process[R any] struct {
	Log   Tail // what it wrote to its standard error, and what is no report
	cmd   *exec.Cmd
	stdin io.WriteCloser
}

// Start runs `PROGRAM command`. The worker is called name in errors. It calls heard for each report, in order, and then
// ended: with nil for the exit code 0. Both are called by one goroutine.
func (p *Process[R]) Start(name, command string, settings any, heard func(R), ended func(error)) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	p.cmd = exec.Command(self, command)
	p.cmd.Stderr = &p.Log
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return err
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	go p.listen(stdout, heard, ended)
	if err := json.NewEncoder(p.stdin).Encode(settings); err != nil {
		p.Signal(syscall.SIGKILL)
		return fmt.Errorf("talk to %s: %w", name, err)
	}
	return nil
}

func (p *Process[R]) listen(stdout io.Reader, heard func(R), ended func(error)) {
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		var r R
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			fmt.Fprintln(&p.Log, lines.Text())
			continue
		}
		heard(r)
	}
	ended(p.cmd.Wait())
}

// Order writes a line to the worker. It fails if the worker has ended, which ended tells.
func (p *Process[R]) Order(line string) { _, _ = io.WriteString(p.stdin, line+"\n") }

// Signal sends a signal. It fails if the worker has ended.
func (p *Process[R]) Signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

// State says how the worker ended. It is nil until ended is called.
func (p *Process[R]) State() *os.ProcessState { return p.cmd.ProcessState }

// Settings reads the first line of a worker's standard input. The orders are what comes after it.
func Settings(settings any) (orders *bufio.Reader, err error) {
	orders = bufio.NewReader(os.Stdin)
	line, err := orders.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, settings)
	}
	return orders, err
}
