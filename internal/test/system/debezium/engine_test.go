package debezium_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// engine is a process with Debezium's engine.
type engine struct {
	cmd    *exec.Cmd
	stdin  io.Closer
	stderr *lockedBuffer
	ended  chan struct{}
}

// start runs the engine with the properties of docs/interop.md and the stored offsets. It adds the server's address and
// shorter pauses.
func (c *capture) start(t *testing.T) *engine {
	t.Helper()
	lib := jars(t, "engine")
	e := &engine{stderr: &lockedBuffer{}, ended: make(chan struct{})}
	e.cmd = exec.Command(program(t, "java"), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m", "-Xshare:auto",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
		"-cp", classes(t, "engine", "Engine.java", lib)+string(os.PathListSeparator)+filepath.Join(lib, "*"),
		"Engine", filepath.Join("testdata", "connector.properties"),
		"name=txonce", "topic.prefix=txonce",
		"database.hostname=127.0.0.1", fmt.Sprint("database.port=", c.server.Port), "database.user=postgres",
		"database.password=none", "database.dbname=postgres",
		"offset.storage.file.filename="+c.offsets(),
		"offset.flush.interval.ms=50", "poll.interval.ms=50", "heartbeat.interval.ms=200",
		"retriable.restart.connector.wait.ms=200", "slot.retry.delay.ms=100", "errors.max.retries=50",
	)
	e.cmd.Stderr = e.stderr
	stdout, err := e.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if e.stdin, err = e.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := e.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(e.ended)
		if err := c.read(stdout); err != nil {
			t.Error(err)
		}
		_ = e.cmd.Wait()
	}()
	t.Cleanup(e.kill)
	return e
}

// read reads the engine's output. It ignores an incomplete last line, because the engine was not told that this record
// was processed.
func (c *capture) read(stdout io.Reader) error {
	lines := bufio.NewReader(stdout)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return nil //nolint:nilerr // the pipe ends with the process, which the test ended or which is noticed elsewhere
		}
		var r record
		if err := json.Unmarshal(line, &r); err != nil {
			return fmt.Errorf("the engine printed %q: %w", line, err)
		}
		c.mu.Lock()
		if strings.HasPrefix(r.Topic, "__debezium-heartbeat.") {
			c.beats++
		} else {
			c.records = append(c.records, r)
		}
		c.mu.Unlock()
	}
}

// kill ends the process with SIGKILL.
func (e *engine) kill() {
	_ = e.cmd.Process.Kill()
	<-e.ended
	e.stdin.Close()
}

// running fails the test if the engine has given up.
func (e *engine) running(t *testing.T) {
	t.Helper()
	select {
	case <-e.ended:
		t.Fatalf("the engine has ended:\n%s", e.stderr)
	default:
	}
}

// await waits until done returns true, and fails if the engine gives up.
func (e *engine) await(t *testing.T, what string, done func() bool) {
	t.Helper()
	await(t, what, func() bool {
		e.running(t)
		return done()
	})
}

// awaitSnapshot waits until an engine that was started for the first time has read the existing rows and stored that it
// has. These rows are then deleted.
func (c *capture) awaitSnapshot(t *testing.T, e *engine) {
	t.Helper()
	last := c.count(t, `SELECT max(seq) FROM outbox_messages`)
	e.await(t, "the first rows are captured and deleted", func() bool {
		return c.count(t, fmt.Sprintf(`SELECT count(*) FROM outbox_messages WHERE seq <= %d`, last)) == 0
	})
}

// killAndRelease kills the engine and waits until the server has noticed that the slot has no reader.
func (c *capture) killAndRelease(t *testing.T, e *engine) {
	t.Helper()
	e.kill()
	await(t, "the slot is free", func() bool { return c.count(t, countActive) == 0 })
}

