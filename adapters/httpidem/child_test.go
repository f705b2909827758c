package httpidem_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/txonce/txonce/adapters/httpidem"
	"github.com/txonce/txonce/internal/test/parallel"
)

// childEnv makes the test binary serve HTTP as a process that can be killed. Its value is an engine, a mode and a DSN.
const childEnv = "TXONCE_HTTPIDEM_CHILD"

// The modes of a child.
const (
	steady       = "steady"
	beforeCommit = "before-commit" // it kills itself after the handler's work, before COMMIT
	afterCommit  = "after-commit"  // it kills itself after COMMIT, before the response
)

func TestMain(m *testing.M) {
	if what, child := os.LookupEnv(childEnv); child {
		if err := serveChild(what); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	_ = mysql.SetLogger(new(mysql.NopLogger)) // it would log each connection that a test cuts
	parallel.Tests(6)                         // most tests wait for disks and locks
	os.Exit(m.Run())
}

func serveChild(what string) error {
	name, rest, _ := strings.Cut(what, " ")
	mode, dsn, _ := strings.Cut(rest, " ")
	_ = mysql.SetLogger(new(mysql.NopLogger))
	ctx := context.Background()
	for _, e := range engines {
		if e.name != name {
			continue
		}
		s := settings{wait: 500 * time.Millisecond, conns: 10}
		if mode == afterCommit {
			s.trace = &httpidem.Trace{Committed: func(context.Context, httpidem.Event) { killMyself() }}
		}
		n, err := e.open(ctx, dsn, s)
		if err != nil {
			return err
		}
		order := e.order
		if mode == steady {
			order = e.tokenOrder
		}
		if mode == beforeCommit {
			order = func(ctx context.Context, exec func(string, ...any) error, w http.ResponseWriter, r *http.Request) error {
				defer killMyself()
				return e.order(ctx, exec, w, r)
			}
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
		return http.Serve(listener, n.handle(order))
	}
	return fmt.Errorf("no engine %q", name)
}

func killMyself() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// child is such a process.
type child struct {
	url   string
	cmd   *exec.Cmd
	stdin io.Closer
}

func startChild(e engine, mode, dsn string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{cmd: exec.Command(self)}
	c.cmd.Env = append(os.Environ(), childEnv+"="+e.name+" "+mode+" "+dsn)
	c.cmd.Stderr = os.Stderr
	stdin, err := c.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	c.stdin = stdin
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		c.kill()
		return nil, fmt.Errorf("the child did not start: %w", err)
	}
	c.url = "http://" + strings.TrimSpace(line)
	return c, nil
}

// kill ends the process with SIGKILL. It may have ended before.
func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
	c.stdin.Close()
}

// post sends an order to the process.
func (c *child) post(ctx context.Context, client *http.Client, key, body string) (status int, header http.Header, got string, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+"/orders", strings.NewReader(body))
	if err != nil {
		return 0, nil, "", err
	}
	r.Header.Set("Idempotency-Key", key)
	r.Header.Set("X-User", "ann")
	res, err := client.Do(r)
	if err != nil {
		return 0, nil, "", err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return res.StatusCode, res.Header, string(b), err
}

// A process dies around COMMIT.
func TestKilled(t *testing.T) {
	eachEngine(t, func(t *testing.T, e engine) {
		for _, tt := range []struct {
			name, mode string
			effects    int
		}{
			{"case 15: killed after the handler's work, before COMMIT: nothing is left, and the retry runs", beforeCommit, 0},
			{"case 16: killed after COMMIT, before the response: the retry is a replay", afterCommit, 1},
		} {
			t.Run(tt.name, func(t *testing.T) {
				dsn := e.create(t)
				c, err := startChild(e, tt.mode, dsn)
				if err != nil {
					t.Fatal(err)
				}
				defer c.kill()
				client := &http.Client{Transport: &http.Transport{}}
				defer client.CloseIdleConnections()
				if status, _, _, err := c.post(t.Context(), client, "k", "x"); err == nil {
					t.Fatalf("the killed process answered %d", status)
				}
				n := e.node(t, dsn, settings{})
				n.wantEffects(t, tt.effects)
				w := untilAnswered(t, n.handle(e.order), request{key: "k", body: "x"})
				if w.Code != http.StatusCreated || isReplay(w) != (tt.effects == 1) || w.Body.String() != "ordered x" {
					t.Errorf("the retry got %d %s, replayed %v", w.Code, w.Body, isReplay(w))
				}
				n.wantEffects(t, 1)
			})
		}
	})
}
