package awssqs_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/txonce/txonce/internal/testdb"
)

// ownElasticMQ is an ElasticMQ that a test may stop and start again: run from the jars with which `make services-up` runs the
// shared one, on a port of its own, and with its queues and messages on disk.
type ownElasticMQ struct {
	endpoint string
	args     []string
	cmd      *exec.Cmd
	alive    io.WriteCloser
	log      string
}

// noJars is why there is no ownElasticMQ where the shared one is a container or the user's own; empty where there is.
func noJars() string {
	if _, err := os.Stat(sharedElasticMQ); err != nil {
		return "the shared ElasticMQ must not be restarted, and for one of the test's own the jars are missing that make services-up fetches where there is no Docker"
	}
	return ""
}

var sharedElasticMQ = filepath.Join("..", "..", ".services", "elasticmq", "process.json")

func startOwnElasticMQ(t *testing.T) *ownElasticMQ {
	t.Helper()
	var shared struct{ Args []string }
	text, err := os.ReadFile(sharedElasticMQ)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &shared); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	conf := filepath.Join(dir, "elasticmq.conf")
	err = os.WriteFile(conf, fmt.Appendf(nil, `include classpath("application.conf")
node-address { protocol = http, host = "127.0.0.1", port = %d, context-path = "" }
rest-sqs { enabled = true, bind-port = %d, bind-hostname = "127.0.0.1", sqs-limits = strict }
rest-stats { enabled = false }
queues-storage { enabled = true, path = %q }
messages-storage { enabled = true, uri = %q }
`, port, port, filepath.Join(dir, "queues.conf"), "jdbc:h2:"+filepath.Join(dir, "messages")+";WRITE_DELAY=0"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	e := &ownElasticMQ{endpoint: fmt.Sprintf("http://127.0.0.1:%d", port), log: filepath.Join(dir, "log")}
	for _, arg := range shared.Args { // java … -Dconfig.file=… main class
		if strings.HasPrefix(arg, "-Dconfig.file=") {
			arg = "-Dconfig.file=" + conf
		}
		e.args = append(e.args, arg)
	}
	e.args = slices.Insert(e.args, 1, "-XX:TieredStopAtLevel=1")
	if err := e.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.kill)
	return e
}

// start returns when the server answers.
func (e *ownElasticMQ) start(ctx context.Context) error {
	log, err := os.OpenFile(e.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	// The shell ends the server when its standard input does, also when this process is killed; kindly when it is told so.
	const keep = `"$@" & pid=$!; if read word; then kill $pid; else kill -9 $pid; fi; wait $pid`
	e.cmd = exec.Command("sh", append([]string{"-c", keep, "sh"}, e.args...)...)
	e.cmd.Stdout, e.cmd.Stderr = log, log
	if e.alive, err = e.cmd.StdinPipe(); err != nil {
		return err
	}
	if err := e.cmd.Start(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute) // two seconds, where nothing else runs
	defer cancel()
	client := testdb.SQSClient(e.endpoint)
	for {
		_, err := client.ListQueues(ctx, &sqs.ListQueuesInput{MaxResults: aws.Int32(1)})
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			text, _ := os.ReadFile(e.log)
			return fmt.Errorf("%w: %w\n%s", ctx.Err(), err, bytes.TrimSpace(text[max(0, len(text)-2000):]))
		case <-time.After(250 * time.Millisecond):
		}
	}
}

// stop shuts the server down. A crash would show nothing of ours: ElasticMQ writes messages to its disk after it has confirmed them.
func (e *ownElasticMQ) stop() {
	_, _ = io.WriteString(e.alive, "stop\n")
	_ = e.cmd.Wait()
	_ = e.alive.Close()
}

// kill ends the server the way a crash does.
func (e *ownElasticMQ) kill() {
	_ = e.alive.Close()
	_ = e.cmd.Wait()
}
