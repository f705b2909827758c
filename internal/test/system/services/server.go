//go:build unix

package main

import (
	"context"
	"syscall"
)

// A server is a kind of server that tests need.
type server interface {
	// About returns its name and address.
	About() about
	// Healthy returns nil when the server at this address can do its job. It uses the server's own protocol: an open
	// port does not mean, for example, that a Kafka has a controller.
	Healthy(ctx context.Context, address string) error
	// Needs lists the programs for running it natively.
	Needs() []program
	// Prepare makes it ready to run natively: it fetches jars, creates the data in the empty folder dir, and returns
	// how to start it. With an error only the process's Outside is valid.
	Prepare(ctx context.Context, dir string) (process, error)
}

// about is what users and tests need to know about a server.
type about struct {
	Name    string   // in `make services-up S=…`, in compose.yaml, and its folder in .services
	Title   string   // in messages
	Env     string   // the environment variable with its address
	Address string   // the value of Env for a server that this program starts
	Ports   []string // the ports it needs in addition to that of Address
	// Optional says that not every machine can have this server. up continues without it, and writes Env=absent for the
	// tests.
	Optional bool
}

// A program must be on PATH; if it is missing, apt-get installs its package.
type program struct {
	Name    string
	Package string // Debian's package
}

// A process is how a server runs natively. It is stored as JSON beside the server's log, for keep and down.
type process struct {
	Args []string
	// User runs the process; nil means the current user.
	User *syscall.Credential `json:",omitempty"`
	// Stop is the signal for a clean shutdown.
	Stop syscall.Signal
	// Outside is a folder outside of .services that is removed with the server, or empty.
	Outside string `json:",omitempty"`
}
