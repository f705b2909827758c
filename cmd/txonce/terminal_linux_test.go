package main

import (
	"bufio"
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/txonce/txonce/adapters/cli"
	"github.com/txonce/txonce/adapters/sqlstore"
)

// terminal runs the command line on a terminal of its own, and returns what is typed into it.
func terminal(t *testing.T, args ...string) (keyboard *os.File, stderr *bufio.Reader, ended func() int) {
	t.Helper()
	keyboard, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = keyboard.Close() })
	if err := unix.IoctlSetPointerInt(int(keyboard.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(keyboard.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer tty.Close()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), envRole+"=txonce")
	cmd.Stdin = tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true} // Ctrl-C is a signal to it
	pipe, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return keyboard, bufio.NewReader(pipe), func() int {
		var exit *exec.ExitError
		if err := cmd.Wait(); errors.As(err, &exit) {
			return exit.ExitCode()
		}
		return 0
	}
}

// prompt reads up to a question.
func prompt(t *testing.T, stderr *bufio.Reader, question string) {
	t.Helper()
	var text []byte
	for !bytes.HasSuffix(text, []byte(question)) {
		b, err := stderr.ReadByte()
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		text = append(text, b)
	}
}

// parked is an SQLite database with a dead letter of billing.
func parked(t *testing.T) *planted {
	t.Helper()
	line, driver := servers()["sqlite"].dsn(t, t.TempDir())
	db, err := sql.Open("sqlite", driver)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	p := &planted{seeds: &seeds{t: t, db: db, dialect: sqlstore.SQLite}, line: line}
	command(t, p, "migrate", "up")
	park1(t, p)
	return p
}

func letters(t *testing.T, p *planted) (n int) {
	t.Helper()
	if err := p.db.QueryRowContext(t.Context(), `SELECT count(*) FROM dead_letters`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// Ctrl-C at the question ends the command at once, with 5 and without a change.
func TestInterruptAtTheQuestion(t *testing.T) {
	t.Parallel()
	s := parked(t)
	keyboard, stderr, ended := terminal(t, "dead-letters", "discard", "--consumer", "billing", "--reason", "x",
		"--dsn", s.line)
	prompt(t, stderr, "Type billing to go on: ")
	if _, err := keyboard.WriteString("\x03"); err != nil {
		t.Fatal(err)
	}
	prompt(t, stderr, "interrupted: nothing was changed\n")
	if code := ended(); code != cli.ExitInterrupted || letters(t, s) != 1 {
		t.Errorf("exit code %d, want %d; %d letters", code, cli.ExitInterrupted, letters(t, s))
	}
}

// A question can be answered after --timeout, too.
func TestSlowAnswer(t *testing.T) {
	t.Parallel()
	s := parked(t)
	s.old(t)
	at := time.Now().Add(-48 * time.Hour).UTC().Format(time.RFC3339)
	for _, args := range [][]string{
		{"horizon", "set", "billing", at},
		{"dead-letters", "discard", "--consumer", "billing"},
	} {
		keyboard, stderr, ended := terminal(t, append(args, "--reason", "x", "--dsn", s.line, "--timeout", "3s")...)
		prompt(t, stderr, " to go on: ")
		timer := time.NewTimer(4 * time.Second)
		select {
		case <-timer.C:
		case <-t.Context().Done():
		}
		if _, err := keyboard.WriteString("billing\n"); err != nil {
			t.Fatal(err)
		}
		rest, _ := stderr.ReadString(0)
		if code := ended(); code != cli.ExitFine {
			t.Errorf("%s: exit code %d: %s", args, code, rest)
		}
	}
	if letters(t, s) != 0 {
		t.Errorf("%d letters", letters(t, s))
	}
}

// /dev/null is a device of characters and no terminal.
func TestNoTerminal(t *testing.T) {
	t.Parallel()
	s := parked(t)
	cmd := exec.CommandContext(t.Context(), os.Args[0], "dead-letters", "discard", "--consumer", "billing", "--reason",
		"x", "--dsn", s.line)
	cmd.Env = append(os.Environ(), envRole+"=txonce")
	out, err := cmd.CombinedOutput() // its input is /dev/null
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != cli.ExitRefused || !strings.Contains(string(out),
		"the input is no terminal") || strings.Contains(string(out), "Type billing") {
		t.Errorf("%v: %s", err, out)
	}
}
