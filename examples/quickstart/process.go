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

// workerCommand is the argument with which this program runs itself as a worker.
const workerCommand = "worker"

// settings is what a worker is told, as the first line on its standard input. That stays open as long as the parent
// lives: its end is the worker's end. Further lines are orders: see haltOrder.
type settings struct {
	Name      string `json:"name"`
	Static    bool   `json:"static"` // a member of the group that comes back under its name
	Store     string `json:"store"`
	Driver    string `json:"driver"`
	Dialect   string `json:"dialect"`
	Database  string `json:"database"`
	Broker    string `json:"broker"`
	Rebalance string `json:"rebalance"`
	Broken    string `json:"broken"`
	Halt      int    `json:"halt"` // stop inside the handler of this new message; 0: never
	place
}

// haltOrder is the line that lets a worker stop inside the handler of its next new message.
const haltOrder = "halt\n"

// report is what a worker says on its standard output, one JSON object per line. What a worker had not said when it
// was killed is not known.
type report struct {
	Joined     bool   `json:"joined,omitempty"`     // it has got something to do
	Generation int32  `json:"generation,omitempty"` // of the group, whenever a partition is assigned
	Spans      []span `json:"spans,omitempty"`      // of partitions, finished since the last report
	Finished   int64  `json:"finished,omitempty"`   // of a queue, since the last report
	Again      int64  `json:"again,omitempty"`      // of a queue, delivered again since the last report
	Standing   string `json:"standing,omitempty"`   // the order in whose handler it has stopped
}

// span is a run of deliveries of one partition, To exclusive.
type span struct {
	Partition int32 `json:"p"`
	From      int64 `json:"from"`
	To        int64 `json:"to"`
}

// event is what the supervisor hears of a process: a report, or its end.
type event struct {
	from   *process
	report report
	ended  bool
	err    error // of the end; nil: by itself, with success
}

// process is a running worker.
type process struct {
	settings
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	log    tail
	joined bool   // it has had a partition; before that SIGTERM may find it without a handler for it
	worked bool   // it has finished something
	doom   string // why it is going to be killed, once that is sure
	told   bool   // to stop, with SIGTERM
}

// spawn starts a worker. Its reports and its end go to events, in order.
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

// These fail where the process has ended, which is about to be heard anyway.
func (p *process) halt()      { _, _ = io.WriteString(p.stdin, haltOrder) }
func (p *process) kill()      { _ = p.cmd.Process.Kill() }
func (p *process) freeze()    { _ = p.cmd.Process.Signal(syscall.SIGSTOP) }
func (p *process) thaw()      { _ = p.cmd.Process.Signal(syscall.SIGCONT) }
func (p *process) terminate() { p.told = true; _ = p.cmd.Process.Signal(syscall.SIGTERM) }

// tail keeps the end of what is written to it.
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
