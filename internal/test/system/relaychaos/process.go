//go:build unix

package main

import (
	"os"
	"time"

	"github.com/txonce/txonce/internal/test/spawn"
)

// relayCommand is the argument that makes this program run as a relay.
const relayCommand = "relay"

// settings are those of a relay.
type settings struct {
	Name     string        `json:"name"`
	Database string        `json:"database"`
	Kafka    []string      `json:"kafka"`
	Lease    time.Duration `json:"lease"`
	Batch    int           `json:"batch"`
	Broken   string        `json:"broken"`
}

// Orders to a relay.
const (
	orderBefore = "stop before publish"
	orderAfter  = "stop after publish"
	orderFree   = "continue"
)

// report is what a relay tells its parent.
type report struct {
	Ready   bool `json:"ready,omitempty"`   // it handles SIGTERM from now on
	Stopped int  `json:"stopped,omitempty"` // it stopped while publishing this many messages
}

// process is a running relay.
type process struct {
	settings
	spawn.Process[report]
	ready   chan struct{} // closed when it handles SIGTERM; an earlier SIGTERM kills it
	stopped chan int      // number of messages, each time it stops
	ended   chan struct{} // closed at its end, after err is set
	err     error
}

func start(s settings, verbose bool) (*process, error) {
	p := &process{settings: s, ready: make(chan struct{}), stopped: make(chan int, 8), ended: make(chan struct{})}
	if verbose {
		p.Log.Also = os.Stderr
	}
	err := p.Start(s.Name, relayCommand, s, p.heard, func(err error) {
		p.err = err
		close(p.ended)
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

func (p *process) heard(r report) {
	if r.Ready { // sent once
		close(p.ready)
		return
	}
	select {
	case p.stopped <- r.Stopped:
	default: // no fault waits for it
	}
}
