//go:build unix

package main

import (
	"context"
	"syscall"
)

// A server is one kind of server that tests need.
type server interface {
	// About says how it is called and where it answers.
	About() about
	// Healthy returns nil when the server at this address can do its job, which takes a question in its own protocol:
	// a port that accepts connections is not yet a Kafka that has a controller.
	Healthy(ctx context.Context, address string) error
	// Needs lists the programs that running it natively takes.
	Needs() []program
	// Prepare makes it ready to run natively: fetches jars, creates its data in the empty folder dir, and says what to run.
	// On an error only the process's Outside counts.
	Prepare(ctx context.Context, dir string) (process, error)
}

// about is what a person or a test has to know of a server.
type about struct {
	Name    string   // in `make services-up S=…`, in compose.yaml, and its folder in .services
	Title   string   // for people
	Env     string   // the variable that holds its address
	Address string   // what that variable is set to
	Ports   []string // that it needs beside the one of Address
}

// A program is looked for on PATH, and installed with apt-get when it is not there.
type program struct {
	Name    string
	Package string // Debian's package that holds it
}

// A process is how a server runs natively. It is kept as JSON beside its log, for keep, for down, and for the curious.
type process struct {
	Args []string
	// User is who it runs as; nil means whoever runs this program.
	User *syscall.Credential `json:",omitempty"`
	// Stop is the signal it shuts down cleanly on.
	Stop syscall.Signal
	// Outside is a folder beyond .services that goes away with it; empty for none.
	Outside string `json:",omitempty"`
}
