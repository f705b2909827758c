package testrabbitmq

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/txonce/txonce/internal/test/rabbitserver"

	"github.com/txonce/txonce/internal/test/testdb"
)

// Own is a RabbitMQ for one test, which may kill, restart and reconfigure it.
type Own struct {
	URL string

	server rabbitserver.Server
	cmd    *exec.Cmd
	alive  io.Closer
	log    string
}

// NoOwn returns why Start would fail, or "". One that runs in a container cannot be started this way.
func NoOwn() string {
	if rabbitserver.Programs() == "" {
		return "the shared RabbitMQ must not be restarted, and for one of the test's own its programs are not installed: apt-get install rabbitmq-server"
	}
	return ""
}

// Start starts a node with additional lines of rabbitmq.conf. It ends with the test.
func Start(t testing.TB, settings ...string) *Own {
	t.Helper()
	if testing.Short() {
		t.Skip("needs RabbitMQ; -short runs only what needs nothing but Go")
	}
	if reason := NoOwn(); reason != "" {
		t.Fatal(reason)
	}
	dir := t.TempDir()
	port := testdb.FreePort(t)
	r := &Own{
		URL: fmt.Sprintf("amqp://guest:guest@127.0.0.1:%d/", port),
		log: filepath.Join(dir, "log"),
		server: rabbitserver.Server{
			Programs: rabbitserver.Programs(), Dir: dir, Port: port, Dist: testdb.FreePort(t), Epmd: testdb.FreePort(t),
			Settings: settings,
		},
	}
	t.Cleanup(func() {
		r.Kill()
		if t.Failed() {
			t.Log("the errors in the own RabbitMQ's log:\n" + r.errors())
		}
	})
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

// Start starts it again after Kill, with its data and address, and returns when it answers.
func (r *Own) Start(ctx context.Context) error {
	args, err := r.server.Prepare()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(r.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	// The shell kills the node when its standard input ends, also if this process is killed.
	const keep = `"$@" & pid=$!; cat >/dev/null; kill -9 $pid; wait $pid`
	r.cmd = exec.Command("sh", append([]string{"-c", keep, "sh"}, args...)...)
	r.cmd.Stdout, r.cmd.Stderr = log, log
	if r.alive, err = r.cmd.StdinPipe(); err != nil {
		return err
	}
	if err := r.cmd.Start(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute) // seven seconds on an idle machine
	defer cancel()
	for {
		err := r.healthy()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			text, _ := os.ReadFile(r.log)
			return fmt.Errorf("own RabbitMQ: %w: %w\n%s", ctx.Err(), err,
				bytes.TrimSpace(text[max(0, len(text)-2000):]))
		case <-time.After(250 * time.Millisecond):
		}
	}
}

// errors returns the last error lines of the log.
func (r *Own) errors() string {
	text, _ := os.ReadFile(r.log)
	var found []string
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, "[error]") || strings.Contains(line, "[critical]") {
			found = append(found, line)
		}
	}
	return strings.Join(found[max(0, len(found)-200):], "")
}

// healthy declares a classic and a quorum queue, because the port opens a little before the node can do that.
func (r *Own) healthy() error {
	return onChannel(r.URL, func(ch *amqp.Channel) error {
		if _, err := ch.QueueDeclare("", false, true, true, false, nil); err != nil {
			return err
		}
		q, err := ch.QueueDeclare("healthy-"+rand.Text(), true, false, false, false,
			amqp.Table{"x-queue-type": "quorum"})
		if err != nil {
			return err
		}
		_, err = ch.QueueDelete(q.Name, false, false, false)
		return err
	})
}

// Kill ends it like a crash. Confirmed messages are on disk, except in queues that are only a few seconds old: see
// written.
func (r *Own) Kill() {
	if r.alive == nil {
		return
	}
	_ = r.alive.Close()
	_ = r.cmd.Wait()
	r.alive = nil
}

// Restart waits until all existing queues would survive a crash, and then calls Kill and Start.
func (r *Own) Restart(ctx context.Context) error {
	if err := r.written(ctx); err != nil {
		return fmt.Errorf("own RabbitMQ: %w", err)
	}
	r.Kill()
	return r.Start(ctx)
}

// written declares one more queue and waits until its name is on disk, because the names of earlier queues are on disk
// by then. RabbitMQ 3.10 confirms a declaration, and messages in that queue, up to two seconds before the queue would
// survive a crash: the declaration may be the last entry in the metadata log, or a quorum queue may be missing in
// names.dets.
func (r *Own) written(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	last := "written-" + rand.Text()
	err := onChannel(r.URL, func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare(last, true, false, false, false, amqp.Table{"x-queue-type": "quorum"})
		return err
	})
	if err != nil {
		return err
	}
	const node = "txonce@localhost"
	data := filepath.Join(r.server.Dir, "data", node)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		metadata := inFiles(last, filepath.Join(data, "*.LOG"), filepath.Join(data, "rabbit_durable_queue.*"))
		if metadata && inFiles(last, filepath.Join(data, "quorum", node, "names.dets")) {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.Join(errors.New("it does not note which queues it has"), ctx.Err())
		}
	}
}

// inFiles reports whether one of the files that match the patterns contains text.
func inFiles(text string, patterns ...string) bool {
	for _, pattern := range patterns {
		files, _ := filepath.Glob(pattern)
		for _, file := range files {
			if content, _ := os.ReadFile(file); bytes.Contains(content, []byte(text)) {
				// the file may have been deleted
				return true
			}
		}
	}
	return false
}

// Eval evaluates an expression of Erlang on the node, and returns its value.
func (r *Own) Eval(t testing.TB, expression string) string {
	t.Helper()
	args, err := r.server.Eval()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Stdin = strings.NewReader(expression + ".\n")
	out, err := cmd.CombinedOutput()
	value, ok := strings.CutPrefix(string(out), "{ok, ")
	if err != nil || !ok {
		t.Fatalf("%s: %v\n%s", expression, err, out)
	}
	return strings.TrimSuffix(strings.TrimSpace(value), "}")
}
