package kafka_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
)

// ownKafka is an Apache Kafka that a test may stop and start again. It has the jars and settings of the shared server
// of `make services-up`, and its own ports and data.
type ownKafka struct {
	address string
	args    []string
	cmd     *exec.Cmd
	alive   io.Closer
	log     string
}

// noJars is the reason why there is no ownKafka: the shared server is a container or the user's own. Empty: there is
// one.
func noJars() string {
	if _, err := os.Stat(sharedKafka("process.json")); err != nil {
		return "the shared Kafka must not be restarted, and for one of the test's own the jars are missing that make services-up fetches where there is no Docker"
	}
	return ""
}

func sharedKafka(name string) string { return filepath.Join("..", "..", ".services", "kafka", name) }

func startOwnKafka(t *testing.T) *ownKafka {
	t.Helper()
	var shared struct{ Args []string }
	text, err := os.ReadFile(sharedKafka("process.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &shared); err != nil {
		t.Fatal(err)
	}
	properties, err := os.ReadFile(sharedKafka("server.properties"))
	if err != nil {
		t.Fatal(err)
	}
	data := regexp.MustCompile(`(?m)^log\.dirs=(.*)$`).FindSubmatch(properties) // in memory, or below .services
	if data == nil {
		t.Fatal("the shared Kafka's settings have no line log.dirs=")
	}
	dir := t.TempDir()
	k := &ownKafka{address: freeAddress(t), log: filepath.Join(dir, "log")}
	controller := freeAddress(t)
	for _, change := range []struct{ setting, value string }{
		{"controller.quorum.voters", "1@" + controller},
		{"listeners", "PLAINTEXT://" + k.address + ",CONTROLLER://" + controller},
		{"advertised.listeners", "PLAINTEXT://" + k.address},
		{"log.dirs", filepath.Join(dir, "data")},
		{"broker.session.timeout.ms", "2000"}, // after a kill it answers in seconds
	} {
		line := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(change.setting) + `=.*$`)
		if !line.Match(properties) {
			t.Fatalf("the shared Kafka's settings have no line %s=", change.setting)
		}
		properties = line.ReplaceAll(properties, []byte(change.setting+"="+change.value))
	}
	file := filepath.Join(dir, "server.properties")
	if err := os.WriteFile(file, properties, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"meta.properties", "bootstrap.checkpoint"} {
		// what formatting leaves: copied, that saves a JVM
		copyFile(t, filepath.Join(dir, "data", name), filepath.Join(string(data[1]), name))
	}
	last := len(shared.Args) - 1 // java … kafka.Kafka FILE
	k.args = slices.Concat(shared.Args[:1], []string{"-XX:TieredStopAtLevel=1"}, shared.Args[1:last], []string{file})
	if err := k.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { k.kill() })
	return k
}

func copyFile(t *testing.T, to, from string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

var addressesGiven sync.Map

// freeAddress returns an address that stays free until the broker listens on it, and while the broker is down. Its port
// is below those that the system chooses for connections and listeners, and below those of internal/test/testdb. Each
// address is returned only once.
func freeAddress(t *testing.T) string {
	t.Helper()
	for range 1000 {
		address := fmt.Sprint("127.0.0.1:", 20_000+rand.IntN(3_000))
		if _, given := addressesGiven.LoadOrStore(address, true); given {
			continue
		}
		if l, err := net.Listen("tcp", address); err == nil {
			l.Close()
			return address
		}
	}
	t.Fatal("no port is free")
	return ""
}

// start returns when the broker has a controller.
func (k *ownKafka) start(ctx context.Context) error {
	log, err := os.OpenFile(k.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	// The shell ends the broker when its standard input does, also when this process is killed.
	const keep = `"$@" & pid=$!; cat >/dev/null; kill -9 $pid; wait $pid`
	k.cmd = exec.Command("sh", append([]string{"-c", keep, "sh"}, k.args...)...)
	k.cmd.Stdout, k.cmd.Stderr = log, log
	if k.alive, err = k.cmd.StdinPipe(); err != nil {
		return err
	}
	if err := k.cmd.Start(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute) // two seconds, where nothing else runs
	defer cancel()
	for {
		err := k.healthy()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			text, _ := os.ReadFile(k.log)
			return fmt.Errorf("%w: %w\n%s", ctx.Err(), err, bytes.TrimSpace(text[max(0, len(text)-2000):]))
		case <-time.After(250 * time.Millisecond):
		}
	}
}

func (k *ownKafka) healthy() error {
	cfg := sarama.NewConfig()
	cfg.Metadata.Retry.Max, cfg.Admin.Retry.Max = 0, 0
	cfg.Net.DialTimeout, cfg.Net.ReadTimeout = 10*time.Second, 10*time.Second
	admin, err := sarama.NewClusterAdmin(strings.Fields(k.address), cfg)
	if err != nil {
		return err
	}
	defer admin.Close()
	return admin.CreateTopic("health", &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, true)
}

// kill ends the broker the way a crash does.
func (k *ownKafka) kill() {
	_ = k.alive.Close()
	_ = k.cmd.Wait()
}
