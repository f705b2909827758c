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

// relayCommand is the argument with which this program runs itself as a relay.
const relayCommand = "relay"

// settings is what a relay is told, as the first line on its standard input. That stays open as long as the parent lives:
// its end is the relay's end. Further lines are orders.
type settings struct {
	Name     string        `json:"name"`
	Database string        `json:"database"`
	Kafka    []string      `json:"kafka"`
	Lease    time.Duration `json:"lease"`
	Batch    int           `json:"batch"`
	Broken   string        `json:"broken"`
}

// Orders, one line each.
const (
	orderBefore = "stand before publish"
	orderAfter  = "stand after publish"
	orderFree   = "go on"
)

// report is what a relay says on its standard output, one JSON object per line.
type report struct {
	Ready    bool `json:"ready,omitempty"`    // SIGTERM would now be heard
	Standing int  `json:"standing,omitempty"` // in the middle of publishing so many messages
}

// process is a running relay.
type process struct {
	settings
	cmd      *exec.Cmd
	stdin    io.WriteCloser
	log      tail
	ready    chan struct{} // closed when it heeds SIGTERM, which until then ends it like any program
	standing chan int      // messages; one value for each stand
	ended    chan struct{} // closed at its end; err is set then
	err      error
}

func spawn(s settings, verbose bool) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{settings: s, cmd: exec.Command(self, relayCommand), ready: make(chan struct{}), standing: make(chan int, 8), ended: make(chan struct{})}
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
		if r.Ready { // said once
			close(p.ready)
			continue
		}
		select {
		case p.standing <- r.Standing:
		default: // nobody has asked
		}
	}
	p.err = p.cmd.Wait()
}

// These fail where the process has ended, which is about to be heard anyway.
func (p *process) order(line string)       { _, _ = io.WriteString(p.stdin, line+"\n") }
func (p *process) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

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
