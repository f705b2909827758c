// Package child runs a test binary again, as a process that serves HTTP and can be killed. A package that uses it calls
// Main in its TestMain, and Start or StartGroup in its tests.
package child

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
)

// env makes the binary a child. Its value is the arguments of Start as JSON.
const env = "TXONCE_TEST_CHILD"

// Main does nothing in the process that go test started. In a child it serves what handler returns for the arguments of
// Start, and does not return. ctx never ends.
func Main(handler func(ctx context.Context, args []string) (http.Handler, error)) {
	text, isChild := os.LookupEnv(env)
	if !isChild {
		return
	}
	fmt.Fprintln(os.Stderr, serve(context.Background(), text, handler)) //nolint:forbidigo // TestMain has no context
	os.Exit(1)
}

func serve(ctx context.Context, text string, handler func(context.Context, []string) (http.Handler, error)) error {
	var args []string
	if err := json.Unmarshal([]byte(text), &args); err != nil {
		return fmt.Errorf("%s: %w", env, err)
	}
	h, err := handler(ctx, args)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stdout, listener.Addr())
	go func() { // the parent's end is this process's end
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	return http.Serve(listener, h)
}

// KillMyself ends this process with SIGKILL.
func KillMyself() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// FreezeMyself stops this process with SIGSTOP, and returns when somebody has let it go on (SIGCONT). Kill alone returns
// up to a few milliseconds before the process stands still: the caller would freeze somewhere behind its boundary.
func FreezeMyself() {
	goesOn := make(chan os.Signal, 1)
	signal.Notify(goesOn, syscall.SIGCONT)
	defer signal.Stop(goesOn)
	if err := syscall.Kill(os.Getpid(), syscall.SIGSTOP); err == nil {
		<-goesOn
	}
}

// Process is a child that listens.
type Process struct {
	URL   string
	cmd   *exec.Cmd
	stdin io.Closer
	ended chan struct{} // closed when the process has ended
}

// Start starts a child and waits until it listens.
func Start(args ...string) (*Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(args)
	if err != nil {
		return nil, err
	}
	p := &Process{cmd: exec.Command(self), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env+"="+string(text))
	p.cmd.Stderr = os.Stderr
	stdin, stdinErr := p.cmd.StdinPipe()
	stdout, stdoutErr := p.cmd.StdoutPipe()
	if err := errors.Join(stdinErr, stdoutErr); err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	p.stdin = stdin
	line, err := bufio.NewReader(stdout).ReadString('\n')
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait()
	}()
	if err != nil {
		p.Kill()
		return nil, fmt.Errorf("the child did not start: %w", err)
	}
	p.URL = "http://" + strings.TrimSpace(line)
	return p, nil
}

// Kill ends the process with SIGKILL and returns when it has ended. It may have ended before.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
	p.stdin.Close()
}

// stopped reports whether a signal has stopped the process.
func (p *Process) stopped() bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	_, after, _ := strings.Cut(string(stat), ") ")
	return err == nil && strings.HasPrefix(after, "T")
}
