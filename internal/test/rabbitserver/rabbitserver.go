// Package rabbitserver runs a RabbitMQ node from the programs installed on this machine, as any user, and beside other
// nodes.
//
// It runs the scripts behind Debian's wrapper, because the wrapper insists on a certain user. All settings of a node
// are in its environment: an exported HOME, where it keeps its cookie, would also move Go's caches. A node registers
// with epmd, a name server that outlives it. Each node gets its own epmd, which ends when the node does.
package rabbitserver

import (
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Server is a node and its files.
type Server struct {
	Programs string // the folder of the programs, see Programs
	Dir      string // an existing folder for the cookie, data and settings
	Port     int    // the port for AMQP
	Dist     int    // the port for other nodes, and for Eval
	Epmd     int    // the port of the name server

	// Settings are additional lines of rabbitmq.conf.
	Settings []string
}

// Programs returns the folder with rabbitmq-server and rabbitmqctl, or "" if RabbitMQ is not installed.
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
// signals reach the node; SIGTERM shuts it down cleanly. Data of an earlier run in the same Dir are kept.
func (s Server) Prepare() (args []string, err error) {
	conf := append([]string{
		fmt.Sprintf("listeners.tcp.1 = 127.0.0.1:%d", s.Port),
		// Quorum queues keep the contents of their log in memory, up to 512 MB by default.
		"raft.wal_max_size_bytes = 33554432",
	}, s.Settings...)
	err = errors.Join(
		s.linkPlugins(),
		os.WriteFile(s.file("rabbitmq.conf"), []byte(strings.Join(conf, "\n")+"\n"), 0o600),
		os.WriteFile(s.file("enabled_plugins"), []byte("[].\n"), 0o600),
	)
	return s.command("sh", "-c", script, "sh", filepath.Join(s.Programs, "rabbitmq-server")), err
}

// Eval returns a command that evaluates what it reads, an expression of Erlang, on the node. It speaks the protocol of
// nodes, and needs a hundredth of the time of rabbitmqctl, which is a node too.
func (s Server) Eval() ([]string, error) {
	erl, err := exec.LookPath("erl")
	if err != nil {
		return nil, err
	}
	if erl, err = filepath.EvalSymlinks(erl); err != nil {
		return nil, err
	}
	found, err := filepath.Glob(filepath.Join(filepath.Dir(erl), "../erts-*/bin/erl_call"))
	if err != nil || len(found) == 0 {
		return nil, fmt.Errorf("there is no erl_call beside %s: %w", erl, err)
	}
	return s.command(found[len(found)-1], "-address", fmt.Sprint("127.0.0.1:", s.Dist), "-timeout", "60", "-e"), nil
}

// command returns a command with the node's environment.
func (s Server) command(words ...string) []string {
	args := []string{
		"env",
		"HOME=" + s.Dir,
		"RABBITMQ_NODENAME=txonce@localhost",
		"RABBITMQ_MNESIA_BASE=" + s.file("data"),
		"RABBITMQ_LOG_BASE=" + s.file("logs"),
		"RABBITMQ_LOGS=-",
		"ERL_CRASH_DUMP=" + s.file("erl_crash.dump"), // the default is the test's folder
		"RABBITMQ_CONFIG_FILE=" + s.file("rabbitmq.conf"),
		"RABBITMQ_ENABLED_PLUGINS_FILE=" + s.file("enabled_plugins"),
		"RABBITMQ_PID_FILE=" + s.file("node.pid"),
		fmt.Sprint("RABBITMQ_DIST_PORT=", s.Dist),
		fmt.Sprint("ERL_EPMD_PORT=", s.Epmd),
		"ERL_EPMD_ADDRESS=127.0.0.1",
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1} +S 2:2 +sbwt none -start_epmd false",
		"RUNNING_UNDER_SYSTEMD=true", // makes the script exec the node instead of starting a child
	}
	if _, err := os.Stat(s.file("plugins")); err == nil {
		args = append(args, "RABBITMQ_PLUGINS_DIR="+s.file("plugins"))
	}
	return append(args, words...)
}

// linkPlugins makes a folder with links to RabbitMQ's libraries and without its plugins, because none is enabled: a
// node reads all of them at its start, which takes a third of the time. Where RabbitMQ keeps its libraries elsewhere,
// there is no such folder.
func (s Server) linkPlugins() error {
	libraries, err := filepath.Glob(filepath.Join(s.Programs, "../lib/rabbitmq_server-*/plugins/*"))
	if err != nil || len(libraries) == 0 {
		return err
	}
	if err := os.MkdirAll(s.file("plugins"), 0o755); err != nil {
		return err
	}
	for _, library := range libraries {
		name := filepath.Base(library)
		if strings.HasPrefix(name, "rabbitmq_") && !strings.HasPrefix(name, "rabbitmq_prelaunch") {
			continue
		}
		if err := os.Symlink(library, s.file("plugins/"+name)); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

func (s Server) file(name string) string { return filepath.Join(s.Dir, name) }
