package main

import (
	"os"
	"syscall"

	"github.com/txonce/txonce/internal/test/spawn"
)

// workerCommand is the argument that makes this program run as a worker.
const workerCommand = "worker"

// settings are those of a worker. Its parent may send haltOrder later.
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
const haltOrder = "halt"

// report is what a worker tells its parent now and then.
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
	spawn.Process[report]
	joined     bool   // it has had work; an earlier SIGTERM may come before its handler is installed
	worked     bool   // it has finished a delivery
	killedAt   string // where it is being killed, for the output; empty: it is not
	terminated bool   // it was sent SIGTERM
}

// start starts a worker. Its reports and its end are sent to events, in order.
func start(s settings, verbose bool, events chan<- event) (*process, error) {
	p := &process{settings: s}
	if verbose {
		p.Log.Also = os.Stderr
	}
	err := p.Start(s.Name, workerCommand, s,
		func(r report) { events <- event{from: p, report: r} },
		func(err error) { events <- event{from: p, ended: true, err: err} })
	if err != nil {
		return nil, err
	}
	return p, nil
}

// These fail if the process has ended. Its end is then reported as an event.
func (p *process) halt()      { p.Order(haltOrder) }
func (p *process) kill()      { p.Signal(syscall.SIGKILL) }
func (p *process) freeze()    { p.Signal(syscall.SIGSTOP) }
func (p *process) thaw()      { p.Signal(syscall.SIGCONT) }
func (p *process) terminate() { p.terminated = true; p.Signal(syscall.SIGTERM) }