type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// Every committed message arrives unchanged and in the order of its key through Debezium's engine, across crashes of
// the engine and of PostgreSQL, while captured messages are being deleted.
func TestDebeziumEngine(t *testing.T) {
	c, ok := newCapture(t)
	if !ok {
		return
	}
	l := newLedger(c)

	// The table does not have the first rows in the order of their keys: later rows take the place of deleted ones.
	c.exec(t, `INSERT INTO outbox_messages (shard, id, topic, payload) SELECT 0, 'f' || i, 'filler', '' FROM generate_series(1, 200) i`)
	for range 40 {
		l.transact(t.Context(), "k0", commits)
	}
	c.exec(t, `DELETE FROM outbox_messages WHERE topic = 'filler'`)
	c.exec(t, `VACUUM outbox_messages`)
	for range 40 {
		l.transact(t.Context(), "k0", commits)
	}
	if c.count(t, `SELECT count(*) FROM (SELECT seq < lag(seq) OVER (ORDER BY tableoid, ctid) AS back FROM outbox_messages) r WHERE back`) == 0 {
		t.Error("the rows lie in the order of seq; nothing shows that the snapshot sorts them")
	}

	stopDraining := c.drainOn(t)
	defer stopDraining()
	e := c.start(t)
	stopWriting := l.write(t)
	defer stopWriting()
	c.awaitSnapshot(t, e)
	more := func(n int) (done func() bool) {
		n += c.captured()
		return func() bool { return c.captured() >= n }
	}
	e.await(t, "messages are streamed", more(200))
	e.kill()
	committed := l.committed() + 50
	await(t, "messages are committed without the engine", func() bool { return l.committed() >= committed })
	e = c.start(t)
	e.await(t, "what was committed without the engine arrives", more(200))
	c.server.Kill()
	if err := c.server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	committed = l.committed() + 50
	e.await(t, "messages are committed after the crash of PostgreSQL",
		func() bool { return l.committed() >= committed })
	stopWriting()
	e.await(t, "all that was committed arrives", func() bool { return len(l.missing()) == 0 })
	e.await(t, "all that was captured is deleted", func() bool { return c.count(t, countRows) == 0 })
	stopDraining()
	e.kill()
	l.audit(t)
}

// After the slot is lost, no message is deleted that only the table has, the engine does not continue as if nothing
// were lost, and the remedy of docs/interop.md delivers every message.
func TestDebeziumEngineLosesItsSlot(t *testing.T) {
	c, ok := newCapture(t)
	if !ok {
		return
	}
	l := newLedger(c)
	for range 20 {
		l.transact(t.Context(), "k0", commits)
	}
	e := c.start(t)
	stopWriting, stopDraining := l.write(t), c.drainOn(t)
	defer func() { stopWriting(); stopDraining() }() // the current ones
	c.awaitSnapshot(t, e)
	n := c.captured() + 200
	e.await(t, "messages are streamed", func() bool { return c.captured() >= n })
	stopDraining()
	if err := c.deleteCaptured(t); err != nil {
		t.Fatal(err)
	}
	c.killAndRelease(t, e) // at once: the latest messages may not have arrived anywhere and must still be in the table
	committed := l.committed() + 50
	await(t, "messages are committed without the engine", func() bool { return l.committed() >= committed })
	stopWriting()
	left := c.count(t, countRows)
	kept := func(when string) {
		t.Helper()
		if err := c.deleteCaptured(t); err != nil {
			t.Fatal(err)
		}
		if n := c.count(t, countRows); n != left {
			t.Fatalf("%s: %d rows are left of %d that were not captured", when, n, left)
		}
	}
	kept("nobody reads the slot")
	c.exec(t, dropSlot)
	for range 20 {
		l.transact(t.Context(), "k0", commits)
	}
	left = c.count(t, countRows)
	kept("the slot is lost")

	arrived := c.captured()
	e = c.start(t)
	kept("the engine starts")
	await(t, "the engine gives up", func() bool {
		select {
		case <-e.ended:
			return true
		default:
			kept("the engine is about to give up")
			if c.captured() > arrived {
				t.Fatalf("the engine skips what was committed without a slot:\n%s", e.stderr)
			}
			return false
		}
	})
	if log := e.stderr.String(); !strings.Contains(log, "Cannot seek to the last known offset") {
		t.Errorf("the engine ends for another reason:\n%s", log)
	}
	kept("the engine has given up")

	// Apply the remedy twice, because the engine crashes while it reads the table.
	stopWriting, stopDraining = l.write(t), c.drainOn(t)
	remedy := func() *engine {
		await(t, "the slot is free", func() bool { return c.count(t, countActive) == 0 })
		if c.count(t, `SELECT count(*) FROM pg_replication_slots`) > 0 {
			c.exec(t, dropSlot)
		}
		if err := os.Remove(c.offsets()); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		return c.start(t)
	}
	e = remedy()
	e.await(t, "the snapshot begins", func() bool { return c.captured() > arrived })
	c.killAndRelease(t, e)
	e = remedy()
	e.await(t, "what was committed without a slot arrives", func() bool { return c.captured() > arrived+left })
	stopWriting()
	e.await(t, "all that was committed arrives", func() bool { return len(l.missing()) == 0 })
	e.await(t, "all that was captured is deleted", func() bool { return c.count(t, countRows) == 0 })
	stopDraining()
	e.kill()
	l.audit(t)
}
