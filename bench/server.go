package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // registers "pgx", which testdb takes

	"github.com/txonce/txonce/internal/test/testdb"
)

// further is what the longer network adds to a round trip.
const further = 500 * time.Microsecond

// server is a PostgreSQL that nothing else uses, with default durability and its data on a disk.
type server struct {
	own     *testdb.OwnPostgres
	network *network // to the same server, with longer round trips
	machine machine
	pid     string // of the postmaster
}

// machine is what the figures were measured on.
type machine struct {
	CPU      string  `json:"cpu"`
	Cores    int     `json:"cores"`
	Postgres string  `json:"postgres"`
	Go       string  `json:"go"`
	Date     string  `json:"date"`
	Loopback float64 `json:"round_trip_ms"`
	Further  float64 `json:"longer_network_adds_ms"`
}

func startServer(ctx context.Context) (s *server, err error) {
	own, err := testdb.NewPostgres(ctx, "max_connections=300")
	if err != nil {
		return nil, fmt.Errorf("start a PostgreSQL: %w", err)
	}
	s = &server{own: own, machine: machine{CPU: cpu(), Cores: runtime.NumCPU(), Go: runtime.Version(), Date: time.Now().Format(time.DateOnly)}}
	started := s // a return of nil, err sets s to nil
	defer func() {
		if err != nil {
			started.close()
		}
	}()
	if s.network, err = newNetwork(fmt.Sprintf("127.0.0.1:%d", own.Port)); err != nil {
		return nil, err
	}
	conn, err := pgx.Connect(ctx, own.DSN)
	if err != nil {
		return nil, err
	}
	defer conn.Close(ctx)
	if err := s.durable(ctx, conn); err != nil {
		return nil, err
	}
	far, err := s.connect(ctx, "public", 1, true)
	if err != nil {
		return nil, err
	}
	defer far.Close()
	took, added, err := s.network.calibrate(ctx, further, roundTrip(conn), roundTrip(far))
	s.machine.Loopback, s.machine.Further = took.Seconds()*1000, added.Seconds()*1000
	return s, err
}

func (s *server) close() {
	if s.network != nil {
		_ = s.network.close()
	}
	s.own.Close()
}

// durable fails unless COMMIT waits for a disk: everything else costs more in comparison where it does not.
func (s *server) durable(ctx context.Context, conn *pgx.Conn) error {
	for _, setting := range []string{"fsync", "synchronous_commit", "full_page_writes"} {
		var value string
		if err := conn.QueryRow(ctx, `SELECT current_setting($1)`, setting).Scan(&value); err != nil {
			return err
		}
		if value != "on" {
			return fmt.Errorf("%s is %s", setting, value)
		}
	}
	var data string
	if err := conn.QueryRow(ctx, `SELECT current_setting('data_directory'), 'PostgreSQL ' || current_setting('server_version')`).Scan(&data, &s.machine.Postgres); err != nil {
		return err
	}
	pids, err := os.ReadFile(filepath.Join(data, "postmaster.pid"))
	if err != nil {
		return err
	}
	s.pid, _, _ = strings.Cut(string(pids), "\n")
	const tmpfs = 0x01021994
	var fs syscall.Statfs_t
	if err := syscall.Statfs(data, &fs); err != nil {
		return err
	}
	if int64(fs.Type) == tmpfs {
		return fmt.Errorf("%s is in memory: set TMPDIR to a folder on a disk", data)
	}
	return nil
}

func roundTrip(db interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
},
) func(context.Context) error {
	return func(ctx context.Context) error { return db.QueryRow(ctx, `SELECT 1`).Scan(new(int)) }
}

// connect opens a pool of at most conns connections, over the longer network if far is true.
func (s *server) connect(ctx context.Context, schema string, conns int, far bool) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(s.own.DSN)
	if err != nil {
		return nil, err
	}
	if far {
		address := s.network.address()
		cfg.ConnConfig.DialFunc = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, address)
		}
	}
	cfg.ConnConfig.RuntimeParams["search_path"] = schema
	cfg.MaxConns = int32(conns)
	return pgxpool.NewWithConfig(ctx, cfg)
}

// cpu returns the name of the processor.
func cpu() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if errors.Is(err, os.ErrNotExist) {
		return runtime.GOARCH
	}
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutPrefix(line, "model name"); ok {
			return strings.Trim(name, " \t\n:")
		}
	}
	return runtime.GOARCH
}

// spent returns the processor time that the server's processes have used so far. That of a process that has ended is
// missing.
func (s *server) spent() (total time.Duration, err error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, err
	}
	for _, stat := range stats {
		text, err := os.ReadFile(stat)
		if err != nil {
			continue // the process has ended
		}
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:])) // the command may contain spaces
		if len(fields) < 2 || fields[1] != s.pid {
			continue
		}
		times, err := os.ReadFile(strings.TrimSuffix(stat, "stat") + "schedstat")
		if err != nil {
			continue
		}
		used, _, _ := strings.Cut(string(times), " ")
		ns, err := strconv.ParseInt(used, 10, 64)
		if err != nil {
			return 0, err
		}
		total += time.Duration(ns)
	}
	return total, nil
}
