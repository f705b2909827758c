package testdb

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"time"
)

// ownServer is the process of a server that a test may kill and start again.
type ownServer struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	log   serverLog
}

// start starts the program args[0], and returns when answers returns nil. command makes the command of a shell.
func (s *ownServer) start(ctx context.Context, command func(program string, args ...string) *exec.Cmd, args []string,
	answers func(context.Context) error,
) (err error) {
	// The shell stops the server when its standard input ends, also if this process is killed.
	const keep = `"$@" & pid=$!; read -r signal; kill -"${signal:-QUIT}" $pid; wait $pid`
	s.cmd = command("sh", append([]string{"-c", keep, "sh"}, args...)...)
	s.cmd.Stdout, s.cmd.Stderr = &s.log, &s.log
	if s.stdin, err = s.cmd.StdinPipe(); err != nil {
		return err
	}
	if err := s.cmd.Start(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, setUpWithin)
	defer cancel()
	for {
		err := answers(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w: %w\n%s", args[0], ctx.Err(), err, s.log.tail())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// end returns when all of the server's processes have ended: they share its standard error, and Wait waits for the end
// of that.
func (s *ownServer) end(signal string) {
	if s.stdin == nil {
		return
	}
	_, _ = io.WriteString(s.stdin, signal+"\n")
	_ = s.stdin.Close()
	_ = s.cmd.Wait()
	s.stdin = nil
}

// serverLog keeps a server's output.
type serverLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *serverLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *serverLog) tail() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := l.text.Bytes()
	return string(text[max(0, len(text)-2000):])
}
