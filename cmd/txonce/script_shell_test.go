package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"

	"github.com/rogpeppe/go-internal/testscript"
)

// shell is a process of this binary that runs the commands of one script, one after the other. A process for each
// command would cost more than the commands: with the race detector it needs long to start, and the scripts have 800
// commands.
type shell struct {
	calls   *json.Encoder
	answers *json.Decoder
}

// call is a command with the variables of its environment that scripts change.
type call struct {
	Args []string
	Env  map[string]string
}

// outcome is the exit code of a command, and what it printed.
type outcome struct {
	Code           int
	Stdout, Stderr string
}

type shellKey struct{}

// startShell starts the shell of a script, in the folder of the script. The script fails if the race detector finds
// something in the shell.
func startShell(env *testscript.Env, fail func(format string, args ...any)) error {
	cmd := exec.Command(os.Args[0])
	cmd.Dir, cmd.Env, cmd.Stderr = env.WorkDir, append(env.Vars, envRole+"=shell"), os.Stderr
	in, inErr := cmd.StdinPipe()
	out, outErr := cmd.StdoutPipe()
	if err := errors.Join(inErr, outErr); err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	env.Defer(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			fail("the process that ran the commands: %v", err)
		}
	})
	env.Values[shellKey{}] = &shell{json.NewEncoder(in), json.NewDecoder(out)}
	return nil
}

// inShell returns the command of a script that runs this program of the shell.
func inShell(program string) func(ts *testscript.TestScript, neg bool, args []string) {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		if code := runInShell(ts, program, args); (code != 0) != neg {
			ts.Fatalf("%s exits with %d", program, code)
		}
	}
}

func runInShell(ts *testscript.TestScript, program string, args []string) (code int) {
	c := call{append([]string{program}, args...), map[string]string{}}
	for _, name := range []string{"TXONCE_DSN", "TXONCE_KEY_SECRET"} {
		c.Env[name] = ts.Getenv(name)
	}
	s := ts.Value(shellKey{}).(*shell)
	ts.Check(s.calls.Encode(c))
	var a outcome
	ts.Check(s.answers.Decode(&a))
	fmt.Fprint(ts.Stdout(), a.Stdout)
	fmt.Fprint(ts.Stderr(), a.Stderr)
	return a.Code
}

// serveScript is what the process of a shell does: it runs the commands that it reads until its input ends.
func serveScript(ctx context.Context) error {
	calls, answers := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	var err error
	if os.Stdin, err = os.Open(os.DevNull); err != nil { // of the commands
		return err
	}
	for {
		var c call
		if err := calls.Decode(&c); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		a, err := c.run(ctx)
		if err != nil {
			return err
		}
		if err := answers.Encode(a); err != nil {
			return err
		}
	}
}

// run runs the command in this process, as main does. What the command prints goes to files.
func (c call) run(ctx context.Context) (a outcome, err error) {
	for name, value := range c.Env {
		if err := os.Setenv(name, value); err != nil {
			return a, err
		}
	}
	os.Args = c.Args
	a.Stdout, err = printed(&os.Stdout, func() (err error) {
		a.Stderr, err = printed(&os.Stderr, func() error {
			switch c.Args[0] {
			case "txonce":
				a.Code = run()
			case "mounted":
				a.Code = mounted(ctx)
			default:
				return fmt.Errorf("there is no program %s", c.Args[0])
			}
			return nil
		})
		return err
	})
	return a, err
}

// printed returns what f writes to a standard file.
func printed(to **os.File, f func() error) (string, error) {
	file, err := os.CreateTemp("", "printed")
	if err != nil {
		return "", err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	before := *to
	*to = file
	err = f()
	*to = before
	text, readErr := os.ReadFile(file.Name())
	return string(text), errors.Join(err, readErr)
}
