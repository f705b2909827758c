// Package rabbitserver says how to run a RabbitMQ from the programs installed on this machine, as whoever asks, beside any other one.
//
// Debian's wrapper on PATH insists on a user of its own, so the scripts it wraps are run. Everything a node is told it is told in its
// own environment: an exported HOME, which is where it keeps its cookie, would move Go's caches too. A node registers with
// epmd, a name server that outlives it; each node gets one of its own, which ends when the node does, however that ends.
package rabbitserver

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Server is one node, and where its files are.
type Server struct {
	Programs string // the folder of the programs, see Programs
	Dir      string // an existing folder for cookie, data and settings
	Port     int    // of AMQP
	Dist     int    // port for rabbitmqctl
	Epmd     int    // port of the name server

	// Settings are further lines of rabbitmq.conf.
	Settings []string
}

// Programs returns the folder with rabbitmq-server and rabbitmqctl, or "" where RabbitMQ is not installed.
func Programs() string {
	for _, dir := range []string{
		"/usr/lib/rabbitmq/bin",           // Debian, Ubuntu, Red Hat
		"/opt/homebrew/opt/rabbitmq/sbin", // Homebrew
		"/usr/local/opt/rabbitmq/sbin",
	} {
		if _, err := os.Stat(filepath.Join(dir, "rabbitmq-server")); err == nil {
			return dir
		}
	}
	return ""
}

//go:embed run.sh
var script string

// Prepare writes the node's settings and returns the command that runs it. The command's process is the node itself, so
// that what it is killed with reaches it; SIGTERM shuts it down cleanly. Data of an earlier run in the same Dir are kept.
func (s Server) Prepare() (args []string, err error) {
	conf := append([]string{
		fmt.Sprintf("listeners.tcp.1 = 127.0.0.1:%d", s.Port),
		// A node of quorum queues keeps in memory what is in its log, up to 512 MB of it by default.
		"raft.wal_max_size_bytes = 33554432",
	}, s.Settings...)
	err = errors.Join(
		os.WriteFile(s.file("rabbitmq.conf"), []byte(strings.Join(conf, "\n")+"\n"), 0o600),
		os.WriteFile(s.file("enabled_plugins"), []byte("[].\n"), 0o600),
	)
	return s.command("sh", "-c", script, "sh", filepath.Join(s.Programs, "rabbitmq-server")), err
}

// Ctl returns the command that runs rabbitmqctl on the node.
func (s Server) Ctl(words ...string) []string {
	return s.command(append([]string{filepath.Join(s.Programs, "rabbitmqctl")}, words...)...)
}

// command is a command in the node's environment.
func (s Server) command(words ...string) []string {
	return append([]string{
		"env",
		"HOME=" + s.Dir,
		"RABBITMQ_NODENAME=txonce@localhost",
		"RABBITMQ_MNESIA_BASE=" + s.file("data"),
		"RABBITMQ_LOG_BASE=" + s.file("logs"),
		"RABBITMQ_LOGS=-",
		"ERL_CRASH_DUMP=" + s.file("erl_crash.dump"), // or it lies where a test runs
		"RABBITMQ_CONFIG_FILE=" + s.file("rabbitmq.conf"),
		"RABBITMQ_ENABLED_PLUGINS_FILE=" + s.file("enabled_plugins"),
		"RABBITMQ_PID_FILE=" + s.file("node.pid"),
		fmt.Sprint("RABBITMQ_DIST_PORT=", s.Dist),
		fmt.Sprint("ERL_EPMD_PORT=", s.Epmd),
		"ERL_EPMD_ADDRESS=127.0.0.1",
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1} +S 2:2 +sbwt none -start_epmd false",
		"RUNNING_UNDER_SYSTEMD=true", // the script becomes the node, and does not stand between us and it
	}, words...)
}

func (s Server) file(name string) string { return filepath.Join(s.Dir, name) }
