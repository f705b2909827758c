package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
)

// workerCommand is the argument that makes this program run as a worker.
const workerCommand = "worker"

// settings is what a worker reads as the first line of its standard input. The input stays open while the parent lives: when it
// ends, the worker ends. Further lines are commands: see haltOrder.
type settings struct {
	Name      string `json:"name"`
	Static    bool   `json:"static"` // a member that restarts under the same instance ID
	Store     string `json:"store"`
	Driver    string `json:"driver"`
	Dialect   string `json:"dialect"`
	Database  string `json:"database"`
	Broker    string `json:"broker"`
	Rebalance string `json:"rebalance"`
	Broken    string `json:"broken"`
	Telemetry bool   `json:"telemetry"` // report passes
	Halt      int    `json:"halt"`      // stop inside the handler of this nth new message; 0: never
	place
}

// haltOrder is the command that stops a worker inside the handler of its next new message.
const haltOrder = "halt\n"

// report is one line of JSON on a worker's standard output. What a worker has not reported when it is killed stays unknown.
type report struct {
	Joined     bool   `json:"joined,omitempty"`     // it got its first work
	Generation int32  `json:"generation,omitempty"` // of the group, when a partition is assigned
	Spans      []span `json:"spans,omitempty"`      // of partitions, finished since the last report
	Finished   int64  `json:"finished,omitempty"`   // from a queue, since the last report
	Again      int64  `json:"again,omitempty"`      // redelivered from a queue, since the last report
	Standing   string `json:"standing,omitempty"`   // the worker stopped in the handler of this order
	Passes     []pass `json:"passes,omitempty"`     // with -telemetry, since the last report
}

// span is a range of deliveries of one partition; To is exclusive.
type span struct {
	Partition int32 `json:"p"`
	From      int64 `json:"from"`
	To        int64 `json:"to"`
}

// event is a report from a process, or its end.
type event struct {
	from   *process
	report report
	ended  bool
	err    error // if ended; nil: exit code 0
}

// process is a running worker.
type process struct {
	settings
	cmd        *exec.Cmd
	stdin      io.WriteCloser
	log        tail
	joined     bool   // it has had work; an earlier SIGTERM may come before its handler is installed
	worked     bool   // it has finished a delivery
	killedAt   string // where it is being killed, for the output; empty: it is not
	terminated bool   // it was sent SIGTERM
}

// spawn starts a worker. Its reports and its end are sent to events, in order.
func spawn(s settings, verbose bool, events chan<- event) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{settings: s, cmd: exec.Command(self, workerCommand)}
	if verbose {
		p.log.also = os.Stderr
	}
	p.cmd.Stderr = &p.log
	p.stdin, err = p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", s.Name, err)
	}
	go p.listen(stdout, events)
	if err := json.NewEncoder(p.stdin).Encode(s); err != nil {
		p.kill()
		return nil, fmt.Errorf("talk to %s: %w", s.Name, err)
	}
	return p, nil
}

func (p *process) listen(stdout io.Reader, events chan<- event) {
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		var r report
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			fmt.Fprintln(&p.log, lines.Text())
			continue
		}
		events <- event{from: p, report: r}
	}
	events <- event{from: p, ended: true, err: p.cmd.Wait()}
}

// These fail if the process has ended. Its end is then reported as an event.
func (p *process) halt()      { _, _ = io.WriteString(p.stdin, haltOrder) }
func (p *process) kill()      { _ = p.cmd.Process.Kill() }
func (p *process) freeze()    { _ = p.cmd.Process.Signal(syscall.SIGSTOP) }
func (p *process) thaw()      { _ = p.cmd.Process.Signal(syscall.SIGCONT) }
func (p *process) terminate() { p.terminated = true; _ = p.cmd.Process.Signal(syscall.SIGTERM) }

// tail keeps the last bytes that were written to it.
type tail struct {
	mu   sync.Mutex
	kept []byte
	also io.Writer
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	const most = 4 << 10
	t.kept = append(t.kept, b...)
	if over := len(t.kept) - most; over > 0 {
		t.kept = bytes.Clone(t.kept[over:])
	}
	if t.also != nil {
		return t.also.Write(b)
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.kept))
}
