//go:build unix

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
	"time"
)

// relayCommand is the argument that makes this program run as a relay.
const relayCommand = "relay"

// settings is what a relay reads as the first line of its standard input. The input stays open while the parent lives: when it
// ends, the relay ends. Further lines are orders.
type settings struct {
	Name     string        `json:"name"`
	Database string        `json:"database"`
	Kafka    []string      `json:"kafka"`
	Lease    time.Duration `json:"lease"`
	Batch    int           `json:"batch"`
	Broken   string        `json:"broken"`
}

// Orders are single lines on a relay's standard input.
const (
	orderBefore = "stop before publish"
	orderAfter  = "stop after publish"
	orderFree   = "continue"
)

// report is one line of JSON on a relay's standard output.
type report struct {
	Ready   bool `json:"ready,omitempty"`   // it handles SIGTERM from now on
	Stopped int  `json:"stopped,omitempty"` // it stopped while publishing this many messages
}

// process is a running relay.
type process struct {
	settings
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	log     tail
	ready   chan struct{} // closed when it handles SIGTERM; an earlier SIGTERM kills it
	stopped chan int      // number of messages, each time it stops
	ended   chan struct{} // closed at its end, after err is set
	err     error
}

func spawn(s settings, verbose bool) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{settings: s, cmd: exec.Command(self, relayCommand), ready: make(chan struct{}), stopped: make(chan int, 8), ended: make(chan struct{})}
	if verbose {
		p.log.also = os.Stderr
	}
	p.cmd.Stderr = &p.log
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", s.Name, err)
	}
	go p.listen(stdout)
	if err := json.NewEncoder(p.stdin).Encode(s); err != nil {
		p.signal(syscall.SIGKILL)
		return nil, fmt.Errorf("talk to %s: %w", s.Name, err)
	}
	return p, nil
}

func (p *process) listen(stdout io.Reader) {
	defer close(p.ended)
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		var r report
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			fmt.Fprintln(&p.log, lines.Text())
			continue
		}
		if r.Ready { // sent once
			close(p.ready)
			continue
		}
		select {
		case p.stopped <- r.Stopped:
		default: // no fault waits for it
		}
	}
	p.err = p.cmd.Wait()
}

// These fail if the process has ended, which closes ended.
func (p *process) order(line string)       { _, _ = io.WriteString(p.stdin, line+"\n") }
func (p *process) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

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
