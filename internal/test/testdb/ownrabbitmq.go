package testdb

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
)

// OwnRabbitMQ is a RabbitMQ of the test's own, which it may kill, start again and reconfigure.
type OwnRabbitMQ struct {
	URL string

	server rabbitserver.Server
	cmd    *exec.Cmd
	alive  io.Closer
	log    string
}

// NoOwnRabbitMQ is why StartRabbitMQ would fail; empty where it would not. A container cannot be had here.
func NoOwnRabbitMQ() string {
	if rabbitserver.Programs() == "" {
		return "the shared RabbitMQ must not be restarted, and for one of the test's own its programs are not installed: apt-get install rabbitmq-server"
	}
	return ""
}

// StartRabbitMQ starts one with these further lines of rabbitmq.conf. It ends with the test.
func StartRabbitMQ(t testing.TB, settings ...string) *OwnRabbitMQ {
	t.Helper()
	if testing.Short() {
		t.Skip("needs RabbitMQ; -short runs only what needs nothing but Go")
	}
	if reason := NoOwnRabbitMQ(); reason != "" {
		t.Fatal(reason)
	}
	dir := t.TempDir()
	port := freePort(t)
	r := &OwnRabbitMQ{
		URL: fmt.Sprintf("amqp://guest:guest@127.0.0.1:%d/", port),
		log: filepath.Join(dir, "log"),
		server: rabbitserver.Server{
			Programs: rabbitserver.Programs(), Dir: dir, Port: port, Dist: freePort(t), Epmd: freePort(t), Settings: settings,
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

// Start starts it again after Kill, with its data and at its address, and returns when it answers.
func (r *OwnRabbitMQ) Start(ctx context.Context) error {
	args, err := r.server.Prepare()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(r.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	// The shell ends the node when its standard input does, also when this process is killed.
	const keep = `"$@" & pid=$!; cat >/dev/null; kill -9 $pid; wait $pid`
	r.cmd = exec.Command("sh", append([]string{"-c", keep, "sh"}, args...)...)
	r.cmd.Stdout, r.cmd.Stderr = log, log
	if r.alive, err = r.cmd.StdinPipe(); err != nil {
		return err
	}
	if err := r.cmd.Start(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute) // seven seconds, where nothing else runs
	defer cancel()
	for {
		err := r.healthy()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			text, _ := os.ReadFile(r.log)
			return fmt.Errorf("own RabbitMQ: %w: %w\n%s", ctx.Err(), err, bytes.TrimSpace(text[max(0, len(text)-2000):]))
		case <-time.After(250 * time.Millisecond):
		}
	}
}

// errors returns the last lines of the log that are about errors.
func (r *OwnRabbitMQ) errors() string {
	text, _ := os.ReadFile(r.log)
	var found []string
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, "[error]") || strings.Contains(line, "[critical]") {
			found = append(found, line)
		}
	}
	return strings.Join(found[max(0, len(found)-200):], "")
}

// healthy declares a queue of each kind: the port opens a little before the node is ready for that.
func (r *OwnRabbitMQ) healthy() error {
	return onChannel(r.URL, func(ch *amqp.Channel) error {
		if _, err := ch.QueueDeclare("", false, true, true, false, nil); err != nil {
			return err
		}
		q, err := ch.QueueDeclare("healthy-"+rand.Text(), true, false, false, false, amqp.Table{"x-queue-type": "quorum"})
		if err != nil {
			return err
		}
		_, err = ch.QueueDelete(q.Name, false, false, false)
		return err
	})
}

// Kill ends it the way a crash does. What it has confirmed is on its disk, except for queues that are younger than a few seconds: see
// written.
func (r *OwnRabbitMQ) Kill() {
	if r.alive == nil {
		return
	}
	_ = r.alive.Close()
	_ = r.cmd.Wait()
	r.alive = nil
}

// Restart is Kill and Start, when all queues there are will survive that.
func (r *OwnRabbitMQ) Restart(ctx context.Context) error {
	if err := r.written(ctx); err != nil {
		return fmt.Errorf("own RabbitMQ: %w", err)
	}
	r.Kill()
	return r.Start(ctx)
}

// written declares a last queue, and waits until its name lies on the disk, behind those of all others. RabbitMQ 3.10 confirms a
// declaration, and every message after it, up to two seconds before the queue is there after a crash (seen): it may be the last one in
// the log of metadata, which is written then, or a quorum queue whose data names.dets has not been told of.
func (r *OwnRabbitMQ) written(ctx context.Context) error {
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
			if content, _ := os.ReadFile(file); bytes.Contains(content, []byte(text)) { // files come and go
				return true
			}
		}
	}
	return false
}

// Ctl runs rabbitmqctl on it, which takes a second or two, and returns what it prints.
func (r *OwnRabbitMQ) Ctl(t testing.TB, words ...string) string {
	t.Helper()
	args := r.server.Ctl(words...)
	out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("rabbitmqctl %v: %v\n%s", words, err, out)
	}
	return string(out)
}
