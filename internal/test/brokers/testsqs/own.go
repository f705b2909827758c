package testsqs

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/txonce/txonce/internal/test/testdb"
)

// Own is an ElasticMQ for one test, which may stop and restart it. It runs from the same jars as the shared one of
// `make services-up`, with its own port, and with queues and messages on disk.
type Own struct {
	Endpoint string

	front  *forwarder
	direct *sqs.Client // bypasses front
	dir    string
	args   []string
	cmd    *exec.Cmd
	alive  io.WriteCloser
	log    string
	kept   map[string]int // number of messages in each queue when it was stopped
}

// NoOwn returns why Start would fail, or "". One that runs in a container cannot be started this way.
func NoOwn() string {
	if _, err := elasticMQProgram(); err != nil {
		return "the shared ElasticMQ must not be restarted, and for one of the test's own the jars are missing that make tools fetches: " + err.Error()
	}
	return ""
}

// elasticMQProgram returns the command of the shared one: java … -Dconfig.file=… and the main class.
func elasticMQProgram() ([]string, error) {
	root, err := testdb.Root()
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(root, ".services", "elasticmq", "process.json"))
	if errors.Is(err, fs.ErrNotExist) {
		// another checkout or Docker has started the shared one; make tools has written this
		text, err = os.ReadFile(filepath.Join(root, ".services", "elasticmq.json"))
	}
	if err != nil {
		return nil, err
	}
	var shared struct{ Args []string }
	if err := json.Unmarshal(text, &shared); err != nil {
		return nil, err
	}
	if len(shared.Args) == 0 {
		return nil, errors.New(".services/elasticmq/process.json says nothing of how it is run")
	}
	return shared.Args, nil
}

// Start starts an ElasticMQ without queues. It ends with the test.
func Start(t testing.TB) *Own {
	t.Helper()
	if testing.Short() {
		t.Skip("needs ElasticMQ; -short runs only what needs nothing but Go")
	}
	program, err := elasticMQProgram()
	if err != nil {
		t.Fatal(err)
	}
	dir, port := t.TempDir(), testdb.FreePort(t)
	front := newForwarder(t, fmt.Sprintf("127.0.0.1:%d", port))
	conf := filepath.Join(dir, "elasticmq.conf")
	err = os.WriteFile(conf, fmt.Appendf(nil, `include classpath("application.conf")
node-address { protocol = http, host = "127.0.0.1", port = %s, context-path = "" }
rest-sqs { enabled = true, bind-port = %d, bind-hostname = "127.0.0.1", sqs-limits = strict }
rest-stats { enabled = false }
queues-storage { enabled = true, path = %q }
messages-storage { enabled = true, uri = %q }
`, front.address[strings.LastIndexByte(front.address, ':')+1:], port, filepath.Join(dir, "queues.conf"), "jdbc:h2:"+filepath.Join(dir, "messages")+";WRITE_DELAY=0"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	e := &Own{
		Endpoint: "http://" + front.address, front: front, direct: Client("http://" + front.to), dir: dir,
		log: filepath.Join(dir, "log"),
	}
	for _, arg := range program {
		if strings.HasPrefix(arg, "-Dconfig.file=") {
			arg = "-Dconfig.file=" + conf
		}
		e.args = append(e.args, arg)
	}
	t.Cleanup(e.Kill)
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return e
}

// Start starts it again after Stop, with its queues, messages and address, and returns when it answers. It answers
// before it has read all stored messages, so clients are accepted only after that.
func (e *Own) Start(ctx context.Context) error {
	log, err := os.OpenFile(e.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	// The shell kills the server when its standard input ends, also if this process is killed. After a line on standard
	// input it stops the server cleanly.
	const keep = `"$@" & pid=$!; if read word; then kill $pid; else kill -9 $pid; fi; wait $pid`
	e.cmd = exec.Command("sh", append([]string{"-c", keep, "sh"}, e.args...)...)
	e.cmd.Stdout, e.cmd.Stderr = log, log
	alive, err := e.cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := e.cmd.Start(); err != nil {
		return err
	}
	e.alive = alive
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute) // two seconds on an idle machine
	defer cancel()
	for {
		counts, err := e.counts(ctx)
		if err == nil && (e.kept == nil || maps.Equal(counts, e.kept)) {
			return e.front.open()
		}
		if err == nil {
			err = fmt.Errorf("it has %v, and had %v when it was stopped", counts, e.kept)
		}
		select {
		case <-ctx.Done():
			text, _ := os.ReadFile(e.log)
			return fmt.Errorf("own ElasticMQ: %w: %w\n%s", ctx.Err(), err,
				bytes.TrimSpace(text[max(0, len(text)-2000):]))
		case <-time.After(250 * time.Millisecond):
		}
	}
}

// Stop shuts it down. ElasticMQ confirms messages before it writes them to disk, and loses unwritten ones even in a
// clean shutdown. So Stop first cuts the clients off and gives it time to write.
func (e *Own) Stop(ctx context.Context) error {
	e.front.cut()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	err := e.written(ctx)
	if err == nil {
		e.kept, err = e.counts(ctx)
	}
	e.end("stop\n")
	if err != nil {
		return fmt.Errorf("own ElasticMQ: %w", err)
	}
	return nil
}

// written sends a last message and waits until it is on disk. Everything that was confirmed earlier is written before
// it.
func (e *Own) written(ctx context.Context) error {
	last := "the last one: " + rand.Text()
	queue, err := e.direct.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: aws.String("written")})
	if err != nil {
		return err
	}
	if _, err := e.direct.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: queue.QueueUrl, MessageBody: &last}); err != nil {
		return err
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		text, err := os.ReadFile(filepath.Join(e.dir, "messages.mv.db"))
		if bytes.Contains(text, []byte(last)) {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.Join(errors.New("it does not write what it has confirmed"), err, ctx.Err())
		}
	}
}

// counts returns the number of messages in each queue.
func (e *Own) counts(ctx context.Context) (map[string]int, error) {
	queues, err := e.direct.ListQueues(ctx, &sqs.ListQueuesInput{})
	if err != nil {
		return nil, err
	}
	counts := map[string]int{}
	for _, url := range queues.QueueUrls {
		out, err := e.direct.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{QueueUrl: &url, AttributeNames: []types.QueueAttributeName{
			types.QueueAttributeNameApproximateNumberOfMessages,
			types.QueueAttributeNameApproximateNumberOfMessagesNotVisible,
			types.QueueAttributeNameApproximateNumberOfMessagesDelayed,
		}})
		if err != nil {
			return nil, err
		}
		for _, number := range out.Attributes {
			n, err := strconv.Atoi(number)
			if err != nil {
				return nil, err
			}
			counts[url] += n
		}
	}
	return counts, nil
}

// Kill ends it like a crash.
func (e *Own) Kill() { e.end("") }

func (e *Own) end(word string) {
	if e.alive == nil {
		return
	}
	_, _ = io.WriteString(e.alive, word)
	_ = e.alive.Close()
	_ = e.cmd.Wait()
	e.alive = nil
}
